"""Directions in which the updates spread most: principal components, and outliers along the first (DnC)."""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import FloatMatrix, FloatVector, index_like
from flanders.checks import InputError, check_number, resolve_count
from flanders.linalg.products import gram
from flanders.round import Round


@dataclass(frozen=True)
class DivideAndConquer:
    """The tests of divide and conquer. The aggregator `DnC` and the filter `DnCFilter` share them.

    `caller` is the name of the class to which the user passed these parameters. Error messages show it.

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021, Algorithm 2.
    """

    caller: str
    num_malicious: float
    iterations: int
    sample: int | None
    filtering_fraction: float

    def __post_init__(self) -> None:
        check_number(self.caller, "num_malicious", self.num_malicious, 0)
        check_number(self.caller, "iterations", self.iterations, 1, whole=True)
        check_number(self.caller, "filtering_fraction", self.filtering_fraction, 0)
        if self.sample is not None:
            check_number(self.caller, "sample", self.sample, 1, whole=True)

    def scores(self, round_: Round, rng: np.random.Generator) -> FloatVector:
        """Return the largest outlier score of each row over all iterations. An outlier has a score above 1.

        Each iteration samples parameters, centres the rows, and projects them on the top singular vector. It drops
        the rows with the largest squared projections. The cut lies halfway between the last row that it keeps and
        the first that it drops. The score is the squared projection, divided by the cut. So a score of at most 1
        means that all iterations keep the row. In a tie, the row with the lower client id is kept.
        """
        m, d = round_.updates.shape
        num_dropped = self._num_dropped(m)
        updates, order = round_.updates, round_.by_client()
        xp = array_api_compat.array_namespace(updates)
        worst = np.zeros(m)
        whole = gram(updates, updates[0, :]) if self.sample is None or self.sample >= d else None
        for _ in range(1 if whole is not None else self.iterations):
            if whole is not None:
                products = whole
            else:
                columns = np.sort(rng.choice(d, size=self.sample, replace=False))
                part = xp.take(updates, index_like(columns, updates), axis=1)
                products = gram(part, part[0, :])
            # The inner products of the rows after their mean was subtracted.
            centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
            values, vectors = np.linalg.eigh(centred)
            share = np.round(vectors[order, -1] ** 2, 12)  # rounded, so that rounding errors do not break ties
            relative = relative_to_cut(np.maximum(values[-1], 0.0) * share, num_dropped)
            worst[order] = np.maximum(worst[order], relative)
        return worst

    def _num_dropped(self, m: int) -> int:
        dropped = int(self.filtering_fraction * resolve_count(self.num_malicious, m) + 1e-9)
        if dropped >= m:
            raise InputError(
                f"{self.caller}(num_malicious={self.num_malicious}, filtering_fraction={self.filtering_fraction}) "
                f"would drop {dropped} of {m} updates. Lower either, or keep more clients."
            )
        return dropped


def relative_to_cut(scores: FloatVector, num_dropped: int) -> FloatVector:
    """Scale scores so that exactly the `num_dropped` largest are above 1. In a tie, later rows count as larger."""
    order = np.argsort(scores, kind="stable")
    kept = scores.size - num_dropped
    ranked = np.concatenate([[0.0], scores[order], [scores.max()]])  # so that both ends have a neighbour
    cut = max((ranked[kept] + ranked[kept + 1]) / 2, 1e-300 * ranked[-1]) or 1.0
    relative = scores / cut
    relative[order[kept:]] = np.maximum(relative[order[kept:]], np.nextafter(1.0, 2.0))
    return relative


def principal_components(products: FloatMatrix) -> FloatMatrix:
    """Return the first two principal components of vectors, `(n, 2)`, from their inner products."""
    centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
    values, vectors = np.linalg.eigh(centred)
    found = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0))
    largest = found[np.argmax(np.abs(found), axis=0), np.arange(found.shape[1])]
    signs: FloatVector = np.where(largest < 0, -1.0, 1.0)  # the sign of a component is arbitrary
    return np.asarray(found * signs)
