"""Principal components of updates, and the tests of divide and conquer (DnC).

The tests find updates that are outliers along the first principal component.
"""

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
    """The tests of divide and conquer. The aggregator `DnC` and the filter `DnCFilter` use them.

    `caller` is the name of the class that uses the tests, for error messages. `DnCFilter` explains the other
    parameters.

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
        check_number(self.caller, "sample", self.sample, 1, whole=True, optional=True)

    def scores(self, round_: Round, rng: np.random.Generator) -> FloatVector:
        """Return the largest score of each row over all iterations. An outlier has a score above 1.

        Each iteration samples some parameters, subtracts the mean from the rows, and projects the rows on the first
        principal direction. The rows with the largest squared projections are outliers. Their number is
        `filtering_fraction` times the number of malicious clients. If projections are equal, the row with the
        higher client id is the outlier. The cut is a number halfway between the smallest squared projection of an
        outlier and the largest squared projection of the other rows. The score of a row is its squared projection,
        divided by the cut. If `sample` is None or at least the number of parameters d, all parameters are used, and
        one iteration is enough.
        """
        m, d = round_.updates.shape
        num_dropped = self._num_dropped(m)
        updates, order = round_.updates, round_.by_client()
        xp = array_api_compat.array_namespace(updates)
        largest_scores = np.zeros(m)
        whole = gram(updates, updates[0, :]) if self.sample is None or self.sample >= d else None
        for _ in range(1 if whole is not None else self.iterations):
            if whole is not None:
                products = whole
            else:
                columns = np.sort(rng.choice(d, size=self.sample, replace=False))
                part = xp.take(updates, index_like(columns, updates), axis=1)
                products = gram(part, part[0, :])
            # These are the inner products of the rows after the mean was subtracted from them.
            centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
            values, vectors = np.linalg.eigh(centred)
            # The shares are rounded, so that equal projections do not differ by rounding errors.
            share = np.round(vectors[order, -1] ** 2, 12)
            relative = relative_to_cut(np.maximum(values[-1], 0.0) * share, num_dropped)
            largest_scores[order] = np.maximum(largest_scores[order], relative)
        return largest_scores

    def _num_dropped(self, m: int) -> int:
        dropped = int(self.filtering_fraction * resolve_count(self.num_malicious, m) + 1e-9)
        if dropped >= m:
            raise InputError(
                f"{self.caller}(num_malicious={self.num_malicious}, filtering_fraction={self.filtering_fraction}) "
                f"would drop {dropped} of {m} updates. Lower one of the two, or let the filter keep more clients."
            )
        return dropped


def relative_to_cut(scores: FloatVector, num_dropped: int) -> FloatVector:
    """Divide the scores by a cut, such that exactly the `num_dropped` largest scores end up above 1.

    If scores are equal, the score of a later row counts as larger.
    """
    order = np.argsort(scores, kind="stable")
    kept = scores.size - num_dropped
    # The first and the last number of `ranked` make sure that there is a cut even if all or none are dropped.
    ranked = np.concatenate([[0.0], scores[order], [scores.max()]])
    cut = max((ranked[kept] + ranked[kept + 1]) / 2, 1e-300 * ranked[-1]) or 1.0
    relative = scores / cut
    relative[order[kept:]] = np.maximum(relative[order[kept:]], np.nextafter(1.0, 2.0))
    return relative


def principal_components(products: FloatMatrix) -> FloatMatrix:
    """Return the first two principal components of n vectors, `(n, 2)`, from their inner products.

    The first component is in the last column.
    """
    centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
    values, vectors = np.linalg.eigh(centred)
    components = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0))
    largest = components[np.argmax(np.abs(components), axis=0), np.arange(components.shape[1])]
    signs: FloatVector = np.where(largest < 0, -1.0, 1.0)  # the sign is arbitrary: make the largest number positive
    return np.asarray(components * signs)
