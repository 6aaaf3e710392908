"""Measures how long it takes to train all clients of a round, with and without the kernels of this package.

    python benchmarks/training.py [--device cuda|cpu] [--models mobilenet cnn6] [--clients 100] [--examples 400]

How it measures
---------------
- The clients train on random images of CIFAR's shape, for one epoch with batches of 32 and SGD with momentum. With
  400 examples each, these are the 13 steps a round of the FLANDERS paper's CIFAR tables.
- Each model is trained in three ways: with PyTorch's operations alone, with the kernels, and with the kernels and
  TF32. The kernels and TF32 need an NVIDIA GPU.
- Five rounds are timed. The first two prepare and record the steps. The result is the median of the others.
- Memory is the most that PyTorch had allocated on the GPU at any time.
- Every round starts from the same model. `repeats` says whether all rounds gave the same bytes. `moved` is the
  distance of the trained models from those without the kernels, as a share of how far these moved. Through many
  layers of batch normalisation, rounding errors grow: with float32 alone this share is not small.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from flanders.models import MODELS, Layout
from flanders.simulation.training import stacked_blocks
from flanders.simulation.training.batches import ClientData
from flanders.simulation.training.options import Training
from flanders.simulation.training.trainer import Trainer

SHAPE, CLASSES = (3, 32, 32), 100
"""The shape of the images of CIFAR, and the number of classes of CIFAR-100."""
ROUNDS, WARM_UP = 5, 2
"""How many rounds are trained, and how many of them are not counted."""


class Way(NamedTuple):
    """A way to train."""

    name: str
    kernels: bool
    tf32: bool


WAYS = (Way("PyTorch's operations", False, False), Way("kernels", True, False), Way("kernels, TF32", True, True))


class Measured(NamedTuple):
    """What was measured of a model that was trained in one way."""

    seconds: float
    gigabytes: float
    repeats: bool
    updates: Tensor
    """How far each client's model has moved."""


def measure(name: str, way: Way, device: str, clients: int, examples: int) -> Measured:
    """Train a model in one way."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((clients * examples, *SHAPE), dtype=np.float32)).to(device)
    y = torch.from_numpy(rng.integers(0, CLASSES, clients * examples)).to(device)
    data = ClientData.of(x, y, np.split(np.arange(clients * examples), clients))
    torch.manual_seed(0)
    module = MODELS.make(name).build(SHAPE, CLASSES).to(device)
    model, buffers = Layout.of(module).flatten(module), {n: b.clone() for n, b in module.named_buffers()}
    available, stacked_blocks.HAS_KERNELS = stacked_blocks.HAS_KERNELS, stacked_blocks.HAS_KERNELS and way.kernels
    seconds, repeats = [], True
    try:
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer = Trainer(module, data, Training("sgd", 0.01, momentum=0.9, shuffle=False), tf32=way.tf32)
        first = trainer.train(model, buffers, range(clients), seed=1).updates
        for _ in range(ROUNDS - 1):
            started = _now(device)
            found = trainer.train(model, buffers, range(clients), seed=1).updates
            seconds.append(_now(device) - started)
            repeats &= torch.equal(first, found)
    finally:
        stacked_blocks.HAS_KERNELS = available
    memory = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0
    return Measured(statistics.median(seconds[WARM_UP - 1 :]), memory, repeats, (first - model).cpu())


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each model in each way, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=devices, default=devices[-1])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["mobilenet", "cnn6"], metavar="MODEL")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--examples", type=int, default=400)
    options = parser.parse_args(arguments)
    print(f"{'model':<20} {'way':<22} {'ms a round':>10} {'GB':>6} {'repeats':>8} {'moved':>9}")
    for name in options.models:
        plain: Tensor | None = None
        for way in WAYS if options.device == "cuda" else WAYS[:1]:
            found = measure(name, way, options.device, options.clients, options.examples)
            plain = found.updates if plain is None else plain
            moved = float((found.updates - plain).norm() / plain.norm())
            print(
                f"{name:<20} {way.name:<22} {1000 * found.seconds:>10.1f} {found.gigabytes:>6.1f} "
                f"{found.repeats!s:>8} {moved:>9.1e}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
