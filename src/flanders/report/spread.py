"""Writes as text how much the values of several seeds differ: their spread.

A spread is the range, the standard deviation, or a confidence interval of the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

RANGE, STD, CI, NONE = "range", "std", "ci", "none"
SPREADS = (RANGE, STD, CI, NONE)
"""The names of the spreads. With `none`, a table shows only the mean."""
SPREAD_WORDS = {
    RANGE: "mean over seeds [lowest, highest seed]",
    STD: "mean over seeds ± standard deviation",
    CI: "mean over seeds ± half the width of its 95% confidence interval (Student's t)",
    NONE: "mean over seeds",
}
"""How the legend of a table explains each spread."""


def spread_text(values: Sequence[float], spread: str, digits: int) -> str:
    """Return the mean and the spread of some values as text. A single value has no spread.

    Examples
    --------
    >>> spread_text([0.5, 0.75], "range", 3), spread_text([0.5, 0.75], "std", 3), spread_text([0.5], "std", 3)
    ('0.625 [0.500, 0.750]', '0.625 ± 0.177', '0.500')
    """
    mean = f"{fmean(values):.{digits}f}"
    if len(values) < 2 or spread == NONE:
        return mean
    if spread == RANGE:
        return f"{mean} [{min(values):.{digits}f}, {max(values):.{digits}f}]"
    return f"{mean} ± {half_width(values, spread):.{digits}f}"


def half_width(values: Sequence[float], spread: str) -> float:
    """Return the standard deviation of values, or half the width of the 95% confidence interval of their mean."""
    deviation = stdev(values)
    n = len(values)
    return deviation if spread == STD else student_quantile(n - 1) * deviation / math.sqrt(n)


def student_quantile(freedom: int) -> float:
    """Return half the width of the 95% confidence interval of a mean, in standard errors.

    The result is a quantile of Student's t distribution with `freedom` degrees of freedom. Python's standard
    library does not have this quantile. So it is found by bisection here. The area under the density up to a guess
    is computed by Simpson's rule.

    Examples
    --------
    >>> round(student_quantile(2), 3), round(student_quantile(10**6), 3)
    (4.303, 1.96)
    """
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)

    def area(high: float) -> float:
        """Return the area under the density of t from 0 to `high`.

        The steps of Simpson's rule are equal in u, where t = tan(u). So they are small where t is small.
        """
        end, steps = math.atan(high), 400

        def height(u: float) -> float:
            t = math.tan(u)
            return scale * (1 + t * t) * math.exp(-(freedom + 1) / 2 * math.log1p(t * t / freedom))

        inner = sum((4 if i % 2 else 2) * height(end * i / steps) for i in range(1, steps))
        return (height(0.0) + inner + height(end)) * end / steps / 3

    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 2 * area(middle) < 0.95 else (low, middle)
    return low
