"""Two tests of whether the mean of one series is significantly higher than the mean of another series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_ind

from flanders.arrays import FloatVector
from flanders.checks import InputError, check_number


@dataclass(frozen=True)
class Comparison:
    """The difference of two means, and its significance. The p-values test whether the first mean is higher."""

    difference: float
    """The first mean minus the second mean."""
    welch_p: float
    """The p-value of Welch's t-test, which assumes that all values are independent."""
    bootstrap_p: float
    """The p-value of a block bootstrap, which allows neighbouring values to be correlated."""
    low: float
    """The lower end of the bootstrap's 95% interval of the difference."""
    high: float
    """The upper end of the bootstrap's 95% interval of the difference."""


def compare_means(
    first: FloatVector, second: FloatVector, *, block: int, rng: np.random.Generator, resamples: int = 9999
) -> Comparison:
    """Compare the means of two series of equal length whose neighbouring values may be correlated.

    The bootstrap works on the differences between the two series. It makes `resamples` new series from random
    blocks of `block` neighbouring differences. So the correlation within a block is kept. A block that reaches the
    end continues at the beginning. The observed mean is the mean of the given differences. The p-value is the share
    of new series whose mean is at least twice the observed mean: it is at least as far above the observed mean as
    the observed mean is above zero.

    References
    ----------
    Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 1989.
    """
    check_number("compare_means", "block", block, 1, whole=True)
    if first.shape != second.shape or first.ndim != 1 or first.size < 2:
        raise InputError(
            "compare_means needs two series of the same length, each with at least 2 values. Got shapes "
            f"{first.shape} and {second.shape}."
        )
    differences = first - second
    observed = float(differences.mean())
    means = block_means(differences, min(block, differences.size), resamples, rng)
    extreme = int(np.count_nonzero(means - observed >= observed))
    low, high = np.quantile(means, [0.025, 0.975])
    return Comparison(
        observed, welch(first, second), (1 + extreme) / (1 + resamples), low=float(low), high=float(high)
    )


def welch(first: FloatVector, second: FloatVector) -> float:
    """Return the p-value of Welch's one-tailed t-test: is the mean of `first` higher than that of `second`?"""
    if np.ptp(first) == 0 and np.ptp(second) == 0:  # without any spread the test is not defined
        return 0.0 if first[0] > second[0] else 1.0
    return float(ttest_ind(first, second, equal_var=False, alternative="greater").pvalue)


def block_means(values: FloatVector, block: int, resamples: int, rng: np.random.Generator) -> FloatVector:
    """Return the means of `resamples` new series.

    Each new series consists of random blocks of `values`, and is as long as `values`.
    """
    n = values.size
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[:block]]))])
    whole, rest = divmod(n, block)
    total = np.zeros(resamples)
    for length in [block] * whole + [rest] * (rest > 0):
        start = rng.integers(0, n, size=resamples)
        total += sums[start + length] - sums[start]
    return total / n
