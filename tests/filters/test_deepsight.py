from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders import Round
from flanders.data import Iid
from flanders.filters import DeepSight
from flanders.filters.deepsight import cosine_rows, few_classes, last_layer_steps, likelier, normalised_energies
from flanders.simulation import Backdoor, Simulation, Training
from settings import make_setting

LAYERS = {"body.weight": 20, "body.bias": 4, "head.weight": 40, "head.bias": 10}


def a_round(seed=0, malicious=4, honest=10, **parts):
    """Honest clients move all classes alike; the others move one class and the body."""
    rng = np.random.default_rng(seed)
    rows = 0.1 * rng.normal(size=(malicious + honest, 74))
    rows[malicious:, 24:64] += 1
    rows[malicious:, 64:] += 1
    rows[:malicious, 24:28] += 1
    rows[:malicious, 64] += 1
    return Round(rows, layers=LAYERS, **parts)


def kept(round_, **parameters):
    sight = DeepSight(**parameters)
    return sight.select(sight.score(None, round_)).tolist()


def test_energies_are_the_papers_formula_neuron_by_neuron():
    rng = np.random.default_rng(1)
    weights, biases = rng.normal(size=(3, 8)), rng.normal(size=(3, 2))
    for c, found in enumerate(normalised_energies(weights, biases)):
        energy = np.array([abs(biases[c, i]) + np.abs(weights[c, 4 * i : 4 * i + 4]).sum() for i in range(2)])
        np.testing.assert_allclose(found, energy**2 / (energy**2).sum(), atol=1e-12)


def test_suspects_have_half_as_many_large_energies_as_the_median_client():
    energies = np.full((7, 10), 0.1)
    energies[0] = np.eye(10)[0] * 0.91 + 0.01  # one class
    energies[1, :5] = 1e-4  # five classes
    energies[2, :4] = 1e-4  # six
    assert few_classes(energies).tolist() == [True, True, *[False] * 5]


def test_one_huge_client_does_not_hide_the_others():
    """Its squares are 1e280 times theirs."""
    round_ = a_round()
    rows = np.concatenate([round_.updates, [1e140 * round_.updates[0]]])
    assert kept(Round(rows, layers=LAYERS)) == list(range(4, 14))
    distances = cosine_rows(rows[:, 64:])
    np.testing.assert_allclose(distances[:14, :14], cosine_rows(rows[:14, 64:]), atol=1e-12)
    assert distances[0, 14] == pytest.approx(0, abs=1e-12)


def test_clients_that_trained_on_one_class_are_dropped():
    assert kept(a_round()) == list(range(4, 14))


def test_a_cluster_with_few_suspects_is_kept_whole():
    round_ = a_round(malicious=1, honest=12)
    sight = DeepSight()
    scores = sight.score(None, round_)
    assert scores.values[0] == 1  # outside all clusters: judged by itself
    assert sight.select(scores).tolist() == list(range(1, 13))


def test_outputs_on_noise_can_join_clients_that_the_others_separate():
    """The same last layers, but with outputs that put everyone into one cluster, and then into two."""
    asked = []

    def outputs(model, seed, count):
        asked.append((seed, count))
        return np.full((count, 10), 0.1 + 1e-3 * float(model[0]))

    assert kept(a_round(outputs=outputs), samples=7) == list(range(4, 14))
    assert set(asked) == {(seed, 7) for seed in (0, 1, 2)}


def test_ratios_are_means_over_the_inputs_of_client_over_global_probability():
    table = {0.0: np.array([[0.5, 0.5], [0.8, 0.2]]), 1.0: np.array([[0.25, 0.75], [0.4, 0.6]])}
    round_ = Round(np.array([[1.0]]), outputs=lambda model, seed, count: table[float(model[0])])
    np.testing.assert_allclose(likelier(round_, np.array([0]), 0, 2), [[0.5, 2.25]])


@pytest.mark.parametrize(
    ("layers", "weights", "biases"),
    [({"w": 12, "b": 3}, 12, 3), ({"body": 2, "w": 12, "b": 3}, 12, 3), ({"w": 12, "s": 5}, 0, 5), ({}, 0, 17)],
)
def test_the_last_layer_is_weights_and_biases_or_biases_alone(layers, weights, biases):
    d = sum(layers.values()) or 17
    rows, g = np.random.default_rng(0).normal(size=(5, d)), np.arange(float(d))
    found = last_layer_steps(Round(rows, global_model=g, layers=layers), np.arange(5)[::-1])
    steps = (rows - g)[::-1]
    np.testing.assert_array_equal(found[0], steps[:, d - weights - biases : d - biases])
    np.testing.assert_array_equal(found[1], steps[:, d - biases :])


def test_the_simulator_tries_models_out_on_random_inputs():
    simulation = Simulation(make_setting(num_clients=4, rounds=1))
    outputs = simulation.world.outputs(simulation.buffers)
    first = outputs(simulation.model, 0, 30)
    assert first.shape == (30, 10)
    np.testing.assert_allclose(first.sum(axis=1), 1)
    x = torch.from_numpy(np.random.default_rng(0).random((30, 1, 8, 8), dtype=np.float32))
    with torch.no_grad():
        expected = simulation.world.module(x).softmax(1).numpy()
    np.testing.assert_allclose(first, expected, atol=1e-6)
    assert not np.array_equal(first, outputs(simulation.model, 1, 30))


def test_clients_that_train_on_nothing_but_a_backdoor_are_found():
    """They train with SGD: Adam's steps are about as long for all classes, which hides the energies."""
    fields = {"partition": Iid(), "training": Training("sgd", 0.05), "num_clients": 20, "rounds": 4}
    poison, sight = Backdoor(share=1.0, boost=1.0), DeepSight(samples=200)
    setting = make_setting(**fields, data_poison=poison, fraction=0.2, rotating=False, filter=sight)
    records = list(Simulation(setting).run())
    assert sum(int((r.malicious & r.kept).sum()) for r in records) == 0
    assert np.mean([r.kept[~r.malicious].mean() for r in records]) > 0.9
