r"""Updates that no training makes: copies of another update, copies with noise on top, and pure noise.

Copies without noise have the cosine 1 with each other. Copies with noise are found by a test.

The test takes two clients i and j, with the unit updates :math:`v_i` and :math:`v_j`. For a third client k it
compares two cosines: that of :math:`v_i` with :math:`v_k`, and that of :math:`v_j` with :math:`v_k`. Honest clients
train on different examples. Their updates differ in a few directions only, and those are the directions in which
third clients move, too. So the two cosines differ clearly. Copies with random noise differ in all d directions
alike, and a third update has almost nothing in common with random noise. The difference of the two cosines is then
normally distributed,

.. math:: \langle v_i - v_j, v_k \rangle \sim N\bigl(0, \|v_i - v_j\|^2 / d\bigr),

with the standard deviation :math:`\sqrt{2 (1 - \cos(v_i, v_j)) / d}`. The test measures the differences over all
third clients k. If they are not much larger than this standard deviation, i and j differ by noise alone. Between
honest clients they are 3 to 100 times as large.

The test needs no memory and no majority of honest clients. It finds pure noise, too: two updates of pure noise
differ by noise alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.linalg.products import cosines_of_gram, distances_of_gram

SAME = 1e-6
"""Directions whose cosine is this close to 1 are the same: float32 rounds that much, training differs by more."""
NOISE = 1.7
"""Differences of up to this many standard deviations of random noise count as noise.

Pure noise has 1, give or take 0.1 to 0.33. The smallest value of honest clients was 3.3.
"""
ORIGINAL = 3.5
"""A client whose fingerprint is above this many standard deviations is the author of an update that others copy.

By chance, a crafted update rarely matches any client's fingerprint this well.
"""
FEWEST = 8
"""The test needs this many third clients with different updates, or it says nothing."""
LEAST_PARAMETERS = 1000
"""Models with fewer parameters are not tested: honest updates of such models may use all directions alike."""
CONTRAST = 0.1
"""The test is used only if at least this share of the clients, and at least two, differ by more than noise.

Where all updates are mostly noise, e.g. because clients add it for their privacy, noise is no sign of an attack.
"""
SUMS = 64
"""In rounds of many clients, this many random sums stand for all cosines of a client.

With this many sums, two differences can be told apart if one is three times the other.
"""
MANY = 256
"""Rounds of at least this many clients are tested by random sums, which saves time."""


def crafted_rows(products: FloatMatrix, d: int, fingerprints: FloatVector | None = None) -> BoolVector:
    """Return which updates no training has made.

    Parameters
    ----------
    products
        The inner products of all updates, `(m, m)`.
    d
        The number of parameters of an update.
    fingerprints
        How clearly each update bears the mark of its sender, in standard deviations; NaN if the sender is not
        known. If several clients send the same update and one of them clearly is its author, only the others are
        returned.
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


def alike_but_for_noise(cosines: FloatMatrix, same: NDArray[np.bool_], d: int) -> BoolVector:
    """Return which clients differ from another client by noise alone.

    Pure noise has nothing in common with anybody, so it is of no use as a third client. So the test
    runs twice. In the second run only clients that were not found in the first one serve as third clients.
    """
    found = np.zeros(len(cosines), dtype=bool)
    rows = np.flatnonzero(~np.triu(same, 1).any(axis=0))  # the first of several exact copies stands for all of them
    if rows.size < FEWEST + 2 or d < LEAST_PARAMETERS:
        return found
    own = cosines[np.ix_(rows, rows)]
    noisy = differs_by_noise(own, own, d)
    if (~noisy).sum() < max(2, CONTRAST * rows.size):
        return found
    if noisy.any() and (~noisy).sum() >= FEWEST:
        noisy &= differs_by_noise(own, own[:, ~noisy], d)
    found[rows] = noisy
    return found


def differs_by_noise(cosines: FloatMatrix, with_others: FloatMatrix, d: int) -> BoolVector:
    """Return which of m clients differ from at least one other client by noise alone.

    `cosines` are those between the clients, `(m, m)`. `with_others` are those with the third clients, `(m, k)`.
    """
    m, k = with_others.shape
    squares = profile_distances(cosines) if m == k else distances_of_gram(with_others @ with_others.T) / k
    ratio = squares * d / (2.0 * np.maximum(1.0 - cosines, SAME))
    np.fill_diagonal(ratio, np.inf)
    return np.asarray((ratio < NOISE**2).any(axis=1))


def profile_distances(cosines: FloatMatrix) -> FloatMatrix:
    """Return, for every two clients, the mean squared difference of their cosines with all other clients.

    In rounds of many clients the cosines are first added up with random signs. This keeps the distances about the
    same. The seed is fixed, so that the same round always gets the same decision.
    """
    m = len(cosines)
    profile = cosines - np.eye(m)
    if m < MANY:
        with_each_other = 2.0 * profile**2  # i and j are no third clients of their own: take their columns off
        return np.maximum(distances_of_gram(profile @ profile.T) - with_each_other, 0.0) / (m - 2)
    # The largest cosine is about that of two noisy copies, so that their own columns hardly differ.
    np.fill_diagonal(profile, profile.max(axis=1))
    signs = np.random.default_rng(0).integers(0, 2, size=(m, SUMS)) * 2.0 - 1.0
    sums = profile @ signs / SUMS**0.5
    return distances_of_gram(sums @ sums.T) / (m - 2)
