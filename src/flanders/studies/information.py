"""Three estimators of the mutual information between two series of numbers, for the study `predictability`.

They work on many pairs of series at the same time. All estimators take `x` and `y` of shape `(..., n)` and use the
n pairs of numbers along the last axis. The result is in nats, the unit of information for natural logarithms. The
estimators use ranks or standardised values, so the scale of the series does not matter. If a series is constant,
the result is 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma, ndtri
from scipy.stats import rankdata

Floats = NDArray[np.float64]

NEIGHBOURS = 3
"""The k of `kraskov`, which uses the distance of each point to its k-th nearest neighbour. Its authors advise 2 to
4."""
FEW = 500
"""Up to this number of points, all points are compared with each other to find neighbours. For more points, this
would take longer than searching in a tree."""
BLOCK = 2_000_000
"""At most about this many comparisons of two points are in memory at the same time, to save memory."""


def gaussian_copula(x: ArrayLike, y: ArrayLike) -> Floats:
    r"""Estimate the information from the correlation of the normal scores.

    .. math:: I = -\tfrac12 \log(1 - \rho^2)
              - \tfrac12 \left[\psi\left(\tfrac{n-1}{2}\right) - \psi\left(\tfrac{n-2}{2}\right)\right]

    The normal score of a value is the normal quantile of its rank. :math:`\rho` is the correlation of the scores of
    both series, and :math:`\psi` is the digamma function. The second term is the bias of the first term for n
    independent pairs. Estimates near zero may be negative.

    If the scores of both series have a joint normal distribution (a Gaussian copula), the first term is the exact
    information. Otherwise it is a lower bound.

    References
    ----------
    Ince et al., "A statistical framework for neuroimaging data analysis based on mutual information estimated
    via a Gaussian copula", Human Brain Mapping 2017.
    """
    a, b = _pairs(x, y)
    n = a.shape[-1]
    u, v = (ndtri(rankdata(s, axis=-1) / (n + 1)) for s in (a, b))
    norms = np.sqrt(np.sum(u * u, axis=-1) * np.sum(v * v, axis=-1))
    inner = np.sum(u * v, axis=-1)
    rho = np.divide(inner, norms, out=np.zeros_like(inner), where=norms > 0)
    bias = (digamma((n - 1) / 2) - digamma((n - 2) / 2)) / 2
    # If both series have the same ranks, the formula is infinite. But n ranks contain at most log n nats.
    information = np.minimum(-0.5 * np.log(np.maximum(1 - rho**2, np.finfo(float).tiny)), np.log(n)) - bias
    return np.where(_varies(a) & _varies(b), information, 0.0)


def kraskov(x: ArrayLike, y: ArrayLike) -> Floats:
    r"""Estimate the information from distances to nearest neighbours (the first algorithm of the paper below).

    .. math:: I = \psi(k) + \psi(n) - \langle \psi(n_x + 1) + \psi(n_y + 1) \rangle

    Each of the n pairs (x, y) is a point, and k is `NEIGHBOURS`. Distances are in the maximum norm, and
    :math:`\psi` is the digamma function. For each point, :math:`n_x` counts the other points whose distance in x
    alone is smaller than the distance to the k-th neighbour. :math:`n_y` counts the other points whose distance in
    y alone is smaller than this distance. The brackets are the mean over all points. Equal values would make the
    counts wrong. So noise is added to the values, far below the scale of the data, as the authors advise.

    References
    ----------
    Kraskov, Stögbauer and Grassberger, "Estimating mutual information", Physical Review E 2004.
    """
    a, b = _pairs(x, y)
    shape, n = a.shape[:-1], a.shape[-1]
    varies = _varies(a) & _varies(b)
    a, b = (_standardised(s).reshape(-1, n) + noise for s, noise in zip((a, b), _noise(n), strict=True))
    information = np.empty(len(a))
    step = max(1, BLOCK // n**2) if n <= FEW else 1
    for start in range(0, len(a), step):
        part = slice(start, start + step)
        count = _counts_of_few if n <= FEW else _counts_of_many
        terms = digamma(count(a[part], b[part], NEIGHBOURS)).sum(axis=0)
        information[part] = digamma(NEIGHBOURS) + digamma(n) - terms.mean(axis=-1)
    return np.where(varies, information.reshape(shape), 0.0)


def histogram(x: ArrayLike, y: ArrayLike, bins: int | None = None) -> Floats:
    r"""Estimate the information from counts in bins of equal frequency.

    The estimate is the entropy of x, plus the entropy of y, minus the entropy of the pairs. Each entropy has the
    Miller-Madow correction for its bias.

    Parameters
    ----------
    x, y
        The series.
    bins
        The number of bins for x, and also for y. By default it is chosen such that each combination of a bin of x
        and a bin of y has about five pairs on average. But it is at least 2 and at most 64.

    References
    ----------
    Miller, "Note on the bias of information estimates", 1955.
    """
    a, b = _pairs(x, y)
    shape, n = a.shape[:-1], a.shape[-1]
    k = max(2, min(64, int(np.sqrt(n / 5)))) if bins is None else bins
    i, j = (np.minimum(((rankdata(s, axis=-1) - 0.5) * k / n).astype(np.int64), k - 1) for s in (a, b))
    i, j = i.reshape(-1, n), j.reshape(-1, n)
    information = np.empty(len(i))
    for row in range(len(i)):
        counts = np.bincount(i[row] * k + j[row], minlength=k**2).reshape(k, k)
        information[row] = _entropy(counts.sum(axis=0)) + _entropy(counts.sum(axis=1)) - _entropy(counts.ravel())
    return information.reshape(shape)


ESTIMATORS: dict[str, Callable[[ArrayLike, ArrayLike], Floats]] = {
    "gaussian-copula": gaussian_copula,
    "kraskov": kraskov,
    "histogram": histogram,
}


def _entropy(counts: NDArray[np.int64]) -> float:
    """Return the entropy of n counted values, plus the Miller-Madow correction.

    The correction is the number of non-zero counts, minus 1, divided by 2n.
    """
    seen = counts[counts > 0]
    share = seen / seen.sum()
    return float(-np.sum(share * np.log(share)) + (seen.size - 1) / (2 * seen.sum()))


def _counts_of_few(a: Floats, b: Floats, k: int) -> NDArray[np.int64]:
    """Return n_x + 1 and n_y + 1 for each point of each pair of series, by comparing all points with each other."""
    dx, dy = (np.abs(s[:, :, None] - s[:, None, :]) for s in (a, b))
    distances = np.maximum(dx, dy)
    diagonal = np.arange(a.shape[1])
    distances[:, diagonal, diagonal] = np.inf  # no point is its own neighbour
    reach = np.partition(distances, k - 1, axis=-1)[..., k - 1]  # the distance to the k-th neighbour
    inside = np.nextafter(reach, 0)[..., None]  # the largest number below `reach`
    return np.stack([np.sum(d <= inside, axis=-1) for d in (dx, dy)])  # a point also counts itself: this is the + 1


def _counts_of_many(a: Floats, b: Floats, k: int) -> NDArray[np.int64]:
    """Return n_x + 1 and n_y + 1 for each point of one pair of long series, with a tree and by sorting."""
    points = np.column_stack([a[0], b[0]])
    reach = cKDTree(points).query(points, k=k + 1, p=np.inf)[0][:, k]  # the distance to the k-th neighbour
    inside = np.nextafter(reach, 0)  # the largest number below `reach`
    counts = []
    for values in points.T:
        line = np.sort(values)
        first = np.searchsorted(line, values - inside, side="left")
        last = np.searchsorted(line, values + inside, side="right") - 1
        # The k-th neighbour itself must not count. The sums in the two lines above are rounded, so the differences
        # are checked again.
        while np.any(beyond := values - line[first] > inside):
            first += beyond
        while np.any(beyond := line[last] - values > inside):
            last -= beyond
        counts.append(last - first + 1)
    return np.stack(counts)[:, None, :]


def _noise(n: int) -> Floats:
    """Return two series of noise with a standard deviation of 1e-10. They are the same in every call."""
    return 1e-10 * np.random.default_rng(0).normal(size=(2, n))


def _standardised(x: Floats) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    size = centred.std(axis=-1, keepdims=True)
    scaled: Floats = np.divide(centred, size, out=np.zeros_like(centred), where=size > 0)
    return scaled


def _varies(x: Floats) -> NDArray[np.bool_]:
    return np.asarray(x.max(axis=-1) > x.min(axis=-1))


def _pairs(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    return a, b
