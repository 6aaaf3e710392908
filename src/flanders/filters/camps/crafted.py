r"""Rows that no training makes: copies of one another, bare or with noise on top, and bare noise.

Two clients that train on different examples send updates that differ in a few directions, those that their examples
pull in. So what one of them has in common with a third client is not what the other has in common with it. Two
copies of one crafted update have everything in common with everybody. If each copy has random noise of its own, it
differs from the other in all d directions alike, and hardly in what it has in common with others:
with unit updates :math:`v_i, v_j, v_k` the difference of two cosines,

.. math:: \langle v_i - v_j, v_k \rangle \sim N\bigl(0, \|v_i - v_j\|^2 / d\bigr),

has the standard deviation :math:`\sqrt{2 (1 - \cos(v_i, v_j)) / d}`. Between honest clients it is 3 to 100 times
as large. This needs neither memory nor a majority of honest clients, and it finds bare noise as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, FloatVector
from flanders.linalg.products import cosines_of_gram, distances_of_gram

SAME = 1e-6
"""Directions whose cosine is this close to 1 are the same: float32 rounds that much, training differs by more."""
NOISE = 1.7
"""Differences up to this many times those of random noise are noise.

Noise itself has 1 with an error of a tenth to a third; the least that honest clients showed is 3.3.
"""
ORIGINAL = 3.5
"""An update stands out from others by this many standard deviations at its sender's mark; copies of a crafted one
rarely do by chance."""
FEWEST = 8
"""With fewer different updates beside two clients nothing can be said of what they have in common with others."""
LEAST_PARAMETERS = 1000
"""Of fewer parameters honest updates may use all directions alike."""
SUMS = 64
"""How many random sums of cosines stand for all of a client's cosines in rounds of many clients: enough to tell a
difference from one that is three times as large."""
MANY = 256
"""From this many clients on, random sums save time."""


def crafted(products: FloatMatrix, d: int, fingerprints: FloatVector | None = None) -> NDArray[np.bool_]:
    """Return who sends what nobody learns from data, from the inner products of all updates of d parameters.

    Of clients that send the same, the one whose own mark it clearly bears is the original.
    """
    cosines = cosines_of_gram(products)
    same = 1.0 - cosines < SAME
    np.fill_diagonal(same, False)
    copies = same.any(axis=1)
    if fingerprints is not None:
        own = np.nan_to_num(fingerprints, nan=-np.inf)
        others = np.where(same, own[None, :], -np.inf).max(axis=1, initial=-np.inf)
        copies &= ~((own > ORIGINAL) & (own > others))
    return copies | alike_but_for_noise(cosines, same, d)


def alike_but_for_noise(cosines: FloatMatrix, same: NDArray[np.bool_], d: int) -> NDArray[np.bool_]:
    """Return who differs from somebody else by noise alone.

    Bare noise says nothing of others: who is found is held against those who are not once more, without the rest.
    """
    found = np.zeros(len(cosines), dtype=bool)
    rows = np.flatnonzero(~np.triu(same, 1).any(axis=0))  # of copies the first stands for all
    if rows.size < FEWEST + 2 or d < LEAST_PARAMETERS:
        return found
    own = cosines[np.ix_(rows, rows)]
    noisy = differs_by_noise(own, own, d)
    if noisy.any() and (~noisy).sum() >= FEWEST:
        noisy &= differs_by_noise(own, own[:, ~noisy], d)
    found[rows] = noisy
    return found


def differs_by_noise(cosines: FloatMatrix, with_others: FloatMatrix, d: int) -> NDArray[np.bool_]:
    """Return who differs from somebody by noise alone in what it has in common with others, `(m, k)`."""
    m, k = with_others.shape
    if m == k:
        squares = profile_distances(cosines)
    else:
        squares = distances_of_gram(with_others @ with_others.T) / k
    ratio = squares * d / (2.0 * np.maximum(1.0 - cosines, SAME))
    np.fill_diagonal(ratio, np.inf)
    return np.asarray((ratio < NOISE**2).any(axis=1))


def profile_distances(cosines: FloatMatrix) -> FloatMatrix:
    """Return the mean squared difference of what two clients have in common with all others, for each two of them.

    In rounds of many clients the cosines are summed up with random signs first, which keeps distances. The seed is
    fixed, so that a round is always judged alike.
    """
    m = len(cosines)
    profile = cosines - np.eye(m)
    if m < MANY:
        with_each_other = 2.0 * profile**2  # where one of the two has their cosine, the other has a zero
        return np.maximum(distances_of_gram(profile @ profile.T) - with_each_other, 0.0) / (m - 2)
    np.fill_diagonal(profile, profile.max(axis=1))  # about what two copies have in common with each other
    signs = np.random.default_rng(0).integers(0, 2, size=(m, SUMS)) * 2.0 - 1.0
    sums = profile @ signs / SUMS**0.5
    return distances_of_gram(sums @ sums.T) / (m - 2)
