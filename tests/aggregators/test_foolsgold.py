from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, InputError, KeepAll, Round, load_state, save_state
from flanders.aggregators import FoolsGold, Nnm
from flanders.aggregators.foolsgold import foolsgold_weights
from flanders.simulation import Simulation
from settings import make_setting

RNG = np.random.default_rng(0)


def rounds(count=4, m=8, d=20, sybils=3):
    """Honest clients each have a direction of their own; sybils share one, and hide it in noise."""
    rng = np.random.default_rng(3)
    honest, goal = rng.normal(size=(m - sybils, d)), rng.normal(size=d)
    for _ in range(count):
        steps = np.concatenate([np.tile(goal, (sybils, 1)), honest])
        yield steps + 1.5 * rng.normal(size=(m, d))


def defence(aggregator):
    return Defense(KeepAll(), aggregator, seed=0)


def test_sybils_that_hide_in_noise_are_found_by_the_sum_of_their_updates():
    rng, memory, aggregator = np.random.default_rng(0), None, FoolsGold()
    for steps in rounds(count=30):
        _, memory = aggregator.step(memory, Round(steps), rng)
        alone = foolsgold_weights(np.corrcoef(steps))
    sums = np.stack(list(memory.sums.values()))
    unit = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    weights = foolsgold_weights(unit @ unit.T)
    assert weights[:3].max() == 0.0
    assert weights[3:].min() > 0.5
    assert alone[:3].max() > 0.0


def test_a_defence_remembers_for_the_aggregator_and_saves_it(tmp_path):
    whole, first = defence(FoolsGold()), defence(FoolsGold())
    several = list(rounds())
    models = [whole(steps, global_model=np.zeros(20)).model for steps in several]
    for steps in several[:2]:
        first(steps, global_model=np.zeros(20))
    first.save(tmp_path / "memory.npz")
    second = defence(FoolsGold())
    second.load(tmp_path / "memory.npz")
    rest = [second(steps, global_model=np.zeros(20)).model for steps in several[2:]]
    assert np.array_equal(rest, models[2:])
    forgetful = defence(FoolsGold())(several[3], global_model=np.zeros(20)).model
    assert not np.allclose(forgetful, models[3])


def test_a_pre_aggregator_in_front_keeps_the_memory():
    chained = defence(Nnm(num_malicious=1) | FoolsGold())
    for steps in rounds():
        chained(steps, global_model=np.zeros(20))
    assert len(chained.memory.aggregation["Nnm+FoolsGold"].sums) == 8


def test_only_the_last_layer_counts_if_the_round_names_its_layers():
    rows = RNG.normal(size=(5, 10))
    rows[:2, 6:] = rows[0, 6:]
    layers = {"body.weight": 6, "head.weight": 3, "head.bias": 1}
    rng = np.random.default_rng(0)
    _, memory = FoolsGold().step(None, Round(rows, layers=layers), rng)
    assert memory.sums[0].shape == (4,)
    model = FoolsGold().aggregate(Round(rows, layers=layers), rng)
    others = FoolsGold().aggregate(Round(rows[2:], layers=layers), rng)
    np.testing.assert_allclose(model, others, atol=0.2)
    assert not np.allclose(model, FoolsGold(where="all").aggregate(Round(rows, layers=layers), rng))


def test_if_everyone_agrees_the_global_model_stays():
    g = np.full(3, 7.0)
    assert FoolsGold()(np.ones((4, 3)), global_model=g).tolist() == g.tolist()


def test_a_memory_of_another_aggregator_is_refused():
    with pytest.raises(InputError, match=r"FoolsGold needs the FoolsGoldMemory.*Got dict instead"):
        FoolsGold().step({"sums": 1}, Round(np.eye(3)), np.random.default_rng(0))


def test_a_simulation_that_is_saved_and_continued_remembers_it_too(tmp_path):
    setting = make_setting(num_clients=4, rounds=4, aggregator=FoolsGold(), device="cpu")
    whole, first, second = (Simulation(setting) for _ in range(3))
    expected = [record.loss for record in whole.run()]
    for _ in range(2):
        first.step()
    save_state(tmp_path / "state.npz", first.state_dict())
    second.load_state_dict(load_state(tmp_path / "state.npz", like=second.like))
    assert [record.loss for record in second.run()] == expected[2:]


def test_made_up_client_ids_do_not_fill_the_memory():
    memory, aggregator, steps = None, FoolsGold(), next(rounds())
    for number in range(30):
        _, memory = aggregator.step(memory, Round(steps, tuple(f"{number}-{i}" for i in range(8))), RNG)
    assert len(memory.sums) == 100
    assert list(memory.sums)[-1] == "29-7"
