"""Distances measured a block of columns at a time, against whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.linalg import blocks
from flanders.linalg.distances import distance_to_sums, lp_norms, squares_by_layer

LAYERS = {"a": 3, "b": 1000, "c": 1}


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_deviations_are_summed_layer_by_layer(library, rng, monkeypatch):
    monkeypatch.setattr(blocks, "HOST_BLOCK", 600)  # so that layers are cut
    updates, own, model, crowd = (rng.normal(size=shape) for shape in ((7, 1004), (7, 1004), 1004, (1, 1004)))
    scale, a, b = rng.normal(size=(3, 7))
    left = scale[:, None] * (updates - model) - a[:, None] * crowd - b[:, None] * own
    expected = np.stack([(left[:, cut] ** 2).sum(axis=1) for cut in np.split(np.arange(1004), [3, 1003])], axis=1)
    chosen = np.array([5, 0, 6])
    parts = [(a[chosen], library(crowd), np.zeros(3, dtype=int)), (b[chosen], library(own), chosen)]
    found = squares_by_layer(library(updates), chosen, library(model), scale[chosen], parts, LAYERS)
    np.testing.assert_allclose(found, expected[chosen])


@pytest.mark.parametrize("distance", ["squared-l2", "l2", "cosine", "l1", 0.5, 3.0])
@pytest.mark.parametrize("centred", [True, False])
def test_distances_to_sums_are_those_of_the_sums_written_out(rng, monkeypatch, convert, distance, centred):
    monkeypatch.setattr(blocks, "HOST_BLOCK", 64)
    updates, g = rng.normal(size=(4, 300)) + 2, rng.normal(size=300)
    pieces = [rng.normal(size=(k, 300)) for k in (3, 2)]
    factors, shift = rng.normal(size=(4, 5)), rng.normal(size=4)
    rows = np.concatenate(pieces) - (g if centred else 0)
    sums, sent = factors @ rows - shift[:, None] * g, updates - g
    here = convert(updates), convert(g), [convert(piece) for piece in pieces]
    found = distance_to_sums(*here, factors, shift, distance, centred=centred)
    if distance == "cosine":
        expected = 1 - (sent * sums).sum(axis=1) / np.linalg.norm(sent, axis=1) / np.linalg.norm(sums, axis=1)
    else:
        p = {"squared-l2": 2.0, "l2": 2.0, "l1": 1.0}.get(distance, distance)
        powers = (np.abs(sent - sums) ** p).sum(axis=1)
        expected = powers if distance == "squared-l2" else powers ** (1 / p)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_norms_neither_overflow_nor_vanish():
    blocks_ = [np.array([[1e200, 1e-200]]).T, np.array([[1e200, 1e-200]]).T]
    np.testing.assert_allclose(lp_norms(iter(blocks_), 2.0), np.sqrt(2) * np.array([1e200, 1e-200]))
