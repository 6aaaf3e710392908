r"""What `Fingerprint` asks about each update of a round.

A client's data leave a mark on everything that it sends. Let :math:`u_c` be the displacement of client c's model
from the global model, and :math:`\bar u` the mean of the unit displacements of the clients accepted in that round.
The mark of the client is the direction in which it differed from this mean when it was last accepted:

.. math:: e_c \propto \frac{u_c}{\|u_c\|} - \frac{\langle u_c, \bar u\rangle}{\|u_c\|\,\|\bar u\|^2}\, \bar u,
          \qquad \|e_c\| = 1.

There are six questions:

- *fingerprint*: is the update more like its sender's mark than like the other clients' marks? The answer compares
  its inner product with its sender's mark to those with the others' marks: by how many standard deviations is it
  above their mean? An update that was not learnt from this client's data has no reason to be above zero here, even
  if many clients send the same update.
- *length* and *heading*: is the update as long as its sender's updates usually are? And does it point in the
  direction of the others as much as they usually do? This direction is the mean direction of the clients accepted
  last. Both answers are relative to what is typical of the round. The typical length and heading are those that
  most clients have, among the clients whose fingerprint passes. They cannot be far from those of the last round.
- *originality*: does a client with a clearer fingerprint send nearly the same? Several clients may send the same
  crafted model, or copy an honest client. At most one of them passes: the client with the clearest fingerprint. If
  others send nearly the same as a client, a deviation of its fingerprint counts twice.
- *novelty*: is there something new in the update? Training on data always adds something that nobody has sent
  before. The answer is the share of its direction that is not a weighted sum of the last round's updates, including
  dropped ones. In a forecast, a replay or a mixture of earlier updates this share is zero.
- *company*: is the client part of a crowd? A crowd has more in common than accepted clients ever had, and it is
  clearly apart from the other clients whose fingerprint passes. This finds a majority that adds the same pull to
  each client's own update. If all clients have more in common than before, there is no such crowd.

A client without a mark is asked about novelty and company, whether its length and its heading are usual for any
client, and whether any client sends nearly the same.
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
"""The names of the answers. Each is a column of `Answers.values`."""
FINGERPRINT, LENGTH, HEADING, ORIGINALITY, ANY_LENGTH, ANY_HEADING, NOVELTY, COMPANY = range(8)
OF_THE_KNOWN = np.array([True, True, True, True, False, False, True, True])
"""The channels by which a client with a mark is judged."""
OF_THE_NEW = np.array([False, False, False, True, True, True, True, True])
"""The channels by which a client without a mark is judged."""
OWN, ANY = np.array([LENGTH, HEADING]), np.array([ANY_LENGTH, ANY_HEADING])
"""Length and heading, compared with the client's own past (OWN) and with everybody's (ANY)."""
LONGEST_ABSENCE = 30
"""After a client was away for this many rounds, the allowed deviation of lengths and headings stops growing.

Until then it grows with the square root of the rounds, since lengths and headings drift like a random walk.
"""
LEAST_SQUARE = 1e-60
"""An update with a smaller squared length has no direction: float32 cannot hold its unit vector."""
SAME = 1e-6
"""Two directions count as the same if their cosine is this close to 1."""
FEWEST_OTHERS = 3
"""A fingerprint is compared with the marks of at least this many other clients, or there is no answer."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of the clients of a round."""

    values: FloatMatrix
    """`(m, channels)`; NaN where there is no answer. Lengths are logarithms, headings are cosines."""
    asked: BoolVector
    """`(m, channels)`: by which channels each client is judged."""
    products: FloatMatrix
    """`(m, m)`: inner products of the displacements."""
    scale: FloatVector
    """`(m,)`: by which factor lengths and headings may deviate more than in one round, since a client was away."""
    likeness: FloatVector
    """`(m,)`: each update's cosine with its sender's mark; NaN if the sender has none."""
    moved: BoolVector
    """`(m,)`: which updates are not zero. The others have no direction."""
    nearest: FloatVector
    """`(m,)`: how far the direction is from the nearest other one, as log(1 - cosine); NaN without any marks."""
    typical: tuple[float, float] = (math.nan, math.nan)
    """The round's typical log length and heading; NaN until they are known."""
    company: Company | None = None
    """What the clients have in common with those whose fingerprint passes; None until these are known."""

    @property
    def relative(self) -> FloatMatrix:
        """The values, with lengths and headings relative to the round's typical ones."""
        return self.relative_to(np.array(self.typical))

    def relative_to(self, level: FloatVector) -> FloatMatrix:
        """Return the values, with lengths and headings relative to this level of both."""
        relative = self.values.copy()
        for columns in (OWN, ANY):
            relative[:, columns] -= level
        relative[:, OWN] /= self.scale[:, None]
        return relative

    def in_company(self, group: BoolVector) -> Answers:
        """Return the answers together with what each client has in common with the others of a group."""
        values, found = self.values.copy(), measure_company(self.products, group)
        values[:, COMPANY] = found.common
        return replace(self, values=values, company=found)


def ask_questions(known: Signatures, round_: Round, number: int) -> Answers:
    """Measure the updates of round `number` against what is remembered."""
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
    products, along, between = products_with(
        round_.updates, directions, round_.global_model, skip=count if few else old
    )
    lengths = lengths_of_gram(products)
    along /= lengths[:, None]
    if few:
        now, g, *last = (to_numpy(x).astype(np.float64) for x in (round_.updates, round_.global_model, *directions))
        values[:, NOVELTY] = novelty_in_few_parameters((now - g) / lengths[:, None], np.concatenate(last)[old:])
    else:
        values[:, NOVELTY] = novelty(along[:, old:], between)
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
    """Return how far each number on the diagonal is above the others of its row, in their standard deviations."""
    n = among.shape[0]
    if n <= FEWEST_OTHERS:
        return np.full(n, np.nan)
    others = among[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    above: FloatVector = (np.diagonal(among) - others.mean(axis=1)) / np.maximum(others.std(axis=1, ddof=1), 1e-12)
    return above


def novelty(along: FloatMatrix, between: FloatMatrix) -> FloatVector:
    """Return the logarithm of the share of each direction that is not a weighted sum of the remembered directions.

    `along` has the inner products of the directions with the remembered ones. `between` has those of the
    remembered ones with each other.
    """
    explained = inverse_squares(between + SAME * np.eye(len(between)), along.T)
    return np.asarray(np.log(np.maximum(1.0 - explained, SAME)))


def novelty_in_few_parameters(directions: FloatMatrix, remembered: FloatMatrix) -> FloatVector:
    r"""Return `novelty` from the directions themselves, `(m, d)`, and the remembered ones, `(n, d)`.

    This is faster if there are fewer parameters than remembered directions. By the identity of Woodbury,
    :math:`v^T R^T (R R^T + \epsilon I)^{-1} R v = v^T v - \epsilon\, v^T (R^T R + \epsilon I)^{-1} v`.
    """
    spread = remembered.T @ remembered + SAME * np.eye(remembered.shape[1])
    explained = (directions**2).sum(axis=1) - SAME * inverse_squares(spread, directions.T)
    return np.asarray(np.log(np.maximum(1.0 - explained, SAME)))


def apartness(products: FloatMatrix) -> FloatMatrix:
    """Return how far apart directions are, as log(1 - cosine); infinity for a direction and itself.

    On this scale copies are orders of magnitude closer than clients that are merely alike.
    """
    apart = np.log(np.maximum(1.0 - cosines_of_gram(products), SAME))
    np.fill_diagonal(apart, np.inf)
    return apart


def originality(apart: FloatMatrix, fingerprints: FloatVector) -> FloatVector:
    """Return how far each client is from the nearest client with a clearer fingerprint.

    A client without a fingerprint is compared with all others.
    """
    clearer = fingerprints[None, :] > fingerprints[:, None]
    clearer[np.isnan(fingerprints)] = True
    np.fill_diagonal(clearer, False)
    return np.where(clearer.any(axis=1), np.where(clearer, apart, np.inf).min(axis=1), np.nan)
