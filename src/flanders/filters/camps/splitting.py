r"""Do numbers form two camps or one? A likelihood ratio answers.

One camp means: all n numbers come from one normal distribution. Two camps mean: the k lowest numbers come from one
normal distribution, and the others come from a second one that has the same variance. The likelihood of each
assumption is the probability that it gives to the numbers. The logarithm of the ratio of the two likelihoods is the
evidence for two camps. Its unit is the nat: with evidence of 10 nats, the numbers are 22,000 times (:math:`e^{10}`)
as likely if there are two camps as if there is one.

With the variance :math:`s^2` of all numbers, the variance :math:`w^2` within the two camps, and the entropy
:math:`H(p) = -p \log p - (1 - p) \log (1 - p)`, the evidence is

.. math:: \Lambda = n \bigl( \tfrac12 \log (s^2 / w^2) - H(k/n) \bigr).

The cut with the most evidence is used. The entropy is the cost of naming each number's camp. Without this cost
every list would show two camps: a cut in the middle of one normal distribution already lowers the variance to 36%.

Several numbers for each client are cut jointly, as points. The variances become covariance matrices S and W, and
:math:`\log (s^2 / w^2)` becomes :math:`\log (\det S / \det W)`. Two camps may overlap in every single number and
still lie apart as points: a client that agrees with the others in one layer usually agrees in the other layers,
too, but an attacker may not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector

PER_CLIENT = 0.35
"""The evidence that is needed, in nats for each client. Honest rounds come close to it, since their numbers are not
exactly normally distributed.

In 64 honest settings of Fashion-MNIST, rounds of 37 and 100 clients reached up to 0.29 with one seed, and one
setting reached more than 0.3 with another seed.
"""
PER_CLIENT_OF_NATURE = 0.1
"""The same for numbers that tell by themselves which camp is wrong. It is lower, since a camp of honest clients
rarely lies on the wrong side."""
PER_ROUND = 2.4
"""The evidence that a round needs in addition, in units of log(1 / rate).

With the default rate of 0.01 it is 11 nats. In 1,984 honest rounds of 8 to 100 clients, in 64 settings of
Fashion-MNIST, this is what it took to drop fewer than 2% of the clients in every setting.
"""
LEAST_SPREAD = 1e-3
"""The smallest spread of a camp in the first cut of a joint split, as a share of the spread of all numbers."""
REFINEMENTS = 5
"""How often a joint cut is moved to where the two camps meet: it hardly moves after that."""
FEWEST = 4
"""Fewer numbers are not cut in two: their spread is not known well enough to compare a gap with it."""


@dataclass(frozen=True, eq=False)
class Split:
    """A list of numbers, cut in two."""

    low: BoolVector
    """Which numbers are in the lower part."""
    evidence: float
    """The evidence for two camps, in nats: the logarithm of how much more likely the numbers are if there are two
    camps, less the cost of naming the camps."""


def split_in_two(values: FloatVector, floor: float, fewest: int = 1) -> Split | None:
    """Cut numbers in two where the evidence for two camps is largest; return None if there are too few numbers.

    Parameters
    ----------
    values
        The numbers. None of them may be NaN.
    floor
        The smallest standard deviation of a camp. Its square is added to the variance of all numbers and to the
        variance within the camps, so that differences too small to matter are not called camps.
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
    order = np.sort(values - np.median(values))
    k = np.arange(fewest, n - fewest + 1)
    sums, squares = np.cumsum(order)[k - 1], np.cumsum(order**2)[k - 1]
    total, total_square = order.sum(), (order**2).sum()
    within = squares - sums**2 / k + (total_square - squares) - (total - sums) ** 2 / (n - k)
    least = n * floor**2
    p = k / n
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    gain = np.log((total_square - total**2 / n + least) / (np.maximum(within, 0.0) + least))
    evidence = n * (gain / 2 - entropy)
    best = int(np.argmax(evidence))
    low = np.zeros(n, dtype=bool)
    low[np.argsort(values, kind="stable")[: k[best]]] = True
    return Split(low, float(evidence[best]))


def split_jointly(values: FloatMatrix, floor: float, fewest: int = 1) -> Split | None:
    """Cut points in two where the evidence for two camps is largest; return None if there are too few points.

    The lower part is the one with the lower sum of its numbers, on average.

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
    # Up to scale, these are the numbers minus their linear predictions from the other numbers.
    x_given_others = x @ np.linalg.inv(covariance(x, floor))
    best: Split | None = None
    for start in (*x.T, *x_given_others.T):
        cut = split_in_two(start / max(float(start.std()), 1e-300), LEAST_SPREAD, fewest)
        assert cut is not None
        low = cut.low
        for _ in range(REFINEMENTS):
            evidence = joint_evidence(x, low, floor)
            if best is None or evidence > best.evidence:
                best = Split(low, evidence)
            moved = nearer_camp(x, low, floor)
            if min(moved.sum(), n - moved.sum()) < fewest or bool((moved == low).all()):
                break
            low = moved
    assert best is not None
    sums = x.sum(axis=1)
    return best if sums[best.low].mean() <= sums[~best.low].mean() else Split(~best.low, best.evidence)


def covariance(x: FloatMatrix, floor: float) -> FloatMatrix:
    """Return the covariance matrix of points, with the square of the floor added in every direction."""
    centred = x - x.mean(axis=0)
    return np.asarray(centred.T @ centred / len(x) + floor**2 * np.eye(x.shape[1]))


def covariance_within(x: FloatMatrix, low: BoolVector, floor: float) -> FloatMatrix:
    """Return the covariance matrix of points around the means of their camps."""
    share = low.mean()
    return np.asarray(share * covariance(x[low], floor) + (1.0 - share) * covariance(x[~low], floor))


def joint_evidence(x: FloatMatrix, low: BoolVector, floor: float) -> float:
    """Return the evidence for two camps of points, in nats.

    The means of the two camps differ in k numbers. One of them is not charged, as in `split_in_two`. For each of
    the other k - 1, log(n) / 2 is taken off, which is what the Bayesian information criterion takes off for a
    parameter.
    """
    n, k = x.shape
    p = float(low.mean())
    entropy = -(p * math.log(p) + (1.0 - p) * math.log(1.0 - p))
    whole, within = covariance(x, floor), covariance_within(x, low, floor)
    gain = float(np.linalg.slogdet(whole)[1] - np.linalg.slogdet(within)[1])
    return float(n * (gain / 2 - entropy) - (k - 1) / 2 * math.log(n))


def nearer_camp(x: FloatMatrix, low: BoolVector, floor: float) -> BoolVector:
    """Return which points the lower camp explains better than the other one: Fisher's linear discriminant."""
    means, share = (x[low].mean(axis=0), x[~low].mean(axis=0)), float(low.mean())
    direction = np.linalg.solve(covariance_within(x, low, floor), means[0] - means[1])
    middle = (means[0] + means[1]) @ direction / 2 - math.log(share / (1.0 - share))
    return np.asarray(x @ direction > middle)


def evidence_needed(n: int, rate: float, per_client: float = PER_CLIENT) -> float:
    """Return the evidence, in nats, that is needed to call n clients two camps.

    `rate` is the share of honest clients that may be dropped. `per_client` is the evidence for each client, which
    depends on the trait.

    Examples
    --------
    >>> round(evidence_needed(100, 0.01), 1), round(evidence_needed(8, 0.01), 1)
    (46.1, 13.9)
    """
    return per_client * n + PER_ROUND * math.log(1.0 / max(rate, 1e-300))
