"""Where clients have one class each, their directions do not tell who is malicious."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, Guard
from flanders.filters.camps.classes import have_one_class_each
from flanders.round import Round

INPUTS = 20


def one_class_each(round_):
    return have_one_class_each(round_, np.ones(len(round_.clients), dtype=bool))


def layers(classes):
    return {"1.weight": 600, "1.bias": 30, "2.weight": INPUTS * classes, "2.bias": classes}


def federation(m, classes, own=1, seed=0):
    """Honest updates of clients that have `own` classes each: they raise these classes and lower the others."""
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(classes, INPUTS)))
    has = np.zeros((m, classes))
    for client in range(m):
        has[client, (client + np.arange(own)) % classes] = 1 / own
    raised = has - 1 / classes
    seen = has @ features
    last = np.concatenate([(raised[:, :, None] * seen[:, None, :]).reshape(m, -1), raised], axis=1)
    first = (raised @ rng.normal(size=(classes, 630))) + 0.3 * rng.normal(size=(m, 630))
    return np.hstack([first, last + 0.02 * rng.normal(size=last.shape)])


@pytest.mark.parametrize("classes", [1, 2, 3, 6])
def test_clients_with_one_class_each_are_recognised(classes):
    assert one_class_each(Round(federation(24, classes), layers=layers(classes)))


def test_they_are_not_looked_for_where_there_are_many_classes_or_no_names():
    assert not one_class_each(Round(federation(24, 10), layers=layers(10)))
    assert not one_class_each(Round(federation(24, 3)))
    assert not one_class_each(Round(federation(24, 3), layers={"all": 693}))


def test_clients_with_several_classes_are_not_taken_for_those():
    assert not one_class_each(Round(federation(24, 6, own=3), layers=layers(6)))


@pytest.mark.parametrize("pretence", ["one class", "nothing"])
def test_a_minority_cannot_make_it_seem_so(pretence):
    updates = federation(24, 6, own=3)
    updates[:9, -6:] = federation(9, 6)[:, -6:] if pretence == "one class" else 0.0
    assert not one_class_each(Round(updates, layers=layers(6)))


def test_biases_that_are_not_at_the_end_are_not_those_of_the_classes():
    updates = np.hstack([federation(24, 3), np.ones((24, 50))])
    assert not one_class_each(Round(updates, layers={**layers(3), "head.weight": 50}))


def test_with_two_outputs_it_is_always_so():
    assert one_class_each(Round(np.zeros((24, 693 - 21)), layers=layers(2)))  # the biases have not changed


def test_a_quarter_of_the_clients_cannot_hide_it():
    updates = federation(24, 4)
    updates[:6] *= -1
    assert one_class_each(Round(updates, layers=layers(4)))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_clients_of_a_rare_class_are_kept(classes, caplog):
    updates = federation(48, classes)[[*range(0, 48, classes), 1, 1 + classes, 1 + 2 * classes, 1 + 3 * classes]]
    updates += 0.02 * np.random.default_rng(1).normal(size=updates.shape)
    defense = Defense(Guard())
    for _ in range(3):
        outcome = defense(updates, global_model=np.zeros(updates.shape[1]), layers=layers(classes))
        assert outcome.dropped == ()
    assert caplog.text.count("mostly one class each") == 1  # it is said once, in the first round


def test_with_four_classes_the_first_layers_still_tell():
    updates = federation(24, 4)
    updates[:, :630] += np.random.default_rng(3).normal(size=630)  # what all classes share
    updates[:3] *= -1
    defense = Defense(Guard())
    for _ in range(3):
        outcome = defense(updates, global_model=np.zeros(updates.shape[1]), layers=layers(4))
    assert outcome.dropped == (0, 1, 2)


def test_trusted_clients_still_tell():
    updates = federation(48, 2)[[*range(0, 48, 2), 1, 3, 5, 7]]
    updates += 0.02 * np.random.default_rng(1).normal(size=updates.shape)
    outcome = Defense(Guard(trusted=(0, 1)))(updates, global_model=np.zeros(updates.shape[1]), layers=layers(2))
    assert outcome.dropped == (24, 25, 26, 27)
