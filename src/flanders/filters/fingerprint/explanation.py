"""Puts the decisions of the filter `Fingerprint` into words: what is suspicious, and in which layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import ANY_LENGTH, FEWEST_OTHERS, LENGTH, Answers
from flanders.linalg.distances import squares_by_layer
from flanders.linalg.products import lengths_of_gram
from flanders.round import Round

MOST_LAYERS = 2
"""At most this many layers are named for one update, so that the text stays short."""
LEAST_SHARE, LEAST_EXCESS = 0.2, 2.0
"""A layer is named if its share of the squared deviation is at least the first number, and at least the second
number times its usual share. The deviation of an update is its difference from the expected update; see
`layers_in_words`."""
NORMAL_CLIENTS = 10
"""The usual share of a layer is the median over at most this many clients that are not suspects. More clients would
hardly change the median, and take longer."""


def reasons_in_words(off: FloatVector, away: FloatVector, suspicious: BoolVector) -> str:
    """Return in words which answers of a client are suspicious, the most suspicious one first.

    A channel has the answers of all clients to one question (see `decision`). The three arguments have an entry for
    each channel. `off` is the client's answer minus the median of the accepted clients' answers, `away` is this
    distance in standard deviations, and `suspicious` says whether it is too large.
    """
    texts = (
        "not its own fingerprint",
        f"{times_as_long(off[LENGTH])} its usual length" if suspicious[LENGTH] else "",
        "heading away from the others",
        "nearly a copy of another client's",
        f"{times_as_long(off[ANY_LENGTH])} the usual length" if suspicious[ANY_LENGTH] else "",
        "heading away from the others",
        "made up of earlier updates",
        "too much in common with the others",
    )
    order = sorted(np.flatnonzero(suspicious), key=lambda i: -away[i])
    return ", ".join(dict.fromkeys(f"{texts[i]} ({away[i]:.1f} sd)" for i in order))


def times_as_long(log_ratio: float) -> str:
    """Return in words how many times as long something is, from the logarithm of this number.

    >>> times_as_long(math.log(3))
    '3 times'
    """
    return f"{math.exp(min(log_ratio, 700.0)):.2g} times"


def layers_in_words(known: Signatures, round_: Round, answers: Answers, suspects: BoolVector) -> dict[int, str]:
    """Return in words, for each suspect's row, in which layers its update differs from what was expected.

    The expected update is a weighted sum of two directions: the mean direction of accepted clients, and the
    client's mark. The mark is the direction in which the client's update differed from this mean when the client
    was last accepted. Suspects without a mark are left out.
    """
    row_of = {client: row for row, client in enumerate(known.clients)}
    marked = np.array([client in row_of for client in round_.clients])
    wrong, right = np.flatnonzero(suspects & marked), np.flatnonzero(~suspects & marked)[:NORMAL_CLIENTS]
    if len(round_.layers) < 2 or wrong.size == 0 or right.size < FEWEST_OTHERS:
        return {}
    assert known.usual is not None
    rows = np.concatenate([wrong, right])
    places = np.array([row_of[round_.clients[i]] for i in rows])
    headings, first_row = known.usual[places, 1] + answers.typical[1], np.zeros_like(rows)
    likeness = np.full(rows.size, np.median(answers.likeness[right]))
    expected = [(headings, known.crowd[None, :], first_row), (likeness, known.marks, places)]
    scale = 1.0 / lengths_of_gram(answers.products)[rows]
    squares = squares_by_layer(round_.updates, rows, round_.global_model, scale, expected, round_.layers)
    texts = name_layers(squares[: wrong.size], squares[wrong.size :], list(round_.layers))
    return dict(zip(wrong.tolist(), texts, strict=True))


def name_layers(squares: FloatMatrix, usual: FloatMatrix, names: Sequence[str]) -> list[str]:
    """Return in words which layers have most of each suspect's deviation, and their usual share of a deviation.

    `squares` has a row for each suspect and a column for each layer: the squared deviation in this layer. `usual`
    has the squared deviations of clients that are not suspects.

    Examples
    --------
    >>> name_layers(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([[9.0, 1.0]]), ["conv", "fc"])
    ['75% of the deviation in fc (usually 10%)', '50% of the deviation in fc (usually 10%)']
    """
    share, ordinary = (x / np.maximum(x.sum(axis=1, keepdims=True), 1e-300) for x in (squares, usual))
    middle = np.median(ordinary, axis=0)
    texts = []
    for row in share:
        large = [i for i in np.argsort(-row)[:MOST_LAYERS] if row[i] >= max(LEAST_SHARE, LEAST_EXCESS * middle[i])]
        texts.append(
            ", ".join(f"{row[i]:.0%} of the deviation in {names[i]} (usually {middle[i]:.0%})" for i in large)
        )
    return texts
