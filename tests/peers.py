"""Other libraries' versions of our aggregators, callable on plain `(m, d)` arrays.

Golden tests import from here: what a peer needs to run at all stays in this file.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np


def byzfl(module: str) -> Any:
    """Import `byzfl.<module>`, e.g. "aggregators.aggregators", without running ByzFL's own `__init__`.

    That one imports its training framework, and with it torchvision, which no test needs.
    """
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")
        assert spec is not None, "byzfl is not installed: pip install -e '.[dev]'"
        sys.modules["byzfl"] = importlib.util.module_from_spec(spec)  # made, and not executed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"byzfl.{module}")


def flower(module: str = "serverapp.strategy") -> Any:
    """Import `flwr.<module>`; its own imports raise deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"flwr.{module}")


@dataclass
class Reply:
    """What a Flower strategy reads of a client's message."""

    content: Any

    def has_error(self) -> bool:
        return False


def flower_replies(updates: np.ndarray, weights: Any = None) -> list[Reply]:
    """Pack each row as a client's reply, cut into two arrays as a model of two layers is."""
    app = flower("app")
    cut = updates.shape[1] // 2
    return [
        Reply(
            app.RecordDict(
                {
                    "arrays": app.ArrayRecord([row[:cut].copy(), row[cut:].copy()]),
                    "metrics": app.MetricRecord({"num-examples": float(weight)}),
                }
            )
        )
        for row, weight in zip(updates, np.ones(len(updates)) if weights is None else weights, strict=True)
    ]


def flower_model(strategy: Any, updates: np.ndarray, weights: Any = None) -> np.ndarray | None:
    """Return what a Flower strategy makes of these rows, as one row, or None where it returns none."""
    arrays, _ = strategy.aggregate_train(1, flower_replies(updates, weights))
    return None if arrays is None else np.concatenate(arrays.to_numpy_ndarrays())
