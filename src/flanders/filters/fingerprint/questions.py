r"""Whether an update looks like its sender's own: the evidence behind `Fingerprint()`.

A client's data leave a mark on everything it sends. With :math:`u_c` the displacement of client c's model from
the global model, and :math:`\bar u` the mean of the unit displacements of the clients accepted in that round, its
mark is the direction in which it differed from them when it was last accepted,

.. math:: e_c \propto \frac{u_c}{\|u_c\|} - \frac{\langle u_c, \bar u\rangle}{\|u_c\|\,\|\bar u\|^2}\, \bar u,
          \qquad \|e_c\| = 1.

Six things are asked of a new update:

- *fingerprint*: is it more like its sender's mark than like the other clients'? The inner product with its own
  mark, in standard deviations above those with the others' marks. Whoever sends what was not learnt from this
  client's data has no reason to score above zero here, however many others do the same.
- *length* and *heading*: is it as long as its sender's usually are, and does it go with the crowd (the mean
  direction of the clients accepted last) as far as its sender usually does, next to what is typical of the round?
  Typical is where most of those lie whose fingerprint passes, near the last round's.
- *originality*: does somebody with a clearer fingerprint send nearly the same? Of clients that all send one crafted
  model, or copy an honest client, at most the one whom it fits best passes, and only if it fits well: against whom
  others copy, a doubt about the mark counts twice.
- *novelty*: is there something new in it? Training on data always adds what nobody has sent before: the share of
  the direction that no sum of the last round's updates makes up, dropped ones included. Who sends a forecast, a
  replay or a mixture of what it has seen has none.
- *company*: is it one of a crowd that has more in common than accepted updates ever had, and that stands apart from
  the rest of those who look like themselves? It finds a majority that adds one pull to everyone's own update. If
  what all have in common has risen, there is no such crowd.

A client without a mark is asked whether its length and its heading are usual for anyone, whether anybody sends
nearly the same, and for novelty and company.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, index_like
from flanders.filters.fingerprint.crowd import Company, company
from flanders.linalg.products import cosines_of_gram, gram, lengths_of_gram, less_their_mean, products_with
from flanders.linalg.robust import robust_spread
from flanders.round import ClientId, Round, check_continued
from flanders.state import saveable

MEMORY = 5
"""Rounds whose accepted clients are the reference."""
REMEMBERED = 10
"""Clients are forgotten when so many rounds' worth of others were accepted since: ids may be free."""
CHANNELS = ("fingerprint", "length", "heading", "originality", "any length", "any heading", "novelty", "company")
FINGERPRINT, LENGTH, HEADING, ORIGINALITY, ANY_LENGTH, ANY_HEADING, NOVELTY, COMPANY = range(8)
OF_THE_KNOWN = np.array([True, True, True, True, False, False, True, True])
"""What clients with a mark are asked; the others are asked the rest, and what needs no mark."""
OWN, ANY = np.array([LENGTH, HEADING]), np.array([ANY_LENGTH, ANY_HEADING])
"""The same two, compared with the client's own past and with everybody's."""
OLDEST = 30
"""Rounds since a client was accepted that count: lengths and headings wander, as far as the root of the time."""
LEAST_SQUARE = 1e-60
"""Of a shorter update, or none, there is no unit vector in float32."""
SAME = 1e-6
"""Directions whose cosine is this close to 1 count as the same."""
FEWEST_OTHERS = 3
"""A fingerprint stands out from at least so many others'."""
NOTHING_IN_COMMON = (math.inf, 1.0)
"""The lowest middle and spread of what clients have in common, before any is known."""


@saveable
@dataclass(frozen=True, eq=False)
class Signatures:
    """What is remembered of the clients accepted so far."""

    clients: tuple[ClientId, ...] = ()
    marks: Array = None
    """`(K, d)`, unit vectors."""
    usual: FloatMatrix | None = None
    """`(K, 2)`: each client's usual log length and heading, relative to its round's typical ones."""
    crowd: Array = None
    """`(d,)`: the mean direction of the clients accepted last, a unit vector."""
    typical: tuple[float, float] = (0.0, 0.0)
    """The log length and the heading of the last round's typical update."""
    lowest: tuple[float, float] = (math.inf, math.inf)
    """The lowest typical ones so far."""
    company: tuple[float, float] = NOTHING_IN_COMMON
    """The lowest middle and spread so far of what accepted clients had in common."""
    accepted: IntVector | None = None
    """`(K,)`: the round in which each client was accepted last."""
    past: tuple[FloatMatrix, ...] = ()
    """What the clients accepted in the last rounds answered, `(n, channels)` each."""
    failures: int = 0
    """How many rounds in a row kept too few."""
    refused: Array = None
    """`(n, d)`: the directions of the updates that were dropped in the last round; None if none was."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What a round's clients answer."""

    values: FloatMatrix
    """`(m, channels)`; NaN where there is no answer. Lengths (logarithms) and headings are not yet relative."""
    asked: NDArray[np.bool_]
    """`(m, channels)`: which of them a client is judged by."""
    products: FloatMatrix
    """`(m, m)`: inner products of the displacements."""
    scale: FloatVector
    """`(m,)`: how much farther than in one round lengths and headings may have come since a client was accepted."""
    likeness: FloatVector
    """`(m,)`: each update's cosine with its sender's mark; NaN if that has none."""
    moved: NDArray[np.bool_]
    """`(m,)`: whose updates are not zero; the others have no direction."""
    nearest: FloatVector
    """`(m,)`: how far apart the nearest other update's direction is; NaN where nothing is judged yet."""
    typical: tuple[float, float] = (math.nan, math.nan)
    """The round's typical log length and heading; NaN while they are not known."""
    company: Company | None = None
    """What they have in common with those who look like themselves; None while these are not known."""

    @property
    def relative(self) -> FloatMatrix:
        """The values, with lengths and headings relative to the round's typical ones."""
        return self.relative_to(np.array(self.typical))

    def relative_to(self, level: FloatVector) -> FloatMatrix:
        """Return the values, with lengths and headings relative to a level of both."""
        relative = self.values.copy()
        for columns in (OWN, ANY):
            relative[:, columns] -= level
        relative[:, OWN] /= self.scale[:, None]
        return relative

    def in_company(self, group: NDArray[np.bool_]) -> Answers:
        """Return the answers with what each client has in common with the others of a group."""
        values, found = self.values.copy(), company(self.products, group)
        values[:, COMPANY] = found.common
        return replace(self, values=values, company=found)


def ask(known: Signatures, round_: Round, number: int) -> Answers:
    """Measure the updates of the round of that number against what is remembered."""
    m = len(round_.clients)
    values, known_rows = np.full((m, len(CHANNELS)), np.nan), np.zeros(m, dtype=bool)
    if known.marks is None:
        products = gram(round_.updates, round_.global_model)
        values[:, ANY_LENGTH] = np.log(lengths_of_gram(products))
        moved, nan = np.diagonal(products) > LEAST_SQUARE, np.full(m, np.nan)
        return Answers(values, values > np.inf, products, np.ones(m), nan, moved, nan)
    check_continued(round_, known.crowd)
    assert known.usual is not None
    assert known.accepted is not None
    row_of = {client: row for row, client in enumerate(known.clients)}
    rows = np.array([i for i, c in enumerate(round_.clients) if c in row_of], dtype=np.int64)
    places = np.array([row_of[round_.clients[i]] for i in rows], dtype=np.int64)
    marks, at, old = marks_to_compare_with(known, places)
    directions = [marks, known.crowd[None, :]] + ([] if known.refused is None else [known.refused])
    products, along, between = products_with(round_.updates, directions, round_.global_model, skip=old)
    lengths = lengths_of_gram(products)
    along /= lengths[:, None]
    values[:, NOVELTY] = novelty(along[:, old:], between)
    among = along[np.ix_(rows, at)]
    values[:, ANY_LENGTH] = np.log(lengths)
    values[:, ANY_HEADING] = along[:, marks.shape[0]]
    values[rows, FINGERPRINT] = standing_out(among)
    values[np.ix_(rows, OWN)] = values[np.ix_(rows, ANY)] - known.usual[places]
    apart = apartness(products)
    values[:, ORIGINALITY] = originality(apart, values[:, FINGERPRINT])
    known_rows[rows] = True
    of_the_new = ~OF_THE_KNOWN
    of_the_new[[ORIGINALITY, NOVELTY, COMPANY]] = True
    asked = np.where(known_rows[:, None], OF_THE_KNOWN, of_the_new)
    scale, likeness = np.ones(m), np.full(m, np.nan)
    likeness[rows] = np.diagonal(among)
    scale[rows] = np.sqrt(np.clip(number - known.accepted[places], 1, OLDEST))
    moved = np.diagonal(products) > LEAST_SQUARE
    return Answers(values, asked, products, scale, likeness, moved, apart.min(axis=1))


def marks_to_compare_with(known: Signatures, places: IntVector) -> tuple[Array, IntVector, int]:
    """Return the marks at these places and, at the end, those of all clients accepted last.

    Also where in them those of the places are, and how many come before the newest ones. If these are most marks
    anyway, they are all returned, for that takes no copy.
    """
    assert known.accepted is not None
    newest = np.flatnonzero(known.accepted == known.accepted.max())  # at the end there, too
    wanted = np.concatenate([np.setdiff1d(places, newest), newest])
    if 2 * wanted.size >= len(known.clients):
        return known.marks, places, len(known.clients) - newest.size
    at = np.zeros(len(known.clients), dtype=np.int64)
    at[wanted] = np.arange(wanted.size)
    return rows_of(known.marks, wanted), at[places], wanted.size - newest.size


def learn(known: Signatures, round_: Round, number: int, kept: IntVector, answers: Answers | None) -> Signatures:
    """Return what is known after a round whose `kept` clients were accepted."""
    if answers is None:
        answers = ask(known, round_, number)
    if kept.size == 0:
        return replace(known, failures=known.failures + 1, refused=None)
    dropped = np.setdiff1d(np.arange(len(round_.clients)), kept)
    kept, dropped = (
        kept[answers.moved[kept]],
        dropped[answers.moved[dropped]],
    )  # there is no mark without a direction
    if kept.size < 2:  # a mark is what tells a client from others
        typical = known.typical if math.isnan(answers.typical[0]) else answers.typical
        return replace(known, typical=typical, failures=0, refused=None)
    if math.isnan(answers.typical[0]):  # nobody was judged: the middle of all
        own, any_ = answers.values[np.ix_(kept, OWN)], answers.values[np.ix_(kept, ANY)]
        length, heading = np.median(np.nan_to_num(np.where(np.isnan(own), any_, own)), axis=0).tolist()
        group = np.isin(np.arange(len(round_.clients)), kept)
        answers = replace(answers.in_company(group), typical=(length, heading))
    marks, crowd = new_marks(round_, kept, answers.products)
    refused = directions_of(round_, dropped, answers.products)
    senders, relative = [round_.clients[i] for i in kept], answers.relative[kept]
    now = np.nan_to_num(relative[:, ANY])
    if known.marks is None:
        return Signatures(tuple(senders), marks, now, crowd, answers.typical, accepted=np.full(kept.size, number))
    assert known.usual is not None
    assert known.accepted is not None
    usual = dict(zip(known.clients, known.usual, strict=True))
    when = dict(zip(known.clients, known.accepted.tolist(), strict=True)) | dict.fromkeys(senders, number)
    for i, client in enumerate(senders):
        usual[client] = (usual.pop(client, now[i]) + now[i]) / 2  # to the end: accepted last
    most = max(REMEMBERED * len(round_.clients), len(known.clients))  # a small round makes nobody forgotten
    for client in list(usual)[:-most]:
        del usual[client]
    past = (*known.past, relative)[-MEMORY:]
    absent = set(usual) - set(senders)
    older = np.array([row for row, client in enumerate(known.clients) if client in absent], dtype=np.int64)
    if older.size:
        xp = array_api_compat.array_namespace(marks)
        marks = xp.concat([rows_of(known.marks, older), marks])
    return Signatures(
        tuple(usual),
        marks,
        np.stack(list(usual.values())),
        crowd,
        answers.typical,
        lower(known.lowest, answers.typical),
        lower(known.company, in_common(past)),
        np.array([when[client] for client in usual]),
        past,
        refused=refused,
    )


def in_common(past: Sequence[FloatMatrix]) -> tuple[float, float]:
    """Return middle and spread of what the clients of some rounds had in common.

    The spread is that within rounds: a majority that adds bit by bit would hide in the one from round to round.
    """
    rounds = [common for rows in past if not np.isnan(common := rows[:, COMPANY]).any()]
    if not rounds:
        return NOTHING_IN_COMMON
    within = np.concatenate([common - np.median(common) for common in rounds])
    return float(np.median(np.concatenate(rounds))), robust_spread(within, 0.0)


def lower(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Return the lower ones of two pairs."""
    return min(a[0], b[0]), min(a[1], b[1])


def directions_of(round_: Round, rows: IntVector, products: FloatMatrix) -> Array | None:
    """Return these clients' displacements as unit vectors; None if there are none of them."""
    if rows.size == 0:
        return None
    zero, scale = np.zeros(rows.size), 1.0 / lengths_of_gram(products)[rows]
    return less_their_mean(round_.updates, rows, round_.global_model, zero, scale, zero)[0]


def new_marks(round_: Round, kept: IntVector, products: FloatMatrix) -> tuple[Array, Array]:
    """Return the marks that the kept clients' updates leave, and the mean of their directions, as unit vectors."""
    lengths = lengths_of_gram(products)[kept]
    cosines = cosines_of_gram(products[np.ix_(kept, kept)])
    with_mean, mean_square = cosines.mean(axis=1), max(float(cosines.mean()), 1e-12)
    left = np.sqrt(np.maximum(1.0 - with_mean**2 / mean_square, 1e-12))
    weights, factors, shares = 1.0 / lengths / kept.size, 1.0 / lengths / left, with_mean / mean_square / left
    marks, mean = less_their_mean(round_.updates, kept, round_.global_model, weights, factors, shares)
    return marks, mean / mean_square**0.5


def rows_of(matrix: Array, rows: IntVector) -> Array:
    """Return these rows."""
    return array_api_compat.array_namespace(matrix).take(matrix, index_like(rows, matrix), axis=0)


def standing_out(among: FloatMatrix) -> FloatVector:
    """Return how far each number on the diagonal is above the others of its row, in their standard deviations."""
    n = among.shape[0]
    if n <= FEWEST_OTHERS:
        return np.full(n, np.nan)
    others = among[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    above: FloatVector = (np.diagonal(among) - others.mean(axis=1)) / np.maximum(others.std(axis=1, ddof=1), 1e-12)
    return above


def novelty(along: FloatMatrix, between: FloatMatrix) -> FloatVector:
    """Return the logarithm of the share of each direction that no sum of the remembered ones makes up.

    `along` are its inner products with them, `between` theirs with each other.
    """
    explained = (along * np.linalg.solve(between + SAME * np.eye(len(between)), along.T).T).sum(axis=1)
    return np.asarray(np.log(np.maximum(1.0 - explained, SAME)))


def apartness(products: FloatMatrix) -> FloatMatrix:
    """Return how far apart directions are, as log(1 - cosine), infinitely far from themselves.

    Copies are told from clients who are merely alike by orders of magnitude.
    """
    apart = np.log(np.maximum(1.0 - cosines_of_gram(products), SAME))
    np.fill_diagonal(apart, np.inf)
    return apart


def originality(apart: FloatMatrix, fingerprints: FloatVector) -> FloatVector:
    """Return how far each client is from the nearest one of a clearer fingerprint (without one, from anybody)."""
    clearer = fingerprints[None, :] > fingerprints[:, None]
    clearer[np.isnan(fingerprints)] = True
    np.fill_diagonal(clearer, False)
    return np.where(clearer.any(axis=1), np.where(clearer, apart, np.inf).min(axis=1), np.nan)
