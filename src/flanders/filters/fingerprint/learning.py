"""Updates the memory of `Fingerprint` and `Guard` after a round.

The module `memory` says what is remembered. It also explains the words accepted, mark, heading, company and common
direction. An answer is a number that the module `questions` computes from an update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, IntVector
from flanders.client_memory import newest_clients
from flanders.filters.fingerprint.memory import NO_COMPANY, Signatures
from flanders.filters.fingerprint.questions import ANY, COMPANY, OWN, Answers
from flanders.linalg.products import cosines_of_gram, lengths_of_gram, less_their_mean
from flanders.linalg.robust import robust_spread
from flanders.linalg.selection import take_rows
from flanders.round import Round

LEAST_LEFT = 1e-4
"""The direction of an update is the sum of a part along the common direction and a remainder. The inner products of
marks are computed from cosines only if the remainder of each update has at least this squared length. A large part
of a shorter remainder would be rounding errors."""
REFERENCE_ROUNDS = 5
"""The answers of accepted clients are remembered for this many rounds. New answers are compared with them.
Older answers may no longer be usual, since training goes on."""


def learn_round(known: Signatures, round_: Round, number: int, kept: IntVector, answers: Answers) -> Signatures:
    """Return the memory after round `number`, in which the rows `kept` were accepted."""
    if kept.size == 0:
        return replace(known, failures=known.failures + 1, refused=None, between=None)
    if not known.is_large_enough(len(round_.clients), number):
        return known
    dropped = np.setdiff1d(np.arange(len(round_.clients)), kept)
    kept, dropped = kept[answers.moved[kept]], dropped[answers.moved[dropped]]  # an update of zero has no direction
    if kept.size < 2:  # a mark is a difference from other clients
        typical = known.typical if math.isnan(answers.typical[0]) else answers.typical
        return replace(known, typical=typical, failures=0, refused=None, between=None)
    if math.isnan(answers.typical[0]):  # nothing to compare with yet: the median of the kept clients is typical
        own, any_ = answers.values[np.ix_(kept, OWN)], answers.values[np.ix_(kept, ANY)]
        length, heading = np.median(np.nan_to_num(np.where(np.isnan(own), any_, own)), axis=0).tolist()
        group = np.isin(np.arange(len(round_.clients)), kept)
        answers = replace(answers.in_company(group), typical=(length, heading))
    marks, crowd = new_marks(round_, kept, answers.products)
    refused = directions_of(round_, dropped, answers.products)
    senders, relative = [round_.clients[i] for i in kept], answers.relative[kept]
    now = np.nan_to_num(relative[:, ANY])
    if known.marks is None:
        between, when_first = products_between(round_, answers.products, kept), np.full(kept.size, number)
        return Signatures(tuple(senders), marks, now, crowd, answers.typical, accepted=when_first, between=between)
    assert known.usual is not None
    assert known.accepted is not None
    before = dict(zip(known.clients, known.usual, strict=True))
    learned = {client: (before.get(client, row) + row) / 2 for client, row in zip(senders, now, strict=True)}
    usual = newest_clients(before, learned, len(round_.clients))
    when = dict(zip(known.clients, known.accepted.tolist(), strict=True)) | dict.fromkeys(senders, number)
    past = (*known.past, relative)[-REFERENCE_ROUNDS:]
    absent = set(usual) - set(senders)
    older = np.array([row for row, client in enumerate(known.clients) if client in absent], dtype=np.int64)
    if older.size:
        xp = array_api_compat.array_namespace(marks)
        marks = xp.concat([take_rows(known.marks, older), marks])
    return Signatures(
        tuple(usual),
        marks,
        np.stack(list(usual.values())),
        crowd,
        answers.typical,
        lower_of_both(known.lowest, answers.typical),
        lower_of_both(known.company, company_in(past)),
        np.array([when[client] for client in usual]),
        past,
        refused=refused,
        between=products_between(round_, answers.products, kept, dropped),
    )


def company_in(past: Sequence[FloatMatrix]) -> tuple[float, float]:
    """Return the median and the spread of the accepted clients' company in the last rounds.

    The spread is computed from each client's difference from the median of its round. Otherwise attackers could
    widen the spread by an attack that grows from round to round.
    """
    rounds = [common for rows in past if not np.isnan(common := rows[:, COMPANY]).any()]
    if not rounds:
        return NO_COMPANY
    within = np.concatenate([common - np.median(common) for common in rounds])
    return float(np.median(np.concatenate(rounds))), robust_spread(within, 0.0)


def lower_of_both(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Return the lower of the two first numbers, and the lower of the two second numbers."""
    return min(a[0], b[0]), min(a[1], b[1])


def directions_of(round_: Round, rows: IntVector, products: FloatMatrix) -> Array | None:
    """Return the updates of these rows as unit vectors, or None if there are no rows."""
    if rows.size == 0:
        return None
    zero, scale = np.zeros(rows.size), 1.0 / lengths_of_gram(products)[rows]
    return less_their_mean(round_.updates, rows, round_.global_model, zero, scale, zero)[0]


def products_between(
    round_: Round, products: FloatMatrix, kept: IntVector, dropped: IntVector | None = None
) -> FloatMatrix | None:
    r"""Return the inner products between the marks of the kept clients, `crowd` and `refused` (see `Signatures`).

    All these vectors are weighted sums of the round's updates. So their products follow from the cosines :math:`C`
    between the updates. Let :math:`a_i` be the mean of :math:`C_{ij}` over the kept clients j, let s be the mean of
    all :math:`a_i`, and let :math:`l_i` be the square root of :math:`1 - a_i^2 / s`. Then the product of two marks
    is :math:`(C_{ij} - a_i a_j / s) / (l_i l_j)`. Each mark is orthogonal to the common direction.

    Return None if rounding errors would be too large (`LEAST_LEFT`). Also return None if the model has fewer
    parameters than there are vectors, since `novelty_in_few_parameters` does not need the products.
    """
    rows = kept if dropped is None else np.concatenate([kept, dropped])
    if round_.updates.shape[1] < rows.size + 1:
        return None
    k, cosines = kept.size, cosines_of_gram(products)[np.ix_(rows, rows)]
    with_mean = cosines[:, :k].mean(axis=1)
    mean_square = float(with_mean[:k].mean())
    left = 1.0 - with_mean[:k] ** 2 / max(mean_square, 1e-12)
    if min(mean_square, float(left.min())) < LEAST_LEFT:
        return None
    left, root = np.sqrt(left), mean_square**0.5
    marks, others = slice(0, k), slice(k + 1, rows.size + 1)
    between = np.eye(rows.size + 1)
    own = cosines[:k, :k] - np.outer(with_mean[:k], with_mean[:k]) / mean_square
    between[marks, marks] = own / np.outer(left, left)
    across = cosines[:k, k:] - np.outer(with_mean[:k], with_mean[k:]) / mean_square
    between[marks, others] = across / left[:, None]
    between[others, marks] = between[marks, others].T
    between[k, others] = between[others, k] = with_mean[k:] / root
    between[others, others] = cosines[k:, k:]
    return between


def new_marks(round_: Round, kept: IntVector, products: FloatMatrix) -> tuple[Array, Array]:
    """Return the marks of the kept clients and their common direction, all as unit vectors."""
    lengths = lengths_of_gram(products)[kept]
    cosines = cosines_of_gram(products[np.ix_(kept, kept)])
    with_mean, mean_square = cosines.mean(axis=1), max(float(cosines.mean()), 1e-12)
    left = np.sqrt(np.maximum(1.0 - with_mean**2 / mean_square, 1e-12))
    weights, factors, shares = 1.0 / lengths / kept.size, 1.0 / lengths / left, with_mean / mean_square / left
    marks, mean = less_their_mean(round_.updates, kept, round_.global_model, weights, factors, shares)
    return marks, mean / mean_square**0.5
