r"""Finds updates that no training makes: copies of another update, copies with added noise, and pure noise.

`Guard` and `Camps` drop these updates first. Here, the update of a client is the difference between its model and
the global model. All cosines are cosines between such updates.

Two copies without noise have a cosine of 1. For copies with noise there is a test. It takes two clients i and j,
with the unit updates :math:`v_i` and :math:`v_j`, and compares them with every third client k. It looks at the
difference between the cosine of :math:`v_i` with :math:`v_k` and the cosine of :math:`v_j` with :math:`v_k`:

- If i and j are honest, they train on different examples. Their updates differ in a few directions only. The
  updates of third clients vary in these directions, too. So the two cosines differ clearly.
- If i and j are copies with random noise, they differ a little in each of the d parameters. A third update has
  almost nothing in common with random noise. The difference of the two cosines is then normally distributed,

  .. math:: \langle v_i - v_j, v_k \rangle \sim N\bigl(0, \|v_i - v_j\|^2 / d\bigr),

  with the standard deviation :math:`\sqrt{2 (1 - \cos(v_i, v_j)) / d}`.

The test takes the root mean square of the differences over all third clients k. For two copies with noise, it is
close to the standard deviation above (`SPREADS`). For two honest clients it is mostly 3 to 100 times as large.

In some federations the root mean square is smaller for honest clients, for example if the inputs themselves are
like noise. So a second test must agree: noise changes all parameters alike, and training does not (`EVEN`).

The two tests need no memory and no majority of honest clients. They also find updates that are pure noise, since
two such updates differ by noise alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.linalg.noise import standard_errors_from_noise
from flanders.linalg.products import cosines_of_gram, distances_of_gram
from flanders.round import Round

SAME = 1e-6
"""Two updates with a cosine this close to 1 are copies. Rounding to float32 causes differences of this size, and
training on different examples causes larger ones."""
SPREADS = 2.5
r"""Two clients may differ by noise alone if the root mean square of the test above is at most
:math:`1 + 2.5 / \sqrt{2n}` standard deviations, where n is the number of third clients.

For two copies with noise the root mean square is about 1 standard deviation, and its standard error is
:math:`1 / \sqrt{2n}`. So one pair of such copies in 150 is above the limit.
"""
EVEN = 3.5
"""Two clients differ by noise alone if the absolute value of `standard_errors_from_noise` is at most this for them.

If two clients differ by noise, the value is larger once in 2,000 pairs. For pairs of honest clients that the first
test took for copies, the value was mostly 7 to 60, on the datasets digits, characters and synthetic.
"""
ORIGINAL = 3.5
"""If several clients send the same update, the client with the highest fingerprint counts as its author, if this
fingerprint is above the limit. The author is not dropped.

The fingerprint tells how much more an update resembles its sender's earlier updates than those of other clients, in
standard deviations. By chance, a crafted update rarely has such a high fingerprint for any client.
"""
FEWEST = 8
"""The test is made only if there are at least this many third clients. The root mean square over fewer clients
varies too much. Exact copies count as one client."""
LEAST_PARAMETERS = 1000
"""Models with fewer parameters are not tested. Their honest updates may differ in all directions, like noise."""
CONTRAST = 0.1
"""The test counts only if at least this share of the clients, and at least two clients, differ from all others
by more than noise.

Otherwise nearly all updates are mostly noise, for example because clients add noise for their privacy. Noise is
then no sign of an attack.
"""
SUMS = 64
"""In rounds of at least `MANY` clients, the cosines of a client are replaced by this many random sums of them.

With this many sums, two differences can be told apart if one is three times as large as the other.
"""
MANY = 256
"""Rounds of at least this many clients are tested with random sums, which saves time."""


def crafted_rows(round_: Round, products: FloatMatrix, fingerprints: FloatVector | None = None) -> BoolVector:
    """Return which updates no training has made.

    Parameters
    ----------
    round_
        The round with its m updates.
    products
        The inner products of all updates, `(m, m)`.
    fingerprints
        `(m,)`: how much more each update resembles its sender's earlier updates than those of other clients, in
        standard deviations. NaN if the sender has no past. The author of an update that others copied (see
        `ORIGINAL`) is not returned.
    """
    cosines = cosines_of_gram(products)
    same = 1.0 - cosines < SAME
    np.fill_diagonal(same, False)
    own = np.full(len(cosines), -np.inf) if fingerprints is None else np.nan_to_num(fingerprints, nan=-np.inf)
    clearest_of_copies = np.where(same, own[None, :], -np.inf).max(axis=1, initial=-np.inf)
    noisy, nearest = alike_but_for_noise(round_, cosines, same)
    author_of_copies = (own > ORIGINAL) & (own > clearest_of_copies)
    author_of_noisy_copy = (own > ORIGINAL) & (own > own[nearest])
    return np.asarray((same.any(axis=1) & ~author_of_copies) | (noisy & ~author_of_noisy_copy))


def alike_but_for_noise(
    round_: Round, cosines: FloatMatrix, same: NDArray[np.bool_]
) -> tuple[BoolVector, IntVector]:
    """Return which clients differ from another client by noise alone, and from which one.

    `cosines`, `(m, m)`, are those of the updates with each other, and `same` tells which two are exact copies.

    Pure noise has nothing in common with any update, so it is of no use as a third client. Therefore the first test
    runs twice. In the second run, only the clients that the first run did not find are third clients.
    """
    d, found = round_.updates.shape[1], np.zeros(len(cosines), dtype=bool)
    others = np.arange(len(cosines))
    rows = np.flatnonzero(~np.triu(same, 1).any(axis=0))  # of several exact copies, only the first one is tested
    if rows.size < FEWEST + 2 or d < LEAST_PARAMETERS:
        return found, others
    own = cosines[np.ix_(rows, rows)]
    noisy, nearest = differs_by_noise(own, own, d)
    if (~noisy).sum() < max(2, CONTRAST * rows.size):
        return found, others
    if noisy.any() and (~noisy).sum() >= FEWEST:
        again, nearest = differs_by_noise(own, own[:, ~noisy], d)
        noisy &= again
    suspects = rows[noisy]
    if suspects.size:
        others[suspects] = rows[nearest[noisy]]
        off = standard_errors_from_noise(round_.updates, round_.global_model, suspects, others[suspects])
        found[suspects] = np.abs(off) <= EVEN
    return found, others


def differs_by_noise(cosines: FloatMatrix, with_others: FloatMatrix, d: int) -> tuple[BoolVector, IntVector]:
    """Return which of m clients may differ from another client by noise alone, and the likeliest other client.

    The second result has an entry for each of the m clients.

    `cosines`, `(m, m)`, are the cosines of these clients with each other. `with_others`, `(m, k)`, are their
    cosines with the third clients.
    """
    m, k = with_others.shape
    squares = profile_distances(cosines) if m == k else distances_of_gram(with_others @ with_others.T) / k
    ratio = squares * d / (2.0 * np.maximum(1.0 - cosines, SAME))
    np.fill_diagonal(ratio, np.inf)
    limit = 1.0 + SPREADS / (2.0 * (k if m != k else m - 2 if m < MANY else SUMS)) ** 0.5
    return np.asarray(ratio.min(axis=1) < limit**2), np.asarray(ratio.argmin(axis=1))


def profile_distances(cosines: FloatMatrix) -> FloatMatrix:
    """Return, for every two clients, the mean squared difference of their cosines with all other clients.

    In rounds of many clients, the differences are computed from sums of the cosines with random signs. The results
    are about the same. The seed is fixed, so that the same round always gets the same decision.
    """
    m = len(cosines)
    profile = cosines - np.eye(m)
    if m < MANY:
        with_each_other = 2.0 * profile**2  # the columns of i and j: they are not third clients, so subtract these
        return np.maximum(distances_of_gram(profile @ profile.T) - with_each_other, 0.0) / (m - 2)
    # The sums include the columns of i and j, which are not third clients. So put the largest cosine of each row on
    # the diagonal. For two noisy copies this is about their cosine with each other. Then the two columns hardly add
    # to the difference.
    np.fill_diagonal(profile, profile.max(axis=1))
    signs = np.random.default_rng(0).integers(0, 2, size=(m, SUMS)) * 2.0 - 1.0
    sums = profile @ signs / SUMS**0.5
    return distances_of_gram(sums @ sums.T) / (m - 2)
