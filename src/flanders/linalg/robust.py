"""Statistics for the filters `Fingerprint` and `Flanders`.

They are a spread that a minority of outliers hardly changes, tail probabilities of Student's t, and false discovery
rates.
"""

from __future__ import annotations

import math

import numpy as np

from flanders.arrays import FloatVector

NORMAL = 1.4826
"""The standard deviation of a normal distribution, divided by its median distance from the median."""


def robust_spread(values: FloatVector, middle: float | None = None) -> float:
    """Return a robust standard deviation: `NORMAL` times the median distance from the median, or from `middle`."""
    around = np.median(values) if middle is None else middle
    return NORMAL * float(np.median(np.abs(values - around)))


def local_false_discovery_rate(p: FloatVector) -> FloatVector:
    """Return, for each p-value, the probability pi0 / f(p) that it belongs to an honest client.

    The p-values of honest clients are spread evenly between 0 and 1. Those of attackers are mostly near 0. pi0 is
    Storey's estimate of the share of honest clients: about twice the share of the p-values above a half. f is the
    density of all p-values: the decreasing density that fits them best (Grenander's estimator). It is the slope of
    the smallest concave function above their distribution function.

    Before f is computed, as many evenly spread p-values are added as are given. They count as those of honest
    clients. Without them, the few smallest p-values would always look like those of attackers.

    Examples
    --------
    >>> local_false_discovery_rate(np.array([0.001] * 5 + [0.2, 0.4, 0.6, 0.8, 0.9])).round(3)
    array([0.004, 0.004, 0.004, 0.004, 0.004, 1. , 1. , 1. , 1. , 1. ])

    References
    ----------
    Efron, "Large-scale inference", 2010. Strimmer, "A unified approach to false discovery rate
    estimation", BMC Bioinformatics 2008. Storey, JRSS B 2002.
    """
    m = p.size
    honest_share = min(1.0, (1.0 + float(np.count_nonzero(p > 0.5))) / (0.5 * m))
    knots, counts = np.unique(np.concatenate([p, (np.arange(m) + 0.5) / m]), return_counts=True)
    # Each entry is (width, share of the p-values) of an interval. Intervals are merged until the density decreases.
    slopes: list[tuple[float, float]] = []
    for width, mass in zip(np.diff(knots, prepend=0.0), counts / (2 * m), strict=True):
        slopes.append((float(width), float(mass)))
        while len(slopes) > 1 and slopes[-1][1] * slopes[-2][0] >= slopes[-2][1] * slopes[-1][0]:
            (w1, m1), (w2, m2) = slopes.pop(), slopes.pop()
            slopes.append((w1 + w2, m1 + m2))
    ends = np.cumsum([width for width, _ in slopes])
    density = np.array([mass / width for width, mass in slopes])
    place = np.minimum(np.searchsorted(ends, p * (1 - 1e-12)), len(slopes) - 1)
    return np.minimum(1.0, (honest_share + 1) / 2 / density[place])


def t_limit(tail: float) -> float:
    """Return the value that Student's t with 5 degrees of freedom exceeds with the probability `tail`."""
    low, high = 0.0, 1e12
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(t_tail(np.array([middle]))[0]) > tail else (low, middle)
    return high


def t_tail(x: FloatVector) -> FloatVector:
    """Return the probability that Student's t with 5 degrees of freedom is above x."""
    # The formula uses the angle with tan(angle) = sqrt(5) / x. For large x, the formula has smaller rounding errors
    # than 1 minus the distribution function. Above 1000, the first term of the tail's series is more precise.
    angle = np.arctan2(math.sqrt(5.0), x)
    sine, cosine = np.sin(angle), np.cos(angle)
    tail = (angle - sine * cosine * (1 + 2 / 3 * sine**2)) / math.pi
    far = 8 * 25 * math.sqrt(5) / (15 * math.pi) / np.maximum(np.abs(x), 1.0) ** 5
    return np.where(x > 1e3, far, tail)
