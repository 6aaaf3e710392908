"""Every entry of every registry on CUDA tensors, CuPy and JAX arrays, against NumPy; each where it is installed.

JAX runs with its default settings, without float64, so its tolerance is that of float32.
"""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import pytest
import torch

from flanders import AGGREGATORS, ATTACKS, FILTERS, PREAGGREGATORS, Round, Sample, Sketch, View
from flanders.arrays import like, to_numpy
from flanders.attacks import disguise, idle, noise
from own_examples import OwnDefense

M, B, D = 12, 2, 3000


def installed(name, module):
    """Skip where a library is missing."""
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{name} is not installed")


def asarray(module):
    return lambda a: importlib.import_module(module).asarray(a)


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
on_every_accelerator = pytest.mark.parametrize(
    ("convert", "tolerance"),
    [
        pytest.param(lambda a: torch.asarray(a, device="cuda"), 1e-4, id="cuda", marks=gpu),
        pytest.param(asarray("cupy"), 1e-4, id="cupy", marks=[gpu, installed("CuPy", "cupy")]),
        pytest.param(asarray("jax.numpy"), 5e-3, id="jax", marks=installed("JAX", "jax")),
    ],
)


@pytest.fixture
def models():
    rng = np.random.default_rng(20260101)
    g = rng.normal(size=D).astype(np.float32)
    updates = (g + rng.normal(size=(M, D))).astype(np.float32)
    updates[0] += 3
    return g, updates


def as_round(updates, g, convert):
    root = convert((updates[5] - g).astype(np.float32))
    return Round(convert(updates), tuple(range(M)), np.arange(1.0, M + 1), convert(g), root)


def close(found, expected, tolerance):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(to_numpy(found), expected, atol=tolerance * scale)


@on_every_accelerator
@pytest.mark.parametrize("name", list(AGGREGATORS))
def test_aggregators_agree_with_numpy(name, convert, tolerance, models):
    g, updates = models
    has = AGGREGATORS.describe(name).parameters
    parameters = {"num_malicious": B} if "num_malicious" in has else {"noise": 0.0} if "noise" in has else {}
    for extra in [{}, {"weighted": True}] if "weighted" in AGGREGATORS.describe(name).parameters else [{}]:
        aggregator = AGGREGATORS.make(name, **parameters, **extra)
        expected = aggregator.aggregate(as_round(updates, g, np.asarray), np.random.default_rng(0))
        found = aggregator.aggregate(as_round(updates, g, convert), np.random.default_rng(0))
        assert type(found) is type(convert(g))
        assert getattr(found, "device", None) == getattr(convert(g), "device", None)
        close(found, expected, tolerance)


@gpu
@pytest.mark.parametrize("name", ["fedavg", "krum", "multi-krum", "geometric-median", "nnm"])
def test_a_call_waits_for_the_gpu_only_once(name, models):
    g, updates = (torch.asarray(a, device="cuda") for a in models)
    called = (AGGREGATORS if name in AGGREGATORS else PREAGGREGATORS).make(name)
    called(updates, global_model=g)  # compiles the kernels
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            called(updates, global_model=g)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert sum("called a synchronizing CUDA operation" in str(found.message) for found in caught) <= 1


@on_every_accelerator
@pytest.mark.parametrize("name", list(PREAGGREGATORS))
def test_preaggregators_agree_with_numpy(name, convert, tolerance, models):
    g, updates = models
    pre = PREAGGREGATORS.make(name)
    expected = pre.prepare(as_round(updates, g, np.asarray), np.random.default_rng(0)).updates
    found = pre.prepare(as_round(updates, g, convert), np.random.default_rng(0)).updates
    assert type(found) is type(convert(g))
    close(found, expected, tolerance)


@on_every_accelerator
@pytest.mark.parametrize("name", list(ATTACKS))
def test_attacks_agree_with_numpy(name, convert, tolerance, models, monkeypatch):
    for module in (noise, disguise, idle):  # a GPU would draw other numbers
        monkeypatch.setattr(
            module, "normals_like", lambda array, rng: like(rng.standard_normal(array.shape), array)
        )
    g, updates = models
    parameters = {"mar": {"omniscient": True}}.get(name, {})
    attack = ATTACKS.make(name, **parameters)
    results = []
    for make in (np.asarray, convert):
        memory = None
        for t in range(3):
            view = View(
                make(updates[:B] * np.float32(0.9**t)),
                make(g),
                num_clients=M,
                benign=make(updates[B:] * np.float32(0.9**t)),
                benign_clients=tuple(range(B, M)),
                memory=memory,
                server_columns=np.arange(0, D, 7),
                last_layer=slice(D - 50, D),
            )
            rows = attack(view, np.random.default_rng(t))
            memory = attack.remember(view, rows)
        results.append(rows)
    assert type(results[1]) is type(convert(g))
    close(results[1], results[0], tolerance)


@on_every_accelerator
@pytest.mark.parametrize(
    ("name", "parameters"),
    [(name, {"keep": 10} if name.startswith("flanders") else {}) for name in FILTERS]
    + [
        ("flanders", p)
        for p in (
            {"keep": 10, "look": Sample(200)},
            {"keep": 10, "look": Sample(3)},
            {"keep": 10, "look": Sketch(512)},
            {"keep": 10, "distance": "l1"},
            {"threshold": 0.5},
        )
    ],
    ids=str,
)
def test_filters_decide_as_on_numpy(name, parameters, convert, tolerance, models):
    _, updates = models
    noise = np.random.default_rng(1)
    ours, theirs = (OwnDefense(FILTERS.make(name, **parameters), seed=0) for _ in range(2))
    for t in range(5):
        now = updates * 0.9**t + 0.1 * noise.normal(size=updates.shape)
        if t == 4:
            now[:2] += 2 * noise.normal(size=(2, D))
        now = now.astype(np.float32)
        expected, found = ours(now), theirs(convert(now))
        assert found.dropped == expected.dropped
        assert type(found.model) is type(convert(now))
        close(found.model, expected.model, tolerance)
