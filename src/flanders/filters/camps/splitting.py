r"""Tests whether n numbers, one for each of n clients, form two groups or only one. The groups are called camps.

`Guard` and `Camps` use this test for each trait, that is, for each way in which they measure the clients. The test
compares two explanations:

- One camp: all n numbers come from one normal distribution.
- Two camps: the k lowest numbers come from one normal distribution, and the others from a second one. Both
  distributions have the same variance.

The test divides the likelihood of the numbers with two camps by their likelihood with one camp, and takes the
logarithm. From this it subtracts the cost of saying in which camp each number is. The result is called the evidence
for two camps. Its unit is the nat. With evidence of 10 nats, two camps explain the numbers better by a factor of
:math:`e^{10}`, or 22,000.

Let :math:`s^2` be the variance of all numbers, let :math:`w^2` be the variance within the two camps, and let H be
the entropy, :math:`H(p) = -p \log p - (1 - p) \log (1 - p)`. Then the evidence is

.. math:: \Lambda = n \bigl( \tfrac12 \log (s^2 / w^2) - H(k/n) \bigr).

The numbers are cut in two at the k with the most evidence. The entropy H is the cost for each number. Without this
cost every list would seem to have two camps: if numbers from one normal distribution are cut in the middle, the
variance within the halves is only 36% of the whole.

If a trait has several numbers for each client, the clients are points, and the points are cut in two. The variances
become covariance matrices S and W, and :math:`\log (s^2 / w^2)` becomes :math:`\log (\det S / \det W)`. Two camps
may overlap in each single number and still be apart as points. For example, if an honest client's update points in
the others' direction in one layer, it usually does so in the other layers. The update of an attacker may not.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector

PER_CLIENT = 0.35
"""Each client of a round raises the evidence that is needed for two camps by this many nats; see `evidence_needed`.

The numbers of honest clients are not exactly normally distributed. So even rounds without attackers give some
evidence. In 64 settings of Fashion-MNIST, rounds of 37 and 100 honest clients gave up to 0.29 nats for each client
with one seed. With another seed, one setting gave more than 0.3 nats.
"""
PER_CLIENT_OF_NATURE = 0.1
"""This is used instead of `PER_CLIENT` for traits that tell by themselves which camp is wrong.

It is lower, since evidence is not enough to drop a camp by such a trait. The median of the camp must also be beyond
the limit of the trait, which camps of honest clients rarely reach.
"""
PER_ROUND = 2.4
"""To find two camps, a round needs `PER_ROUND * log(1 / rate)` nats on top of the nats for each client.

The rate is the share of honest clients that may be dropped. With the default rate of 0.01, 11 nats are added. The
value was chosen in 64 settings of Fashion-MNIST without attackers: 1,984 rounds of 8 to 100 clients. With this
value, fewer than 2% of the clients were dropped in each setting.
"""
LEAST_SPREAD = 1e-3
"""The smallest standard deviation of a camp in the first cuts of `split_jointly`. It prevents a division by zero.
The first cuts use one number of each client, scaled so that its standard deviation over all clients is 1."""
REFINEMENTS = 5
"""`split_jointly` tries several first cuts. It refines each of them in at most this many steps. Each step moves
every point to the nearer one of the two camps. More steps would hardly change the result."""
CUTS = 256
"""For how many sizes of rounds the entropies are remembered, since the same sizes come back in every round."""
FEWEST = 4
"""Fewer numbers are not cut in two: their spread is not known well enough."""


@dataclass(frozen=True, eq=False)
class Split:
    """A list of numbers, cut in two."""

    low: BoolVector
    """Which numbers are in the lower part."""
    evidence: float
    """The evidence for two camps, in nats."""


def split_in_two(values: FloatVector, floor: float, fewest: int = 1) -> Split | None:
    """Cut numbers in two where the evidence for two camps is largest. Return None if there are too few numbers.

    Parameters
    ----------
    values
        The numbers. None of them may be NaN.
    floor
        The smallest standard deviation that is assumed for a camp. Its square is added to the variance of all
        numbers and to the variance within the camps. So tiny differences do not make two camps.
    fewest
        The size of the smallest camp that is allowed.

    Examples
    --------
    >>> found = split_in_two(np.array([0.1, 0.12, 0.11, 0.13, 0.9, 0.92, 0.91, 0.93, 0.9, 0.94] * 3), 0.02)
    >>> found.evidence > evidence_needed(30, 0.01), int(found.low.sum())
    (True, 12)
    >>> split_in_two(np.linspace(0.0, 1.0, 30), 0.02).evidence > evidence_needed(30, 0.01)
    False
    """
    n = len(values)
    if n < max(FEWEST, 2 * fewest):
        return None
    sizes, evidence = cut_columns(values[:, None], floor, fewest)
    low = np.zeros(n, dtype=bool)
    low[np.argsort(values, kind="stable")[: sizes[0]]] = True
    return Split(low, float(evidence[0]))


def cut_columns(values: FloatMatrix, floor: float, fewest: int = 1) -> tuple[IntVector, FloatVector]:
    """Cut each column of an `(n, c)` matrix in two where the evidence for two camps is largest.

    Return the sizes of the lower camps and the evidence, `(c,)` each. `floor` and `fewest` are those of
    `split_in_two`. There must be at least `2 * fewest` rows.
    """
    n = len(values)
    order = np.sort(values, axis=0)
    order -= middle_of_sorted(order)
    sizes, entropy = _sizes_and_entropy(n, fewest)
    at = sizes - 1
    order_square = order**2
    sums, squares = np.cumsum(order, axis=0)[at], np.cumsum(order_square, axis=0)[at]
    total, total_square = order.sum(axis=0), order_square.sum(axis=0)
    k = sizes[:, None]
    within = squares - sums**2 / k + (total_square - squares) - (total - sums) ** 2 / (n - k)
    least = n * floor**2
    gain = np.log((total_square - total**2 / n + least) / (np.maximum(within, 0.0) + least))
    evidence = n * (gain / 2 - entropy)
    best = np.argmax(evidence, axis=0)
    return sizes[best], np.take_along_axis(evidence, best[None, :], axis=0)[0]


def middle_of_sorted(order: FloatMatrix) -> FloatVector:
    """Return the median of each column of a matrix with sorted columns."""
    n = len(order)
    return np.asarray((order[(n - 1) // 2] + order[n // 2]) / 2)


@functools.lru_cache(maxsize=CUTS)
def _sizes_and_entropy(n: int, fewest: int) -> tuple[IntVector, FloatMatrix]:
    """Return the sizes that the lower one of two camps of n numbers may have, and the entropy of each cut."""
    sizes = np.arange(fewest, n - fewest + 1)
    p = sizes[:, None] / n
    return sizes, -(p * np.log(p) + (1 - p) * np.log(1 - p))


def split_jointly(values: FloatMatrix, floor: float, fewest: int = 1) -> Split | None:
    """Cut points in two where the evidence for two camps is largest. Return None if there are too few points.

    The lower part is the one in which the sum of a point's coordinates is lower on average.

    Parameters
    ----------
    values
        `(n, k)`: k numbers for each of n clients. None of them may be NaN.
    floor
        The smallest standard deviation of a camp in every direction; see `split_in_two`.
    fewest
        The size of the smallest camp that is allowed.

    Examples
    --------
    >>> one, other = np.random.default_rng(0).normal(size=(2, 40))
    >>> points = np.column_stack([one, one + 0.1 * other])
    >>> points[:10, 1] -= 1.5                                # a shift that neither number shows by itself
    >>> found = split_jointly(points, 0.02)
    >>> found.evidence > evidence_needed(40, 0.01), np.flatnonzero(found.low)
    (True, array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
    >>> [split_in_two(number, 0.02).evidence > evidence_needed(40, 0.01) for number in points.T]
    [False, False]
    """
    n, k = values.shape
    if k == 1:
        return split_in_two(values[:, 0], floor, fewest)
    if n < max(FEWEST, 2 * fewest):
        return None
    x = values - np.median(values, axis=0)
    whole = covariance(x, floor)
    spread = float(np.linalg.slogdet(whole)[1])
    # Up to a factor, column j is the part of coordinate j that the other coordinates do not predict.
    x_given_others = x @ np.linalg.inv(whole)
    best: Split | None = None
    for start in (*x.T, *x_given_others.T):
        cut = split_in_two(start / max(float(start.std()), 1e-300), LEAST_SPREAD, fewest)
        assert cut is not None
        low = cut.low
        for _ in range(REFINEMENTS):
            within, means = covariance_within(x, low, floor)
            evidence = joint_evidence(spread, within, low)
            if best is None or evidence > best.evidence:
                best = Split(low, evidence)
            moved = nearer_camp(x, low, within, means)
            if min(moved.sum(), n - moved.sum()) < fewest or bool((moved == low).all()):
                break
            low = moved
    assert best is not None
    sums = x.sum(axis=1)
    return best if sums[best.low].mean() <= sums[~best.low].mean() else Split(~best.low, best.evidence)


def covariance(x: FloatMatrix, floor: float) -> FloatMatrix:
    """Return the covariance matrix of points, with the square of `floor` added to the diagonal."""
    return _covariance(x, x.mean(axis=0), floor)


def _covariance(x: FloatMatrix, mean: FloatVector, floor: float) -> FloatMatrix:
    centred = x - mean
    return np.asarray(centred.T @ centred / len(x) + floor**2 * np.eye(x.shape[1]))


def covariance_within(
    x: FloatMatrix, low: BoolVector, floor: float
) -> tuple[FloatMatrix, tuple[FloatVector, FloatVector]]:
    """Return the covariance matrix of points around the mean of their own camp, and the means of the two camps."""
    share, camps = low.mean(), (x[low], x[~low])
    means = camps[0].mean(axis=0), camps[1].mean(axis=0)
    lower, upper = (_covariance(camp, mean, floor) for camp, mean in zip(camps, means, strict=True))
    return np.asarray(share * lower + (1.0 - share) * upper), means


def joint_evidence(spread: float, within: FloatMatrix, low: BoolVector) -> float:
    """Return the evidence for two camps of points, in nats.

    `spread` is the logarithm of the determinant of the covariance matrix of all points, and `within` is the
    covariance matrix around the means of the two camps.

    Two camps have two means instead of one. The second mean has k numbers, which are fitted to the points. For each
    of these numbers except the first, log(n) / 2 is subtracted, as in the Bayesian information criterion. Nothing
    is subtracted for the first, so that the result is that of `split_in_two` if k is 1.
    """
    n, k = len(low), len(within)
    p = float(low.mean())
    entropy = -(p * math.log(p) + (1.0 - p) * math.log(1.0 - p))
    gain = float(spread - np.linalg.slogdet(within)[1])
    return float(n * (gain / 2 - entropy) - (k - 1) / 2 * math.log(n))


def evidence_of(values: FloatVector, low: BoolVector, floor: float) -> float:
    """Return the evidence for two camps of numbers, in nats, if `low` says which numbers are in the lower camp."""
    x = values[:, None]
    within, _ = covariance_within(x, low, floor)
    return joint_evidence(float(np.linalg.slogdet(covariance(x, floor))[1]), within, low)


def nearer_camp(
    x: FloatMatrix, low: BoolVector, within: FloatMatrix, means: tuple[FloatVector, FloatVector]
) -> BoolVector:
    """Return which points are more likely in the lower than in the upper camp: Fisher's linear discriminant."""
    share = float(low.mean())
    direction = np.linalg.solve(within, means[0] - means[1])
    middle = (means[0] + means[1]) @ direction / 2 - math.log(share / (1.0 - share))
    return np.asarray(x @ direction > middle)


def evidence_needed(n: int, rate: float, per_client: float = PER_CLIENT) -> float:
    """Return the evidence, in nats, that is needed to say that n clients form two camps.

    `rate` is the share of honest clients that may be dropped. `per_client` is by how much each client raises
    the evidence that is needed: `PER_CLIENT` or `PER_CLIENT_OF_NATURE`.

    Examples
    --------
    >>> round(evidence_needed(100, 0.01), 1), round(evidence_needed(8, 0.01), 1)
    (46.1, 13.9)
    """
    return per_client * n + PER_ROUND * math.log(1.0 / max(rate, 1e-300))
