"""Divide and conquer as an aggregation rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.rule import Rule
from flanders.geometry import copied, mean
from flanders.spectral import divide_and_conquer
from flanders.types import Array, InputError, Round, check_number, resolve_count


@dataclass(frozen=True)
class DnC(Rule):
    """Average the models that no spectral test finds to be outliers (divide and conquer).

    Each of `iterations` tests looks at `sample` random parameters (None: at all of them, once)
    and drops the `filtering_fraction * b` models farthest along the main direction of spread.

    Examples
    --------
    >>> DnC(num_malicious=1, sample=None)(np.array([[1., 0.], [1.2, 0.], [0.8, 0.], [9., 0.]]))
    array([1., 0.])

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    num_malicious: float = 0.2
    iterations: int = 5
    sample: int | None = 500
    filtering_fraction: float = 1.0
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("DnC", "num_malicious", self.num_malicious, 0)
        check_number("DnC", "iterations", self.iterations, 1, whole=True)
        check_number("DnC", "filtering_fraction", self.filtering_fraction, 0)
        if self.sample is not None:
            check_number("DnC", "sample", self.sample, 1, whole=True)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the models that are left, or the global model if none is."""
        m = round_.updates.shape[0]
        dropped = int(self.filtering_fraction * resolve_count(self.num_malicious, m) + 1e-9)
        if dropped >= m:
            raise InputError(
                f"DnC(num_malicious={self.num_malicious}, filtering_fraction={self.filtering_fraction}) would "
                f"drop {dropped} of {m} updates. Lower either, or keep more clients in the filter."
            )
        scores = divide_and_conquer(round_.updates, dropped, self.iterations, self.sample, rng)
        kept = np.where(scores <= 1.0, round_.weights if self.weighted else 1.0, 0.0)
        return mean(round_.updates, kept) if kept.sum() > 0 else copied(round_.global_model)
