"""The traits: one number for each client, for each part of the model."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import LAYERS, D, honest, world
from flanders.filters.camps.traits import (
    LOW,
    UNKNOWN,
    alike_traits,
    cosines_with_middle,
    length_trait,
    own_traits,
    parts_of,
    vote_traits,
)
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import ask_questions
from flanders.linalg.products import gram
from flanders.round import Round

ALL = np.ones(12, dtype=bool)


def parts(layers=None, root=None, crowd=None):
    round_ = Round(honest(12, 1), layers=layers, root=root)
    return parts_of(round_, gram(round_.updates), crowd)


def cosines_of(updates):
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    return unit @ unit.T


@pytest.mark.parametrize("layers", [None, {"only.weight": D - 10, "only.bias": 10}, {"all": D}])
def test_a_model_of_one_layer_is_one_part(layers):
    assert parts(layers).names == ("the model",)


@pytest.mark.parametrize(("layers", "size"), [(LAYERS, 80), ({"w1": D - 30, "b1": 20, "w2": 10}, 10)])
def test_the_last_layer_is_a_part_of_its_own(layers, size):
    found, updates = parts(layers), honest(12, 1)
    assert found.names == ("the model", "the last layer", "the first layers")
    assert np.allclose(found.products[1], gram(updates[:, -size:]))
    assert np.allclose(found.products[2], gram(updates[:, :-size]))


def test_directions_are_compared_in_each_part():
    step, updates = world()[0], honest(12, 1)
    found = parts(LAYERS, root=step, crowd=step)
    assert parts(LAYERS).rooted == parts(LAYERS).headings == ()
    last = updates[:, -80:] @ step[-80:] / np.linalg.norm(updates[:, -80:], axis=1) / np.linalg.norm(step[-80:])
    assert np.allclose(found.rooted[1], last)
    assert np.allclose(found.headings, found.rooted)


def test_the_middle_stays_with_the_larger_half():
    updates = honest(20, 1, alpha=5.0)
    updates[:9] *= -1
    found = cosines_with_middle(cosines_of(updates))
    assert (found[:9] < -0.3).all()
    assert (found[9:] > 0.3).all()


def test_clients_that_are_left_out_have_no_number():
    rows = ALL.copy()
    rows[:2] = False
    for trait in alike_traits(parts(LAYERS), rows):
        assert np.array_equal(np.isnan(trait.values), ~rows)
        assert trait.wrong == UNKNOWN


def test_there_is_no_vote_where_clients_have_nothing_in_common():
    noise = np.random.default_rng(0).normal(size=(12, D))
    assert vote_traits(cosines_of(noise), None, ALL) == []


def test_the_server_is_asked_only_if_the_clients_disagree():
    step = world()[0]
    for turned, names in ((0, ["votes"]), (4, ["votes", "trust of the server"])):
        updates = honest(12, 1, alpha=5.0)
        updates[:turned] *= -1
        server = updates @ step / np.linalg.norm(updates, axis=1) / np.linalg.norm(step)
        found = vote_traits(cosines_of(updates), server, ALL)
        assert [trait.name for trait in found] == names
    assert found[1].wrong == LOW
    assert np.array_equal(found[1].values < 0, np.arange(12) < 4)


def test_lengths_are_logarithms():
    assert np.allclose(length_trait(np.array([1.0, np.e])).values, [0.0, 1.0])


def test_a_client_without_a_past_has_no_own_traits():
    round_ = Round(honest(12, 1), layers=LAYERS)
    unknown = np.full(12, np.nan)
    found = own_traits(ask_questions(Signatures(), round_, 1), (unknown,) * 3, unknown, parts(LAYERS).names)
    names = ["fingerprint", "novelty", "own length", "own course in the model", "own course in the last layer"]
    assert [trait.name for trait in found] == names
    assert all(np.isnan(trait.values).all() for trait in found)
