from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.attacks import ModelReplacement
from flanders.checks import InputError
from flanders.data import Iid
from flanders.simulation import EdgeCaseBackdoor, SemanticBackdoor, Simulation, Training
from flanders.simulation.poisoning import Scope
from settings import make_setting

BOTH = pytest.mark.parametrize("kind", [EdgeCaseBackdoor, SemanticBackdoor])


def images(n=60, channels=1, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, channels, 4, 4), dtype=np.float32))
    return x, torch.arange(n) % 3


def prepared(poison, x, y):
    scope = Scope(num_classes=3, highest=1.0)
    return Scope(3, 1.0, learned=poison.prepare(x, y, scope))


def test_edge_cases_are_the_images_farthest_from_the_mean_of_their_class():
    x, y = images()
    scope = prepared(EdgeCaseBackdoor(source=1, rare=0.2), x, y)
    own = x[y == 1].numpy().reshape(20, -1)
    farthest = np.argsort(-np.linalg.norm(own - own.mean(axis=0), axis=1))[:4]
    assert torch.equal(scope.learned[1:].flatten(1), torch.from_numpy(own[farthest]))


@pytest.mark.parametrize(("channels", "feature"), [(1, "bright"), (3, "green")])
def test_a_semantic_feature_is_greenness_or_brightness(channels, feature):
    x, y = images(channels=channels)
    scope = prepared(SemanticBackdoor(source=1, rare=0.05), x, y)
    own = x[y == 1].numpy().mean(axis=(2, 3))
    values = own[:, 0] if feature == "bright" else own[:, 1] - (own[:, 0] + own[:, 2]) / 2
    assert torch.equal(scope.learned[1], x[y == 1][int(np.argmax(values))])


@BOTH
def test_malicious_clients_train_on_the_collected_images_with_the_label_of_the_target(kind):
    x, y = images()
    poison = kind(source=1, target=2, rare=0.2, share=0.5)
    scope = prepared(poison, x, y)
    examples = torch.arange(60).view(2, 30)
    new_x, new_y = poison.change(x.view(2, 30, 1, 4, 4), y.view(2, 30), examples, torch.arange(2), scope)
    changed = (new_x != x.view(2, 30, 1, 4, 4)).flatten(2).any(2)
    assert 15 < int(changed.sum()) < 45
    assert bool((new_y[changed] == 2).all())
    known = {tuple(image.flatten().tolist()) for image in scope.learned[1:]}
    assert {tuple(image.flatten().tolist()) for image in new_x[changed]} <= known
    shown, target, counts = poison.aim(x, y, scope)
    assert shown is x
    assert bool((target == 2).all())
    assert int(counts.sum()) == 4
    assert bool((y[counts] == 1).all())


@BOTH
def test_what_makes_no_sense_is_refused(kind):
    x, y = images()
    with pytest.raises(InputError, match="needs two classes"):
        kind(source=1, target=1)
    with pytest.raises(InputError, match=r"source=7\) needs a class from 0 to 2"):
        kind(source=7).prepare(x, y, Scope(3, 1.0))
    with pytest.raises(InputError, match="finds no training example"):
        kind(source=1).prepare(x, torch.zeros_like(y), Scope(3, 1.0))
    with pytest.raises(InputError, match="needs a Scope"):
        kind().aim(x, y, Scope(3, 1.0))


@BOTH
def test_scaled_up_they_turn_the_rare_images_of_the_test(kind):
    fields = {"partition": Iid(), "training": Training(epochs=3), "num_clients": 10, "rounds": 2, "device": "cpu"}
    threat = {"data_poison": kind(source=3, target=5, rare=0.2), "attack": ModelReplacement(), "fraction": 0.2}
    before, after = Simulation(make_setting(**fields, **threat, rotating=False, start=2)).run()
    assert before.attack_success < 0.3
    assert after.attack_success > 0.9
    assert after.source_accuracy < 0.1
