from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders import Defense, Flanders
from flanders.checks import InputError
from flanders.filters.fingerprint.explanation import name_layers
from flanders.linalg.distances import squares_by_layer
from flanders.round import Round

LAYERS = {"a": 3, "b": 1000, "c": 1}


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_deviations_are_summed_layer_by_layer(library, rng, monkeypatch):
    monkeypatch.setattr("flanders.linalg.distances.HOST_BLOCK", 600)  # so that layers are cut
    updates, own, model, crowd = (rng.normal(size=shape) for shape in ((7, 1004), (7, 1004), 1004, (1, 1004)))
    scale, a, b = rng.normal(size=(3, 7))
    left = scale[:, None] * (updates - model) - a[:, None] * crowd - b[:, None] * own
    expected = np.stack([(left[:, cut] ** 2).sum(axis=1) for cut in np.split(np.arange(1004), [3, 1003])], axis=1)
    chosen = np.array([5, 0, 6])
    parts = [(a[chosen], library(crowd), np.zeros(3, dtype=int)), (b[chosen], library(own), chosen)]
    found = squares_by_layer(library(updates), chosen, library(model), scale[chosen], parts, LAYERS)
    np.testing.assert_allclose(found, expected[chosen])


def test_only_layers_with_an_unusual_part_of_the_deviation_are_named():
    usual = np.array([[90.0, 5.0, 5.0], [80.0, 10.0, 10.0], [1.0, 98.0, 1.0]])
    squares = np.array([[90.0, 5.0, 5.0], [10.0, 50.0, 40.0], [70.0, 30.0, 0.0], [0.0, 0.0, 0.0]])
    assert name_layers(squares, usual, list(LAYERS)) == [
        "",
        "50% of it in b (usually 10%), 40% of it in c (usually 5%)",
        "30% of it in b (usually 10%)",
        "",
    ]


def test_layers_must_name_all_parameters():
    with pytest.raises(InputError, match="all 4 parameters of a row, but their sizes add up to 3"):
        Round(np.ones((2, 4)), layers={"w": 2, "b": 1})
    with pytest.raises(InputError, match="all 4 parameters"):
        Defense(Flanders(keep=1))(np.ones((2, 4)), layers={"w": 2, "b": 1})


def test_a_part_of_a_round_has_its_layers():
    assert Round(np.ones((2, 4)), layers={"w": 4}).take([1]).layers == {"w": 4}
