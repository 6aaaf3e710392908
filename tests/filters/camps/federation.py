"""A federation made of formulas: what its clients learn, send and forge."""

from __future__ import annotations

import numpy as np

D = 3000
LAYERS = {"1.weight": 2900, "1.bias": 20, "2.weight": 70, "2.bias": 10}


def world(seed=0):
    """What all clients learn, what the ten classes add, and the few directions that their noise has."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=D), rng.normal(size=(10, D)), rng.normal(size=(12, D)) / 4


def honest(m, seed, alpha=0.5):
    """Displacements of clients that hold classes in uneven shares."""
    common, classes, noise = world()
    rng = np.random.default_rng(seed)
    shares = np.random.default_rng(99).dirichlet(np.full(10, alpha), size=m)
    return common + shares @ classes + rng.normal(size=(m, 12)) @ noise


def towards_the_common(model):
    """Losses of fifty examples that fall along what all clients learn."""
    away = np.random.default_rng(1).normal(size=(50, D)) * 0.2
    target = world()[0]
    return ((model + away - target) ** 2).sum(axis=1) / D


def mask(m, rows):
    """The rows of a camp as a mask."""
    return np.isin(np.arange(m), rows)


def turned(m, b, seed):
    """Displacements of clients with even data, the first b of them turned round."""
    updates = honest(m, seed, alpha=5.0)
    updates[:b] *= -1
    return updates


def unit(updates):
    """The updates, scaled to the length 1."""
    return updates / np.linalg.norm(updates, axis=-1, keepdims=True)


def cosines_of(updates):
    """The cosines of the updates with each other."""
    return unit(updates) @ unit(updates).T
