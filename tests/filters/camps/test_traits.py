"""The traits: one number for each client, for each part of the model."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import LAYERS, D, honest, world
from flanders.filters.camps.directions import Directions
from flanders.filters.camps.traits import (
    UNKNOWN,
    direction_traits,
    headings_among,
    length_trait,
    own_traits,
    parts_of,
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
    assert parts(layers).names == ("the whole model",)


@pytest.mark.parametrize(("layers", "size"), [(LAYERS, 80), ({"w1": D - 30, "b1": 20, "w2": 10}, 10)])
def test_the_last_layer_is_a_part_of_its_own(layers, size):
    found, updates = parts(layers), honest(12, 1)
    assert found.names == ("the whole model", "the last layer", "the first layers")
    assert np.allclose(found.products[1], gram(updates[:, -size:]))
    assert np.allclose(found.products[2], gram(updates[:, :-size]))


def test_directions_are_compared_in_each_part():
    step, updates = world()[0], honest(12, 1)
    found = parts(LAYERS, root=step, crowd=step)
    assert parts(LAYERS).rooted == parts(LAYERS).headings == ()
    last = updates[:, -80:] @ step[-80:] / np.linalg.norm(updates[:, -80:], axis=1) / np.linalg.norm(step[-80:])
    assert np.allclose(found.rooted[1], last)
    assert np.allclose(found.headings, found.rooted)


def test_a_client_has_no_part_in_the_direction_that_it_is_compared_with():
    found, updates, rows = parts(LAYERS), honest(12, 1), np.array([0, 2, 3, 7])
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    for part, columns in enumerate((slice(None), slice(-80, None), slice(0, -80))):
        for place, row in enumerate(rows):
            own, others = updates[row, columns], unit[rows[rows != row]][:, columns].sum(axis=0)
            expected = own @ others / np.linalg.norm(own) / np.linalg.norm(others)
            assert headings_among(found, rows)[part, place] == pytest.approx(expected)


def test_clients_with_nothing_in_common_have_no_common_course():
    updates = np.eye(12, D)
    found = parts_of(Round(updates), gram(updates), None)
    assert np.allclose(headings_among(found, np.arange(12)), 0.0)


def directions(rows=ALL, known=None, server=None):
    updates = honest(12, 1)
    looked_at = tuple(cosines_of(updates[:, columns]) for columns in (slice(0, -80), slice(-80, None)))
    names = ("the first layers", "the last layer")
    return direction_traits(names, looked_at, tuple(range(12)), known or Directions(), rows, server)


def test_clients_that_are_left_out_have_no_number():
    rows = ALL.copy()
    rows[:2] = False
    for trait in directions(rows):
        assert np.array_equal(np.isnan(trait.values).reshape(12, -1).any(axis=1), ~rows)
        assert trait.wrong == UNKNOWN


def test_the_servers_step_is_looked_at_together_with_the_directions():
    server = np.linspace(0.0, 1.0, 24).reshape(12, 2)
    traits = {trait.name: trait.values for trait in directions(server=server)}
    assert np.array_equal(traits["direction with the server's"], np.hstack([traits["direction"], server]))
    assert len(traits) == len(directions()) + 1


def test_lengths_are_logarithms():
    assert np.allclose(length_trait(np.array([1.0, np.e])).values, [0.0, 1.0])


def test_a_client_without_a_past_has_no_own_traits():
    round_ = Round(honest(12, 1), layers=LAYERS)
    unknown = np.full(12, np.nan)
    found = own_traits(ask_questions(Signatures(), round_, 1), 0.0, (unknown,) * 3, unknown, parts(LAYERS).names)
    names = [
        "fingerprint",
        "novelty",
        "own length",
        "own course in the whole model",
        "own course in the last layer",
    ]
    assert [trait.name for trait in found] == names
    assert all(np.isnan(trait.values).all() for trait in found)
