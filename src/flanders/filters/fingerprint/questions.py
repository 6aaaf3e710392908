r"""Measures the updates of a round: the six questions that the filter `Fingerprint` asks about each update.

The filter `Guard` uses some of the answers, too. The update :math:`u_c` of client c is the difference between its
model and the global model. The common direction :math:`\bar u` is the mean of the updates of the clients accepted
in a round, each scaled to length 1. A client is accepted if the filter keeps it. A client's data leave a mark on
everything that it sends. The mark :math:`e_c` is the direction in which the client's update differed from the
common direction when the client was last accepted:

.. math:: e_c \propto \frac{u_c}{\|u_c\|} - \frac{\langle u_c, \bar u\rangle}{\|u_c\|\,\|\bar u\|^2}\, \bar u,
          \qquad \|e_c\| = 1.

The answer to each question is a number. An answer passes if it does not deviate too much from the answers of
clients that were accepted in the last rounds (see `decision`). The questions are:

- *fingerprint*: is the update more like its sender's mark than like the marks of other clients? The update has an
  inner product with each mark. The answer is the inner product with its sender's mark, minus the mean of the other
  inner products, divided by their standard deviation. If an update was not trained on its sender's data, the answer
  is around zero, even if many clients send the same update.
- *length*: is the update as long as its sender's updates usually are? The answer is the logarithm of its length.
- *heading*: does the update point in the common direction of the last round as much as its sender's updates usually
  do? The answer is its cosine with this direction. The typical length and heading of the round are subtracted. They
  are about those of most clients whose fingerprint passes.
- *originality*: does a client with a higher fingerprint send nearly the same update? Several clients may send the
  same crafted model, or copies of an honest client's model. Only the client with the highest fingerprint passes.
  The answer is the distance between the update and the nearest update with a higher fingerprint. If another client
  sends nearly the same update, the deviation of the fingerprint counts twice.
- *novelty*: is there something new in the update? Training always adds something that no client has sent before.
  The direction of the update is compared with the nearest weighted sum of the last round's updates, including
  dropped ones. The answer is the logarithm of the squared distance between the two. For a replay or a mixture of
  updates of the last round, the distance is zero.
- *company*: does the client belong to a crowd? The answer is the client's mean cosine with the other clients whose
  fingerprint passes. A crowd is a group of clients whose answers are clearly higher than those of the rest of the
  round. A crowd is suspicious if its answers are also higher than those of clients accepted in earlier rounds. This
  question finds attackers that are the majority and add the same vector to each of their updates.

A client without a mark has no fingerprint. Its length and its heading are compared with those of all clients. Its
originality is the distance to the nearest other client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, to_numpy
from flanders.filters.fingerprint.crowd import Company, measure_company
from flanders.filters.fingerprint.memory import Signatures
from flanders.linalg.products import cosines_of_gram, gram, lengths_of_gram, products_with
from flanders.linalg.quadratic import inverse_squares
from flanders.round import Round, check_continued

CHANNELS = ("fingerprint", "length", "heading", "originality", "any length", "any heading", "novelty", "company")
"""The names of the channels. A channel has the answers of all clients to one question. It is a column of
`Answers.values`."""
FINGERPRINT, LENGTH, HEADING, ORIGINALITY, ANY_LENGTH, ANY_HEADING, NOVELTY, COMPANY = range(8)
OF_THE_KNOWN = np.array([True, True, True, True, False, False, True, True])
"""The channels by which a client with a mark is judged."""
OF_THE_NEW = np.array([False, False, False, True, True, True, True, True])
"""The channels by which a client without a mark is judged."""
OWN, ANY = np.array([LENGTH, HEADING]), np.array([ANY_LENGTH, ANY_HEADING])
"""The channels of length and heading. `OWN` compares a client with its own past, and `ANY` with all clients."""
LONGEST_ABSENCE = 30
"""After an absence of this many rounds, the allowed deviation of a client's length and heading stops growing.

Until then the allowed deviation grows with the square root of the number of rounds, since lengths and headings
drift like a random walk.
"""
LEAST_SQUARE = 1e-60
"""An update with a smaller squared length counts as zero. Its direction cannot be computed in float32."""
SAME = 1e-6
"""Two directions count as the same if their cosine is this close to 1. Rounding errors of float32 are smaller."""
FEWEST_OTHERS = 3
"""There is a fingerprint only if an update can be compared with the marks of at least this many other clients. The
standard deviation of fewer inner products is not known well enough."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to the questions about the m updates of a round."""

    values: FloatMatrix
    """The answers, with a row for each client and a column for each channel; NaN where there is no answer."""
    asked: BoolVector
    """By which channels each client is judged: true or false for each number in `values`."""
    products: FloatMatrix
    """`(m, m)`: the inner products of the updates."""
    scale: FloatVector
    """`(m,)`: the factor by which the allowed deviation of a client's length and heading is multiplied.

    It is 1 for a client without a mark, and for a client that was accepted in the last round. Otherwise it grows
    with the number of rounds since the client was last accepted; see `LONGEST_ABSENCE`.
    """
    likeness: FloatVector
    """`(m,)`: each update's cosine with its sender's mark; NaN if the sender has no mark."""
    moved: BoolVector
    """`(m,)`: which updates are not zero."""
    nearest: FloatVector
    """`(m,)`: log(1 - cosine) of each update and the update most similar to it; NaN if no client has a mark."""
    typical: tuple[float, float] = (math.nan, math.nan)
    """The typical log length and the typical heading of the round; NaN until they are known."""
    company: Company | None = None
    """How much each client has in common with the clients whose fingerprint passes; None until it is known."""

    @property
    def relative(self) -> FloatMatrix:
        """The values, with the typical log length and heading of the round subtracted from lengths and headings."""
        return self.relative_to(np.array(self.typical))

    def relative_to(self, level: FloatVector) -> FloatMatrix:
        """Return the values, with `level` (a log length and a heading) subtracted from lengths and headings."""
        relative = self.values.copy()
        for columns in (OWN, ANY):
            relative[:, columns] -= level
        relative[:, OWN] /= self.scale[:, None]
        return relative

    def in_company(self, group: BoolVector) -> Answers:
        """Return the answers with the channel `company` filled in: each client's mean cosine with a group."""
        values, company = self.values.copy(), measure_company(self.products, group)
        values[:, COMPANY] = company.common
        return replace(self, values=values, company=company)


def ask_questions(known: Signatures, round_: Round, number: int) -> Answers:
    """Return the answers for round `number`, from its updates and what is remembered of the clients."""
    m = len(round_.clients)
    values, known_rows = np.full((m, len(CHANNELS)), np.nan), np.zeros(m, dtype=bool)
    if known.marks is None:
        products = gram(round_.updates, round_.global_model)
        values[:, ANY_LENGTH] = np.log(lengths_of_gram(products))
        moved, nan = np.diagonal(products) > LEAST_SQUARE, np.full(m, np.nan)
        nothing_asked = np.zeros(values.shape, dtype=bool)
        return Answers(values, nothing_asked, products, np.ones(m), nan, moved, nan)
    check_continued(round_, known.crowd)
    assert known.usual is not None
    assert known.accepted is not None
    row_of = {client: row for row, client in enumerate(known.clients)}
    rows = np.array([i for i, c in enumerate(round_.clients) if c in row_of], dtype=np.int64)
    places = np.array([row_of[round_.clients[i]] for i in rows], dtype=np.int64)
    marks, at, old = known.marks_to_compare_with(places)
    directions = [marks, known.crowd[None, :]] + ([] if known.refused is None else [known.refused])
    count, d = sum(piece.shape[0] for piece in directions), round_.updates.shape[1]
    few = d < count - old
    skip = old if known.between is None and not few else count
    products, along, between = products_with(round_.updates, directions, round_.global_model, skip=skip)
    lengths = lengths_of_gram(products)
    along /= lengths[:, None]
    if few:
        now, g, *last = (to_numpy(x).astype(np.float64) for x in (round_.updates, round_.global_model, *directions))
        values[:, NOVELTY] = novelty_in_few_parameters((now - g) / lengths[:, None], np.concatenate(last)[old:])
    else:
        values[:, NOVELTY] = novelty(along[:, old:], between if known.between is None else known.between)
    among = along[np.ix_(rows, at)]
    values[:, ANY_LENGTH] = np.log(lengths)
    values[:, ANY_HEADING] = along[:, marks.shape[0]]
    values[rows, FINGERPRINT] = standing_out(among)
    values[np.ix_(rows, OWN)] = values[np.ix_(rows, ANY)] - known.usual[places]
    apart = apartness(products)
    values[:, ORIGINALITY] = originality(apart, values[:, FINGERPRINT])
    known_rows[rows] = True
    asked = np.where(known_rows[:, None], OF_THE_KNOWN, OF_THE_NEW)
    scale, likeness = np.ones(m), np.full(m, np.nan)
    likeness[rows] = np.diagonal(among)
    scale[rows] = np.sqrt(np.clip(number - known.accepted[places], 1, LONGEST_ABSENCE))
    moved = np.diagonal(products) > LEAST_SQUARE
    return Answers(values, asked, products, scale, likeness, moved, apart.min(axis=1))


def standing_out(among: FloatMatrix) -> FloatVector:
    """Return how far each number on the diagonal is above the mean of the other numbers in its row.

    The unit is the standard deviation of the other numbers. The results are NaN if the matrix is too small.
    """
    n = among.shape[0]
    if n <= FEWEST_OTHERS:
        return np.full(n, np.nan)
    others = among[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    above: FloatVector = (np.diagonal(among) - others.mean(axis=1)) / np.maximum(others.std(axis=1, ddof=1), 1e-12)
    return above


def novelty(along: FloatMatrix, between: FloatMatrix) -> FloatVector:
    """Return, for each direction, log(squared distance to the nearest weighted sum of the remembered directions).

    `along` has the inner products of the directions with the remembered directions. `between` has the inner
    products of the remembered directions with each other.
    """
    explained = inverse_squares(between + SAME * np.eye(len(between)), along.T)
    return np.asarray(np.log(np.maximum(1.0 - explained, SAME)))


def novelty_in_few_parameters(directions: FloatMatrix, remembered: FloatMatrix) -> FloatVector:
    r"""Return what `novelty` returns, from the directions, `(m, d)`, and the remembered directions, `(n, d)`.

    This is faster if there are fewer parameters than remembered directions. Let v be a direction, let the rows of R
    be the remembered directions, and let :math:`\epsilon` be `SAME`. Then the identity of Woodbury says that
    :math:`v^T R^T (R R^T + \epsilon I)^{-1} R v = v^T v - \epsilon\, v^T (R^T R + \epsilon I)^{-1} v`.
    """
    spread = remembered.T @ remembered + SAME * np.eye(remembered.shape[1])
    explained = (directions**2).sum(axis=1) - SAME * inverse_squares(spread, directions.T)
    return np.asarray(np.log(np.maximum(1.0 - explained, SAME)))


def apartness(products: FloatMatrix) -> FloatMatrix:
    """Return how far apart every two directions are, as log(1 - cosine). The diagonal is infinity.

    On this scale, copies are clearly apart from updates that are only similar.
    """
    apart = np.log(np.maximum(1.0 - cosines_of_gram(products), SAME))
    np.fill_diagonal(apart, np.inf)
    return apart


def originality(apart: FloatMatrix, fingerprints: FloatVector) -> FloatVector:
    """Return how far each update is from the nearest update with a higher fingerprint, as log(1 - cosine).

    The result is NaN if no fingerprint is higher. A client without a fingerprint is compared with all others.
    """
    clearer = fingerprints[None, :] > fingerprints[:, None]
    clearer[np.isnan(fingerprints)] = True
    np.fill_diagonal(clearer, False)
    return np.where(clearer.any(axis=1), np.where(clearer, apart, np.inf).min(axis=1), np.nan)
