r"""Whom to drop, by what the clients answered: the decision behind `Fingerprint()`.

Each answer is compared with those of the clients accepted in the last rounds, in robust standard deviations (median
and median deviation, which do not notice that the filter has cut off a tail). The largest deviation is the client's
score, and its p-value follows from the heavy tails of Student's t with 5 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, FloatVector
from flanders.filters.filter import Scores
from flanders.filters.fingerprint.explanation import in_which, squares_by_layer
from flanders.filters.fingerprint.questions import (
    ANY,
    ANY_LENGTH,
    COMPANY,
    FEWEST_OTHERS,
    FINGERPRINT,
    LENGTH,
    ORIGINALITY,
    OWN,
    Answers,
    Signatures,
    ask,
)
from flanders.linalg.products import lengths_of_gram
from flanders.linalg.robust import NORMAL, local_false_discovery_rate, robust_spread
from flanders.round import Round

SIDES = np.array([-1, 0, -1, -1, 0, -1, -1, 1])
"""On which side an answer is suspicious: below (-1), above (1), or on both (0)."""
TAILS = 7
"""On so many sides a client may deviate: the allowed rate is shared by them."""
STRANGE = -2.0
"""No client's own update has a fingerprint below this, whatever accepted ones had: strangers' are around zero."""
CLEAR = 10.0
"""Any fingerprint above this will do: it also depends on who else is known, which changes when attackers come."""
WEIGHTS = np.array([1.5, *[1.0] * 6, 1.5])
"""Fingerprints and company have light tails, nearly normal ones: deviations there mean more than elsewhere."""
LEAST_SPREAD = np.array([0.3, 0.02, 0.02, 0.2, 0.02, 0.02, 0.02, 0.02])
"""Standard deviations are taken to be at least this: few clients cannot show less."""
NEARLY_ALL = 0.95
"""Of normal values so many are within 1.96 standard deviations."""
PACE = 0.1
"""How far typical log lengths and headings move in a round, as a rule."""
NEAR = 2.0
"""Who is so many standard deviations from the most typical client is of its kind."""
LARGEST_FALL, LARGEST_RISE = -0.4, 0.3
NO_LOWER = (math.inf, math.inf)
PATIENCE = 1.5
"""How much wider the limits get with each round in a row that kept too few: things may have changed for good."""
COPIED = 2.0
"""How much more doubts about a client's mark count where somebody else sends nearly the same."""
MOST_FAILURES = 30
"""After so many they are as wide as can be."""
ENOUGH = 20
"""So many clients show what is usual; fewer leave a doubt."""
SPREAD_OF_LENGTHS = (0.25, 0.7)
"""What log lengths vary by, at least and at most, from client to client: data and numbers of steps differ.

Nobody needs to send fifty times as much as most, or as usual.
"""
EXAMPLES = 10
"""Accepted clients by which one can tell how deviations are spread over the layers as a rule."""


def judge(known: Signatures, round_: Round, number: int, max_false_positive_rate: float) -> Scores:
    """Score the clients of a round by their largest deviation."""
    answers, limit = ask(known, round_, number), t_limit(max_false_positive_rate / TAILS)
    if not known.past:
        return first_look(answers, round_, limit)
    middle, spread = usual_answers(known, limit)
    answers = replace(answers, scale=np.minimum(answers.scale, max(1.0, SPREAD_OF_LENGTHS[1] / spread[LENGTH])))
    copied = answers.nearest < middle[ORIGINALITY] - limit * spread[ORIGINALITY]
    answers = in_context(answers, known, copied, middle, spread, limit)
    away = deviations(answers, middle, spread, known.lowest)
    away[copied, FINGERPRINT] *= COPIED
    scores = away.max(axis=1)
    p = np.minimum(1.0, TAILS * t_tail(scores))
    chance = 1.0 - local_false_discovery_rate(np.maximum(p, 1e-300))
    off = replace(answers, scale=np.ones(len(p))).relative - middle
    reasons = [in_words(*client) for client in zip(off, away, away > limit, strict=True)]
    for row, where in in_layers(known, round_, answers, scores > limit).items():
        reasons[row] += f"; {where}" if where else ""
    return Scores(round_.clients, scores, chance, scores > limit, tuple(reasons), evidence=answers)


def usual_answers(known: Signatures, limit: float) -> tuple[FloatVector, FloatVector]:
    """Return middle and spread of what accepted clients answered, of each channel.

    Spreads are wider where few clients are known and after rounds that kept nobody, and those of fingerprints such
    that the limit is neither above what is clear nor below what is strange.
    """
    middle, spread = robust_normal(known.past)
    middle[COMPANY], spread[COMPANY] = known.company
    unsure = uncertainty(len(known.clients))
    spread *= unsure
    least, most = (WEIGHTS[FINGERPRINT] * (middle[FINGERPRINT] - low) / limit for low in (CLEAR, STRANGE))
    spread[FINGERPRINT] = np.clip(spread[FINGERPRINT], least, most)
    return middle, np.maximum(spread, unsure * LEAST_SPREAD) * PATIENCE ** min(known.failures, MOST_FAILURES)


def in_context(
    answers: Answers,
    known: Signatures,
    copied: NDArray[np.bool_],
    middle: FloatVector,
    spread: FloatVector,
    limit: float,
) -> Answers:
    """Return the answers with what clients have in common, and the round's typical length and heading.

    Both go by the clients that look like themselves.
    """
    alike = deviations(answers, middle, spread)[:, FINGERPRINT] <= limit
    group = alike & answers.asked[:, FINGERPRINT] & ~copied  # newcomers and copies are nobody's company
    answers = answers.in_company(group)
    alike &= deviations(answers, middle, spread)[:, COMPANY] <= limit
    own, any_ = answers.values[:, OWN] - middle[OWN], answers.values[:, ANY] - middle[ANY]
    levels = np.where(answers.asked[:, OWN], own, any_)
    return replace(answers, typical=typical_level(levels, alike, known.typical, spread[OWN]))


def first_look(answers: Answers, round_: Round, limit: float) -> Scores:
    """Score the clients of a round that has no past to compare with: by how much longer than most they are.

    It finds a minority whose updates would drown all others. Who is quieter becomes part of the past.
    """
    lengths = answers.values[:, ANY_LENGTH]
    usual = lengths[answers.moved] if answers.moved.any() else lengths
    spread = float(np.clip(robust_spread(usual) * uncertainty(usual.size), *SPREAD_OF_LENGTHS))
    above = lengths - np.median(usual)
    scores = above / spread
    reasons = [
        f"{math.exp(min(more, 700.0)):.2g} times the usual length ({score:.1f} sd)" if score > limit else ""
        for more, score in zip(above, scores, strict=True)
    ]
    suspects = scores > limit
    return Scores(round_.clients, scores, None, suspects, tuple(reasons), provisional=True, evidence=answers)


def uncertainty(examples: int) -> float:
    """Return how much wider limits are that come from few examples.

    >>> uncertainty(100), uncertainty(5)
    (1.0, 2.0)
    """
    return math.sqrt(max(1.0, ENOUGH / max(1, examples)))


def deviations(
    answers: Answers, middle: FloatVector, spread: FloatVector, lowest: tuple[float, float] = NO_LOWER
) -> FloatMatrix:
    """Return how far each answer is on the suspicious side, in standard deviations of accepted clients' answers.

    Lengths and headings below what is typical of the round are held against the `lowest` typical ones so far, if
    these are lower: a majority that pulls more from round to round does not make odd who stays as it was. For what
    they have in common a crowd is judged as one.
    """
    above = (answers.relative - middle) / spread * WEIGHTS
    below = (middle - answers.relative_to(np.minimum(lowest, answers.typical))) / spread * WEIGHTS
    away = np.where(SIDES > 0, above, np.where(SIDES < 0, below, np.maximum(above, below)))
    away[:, COMPANY] = -np.inf
    if (found := answers.company) is not None:
        wider = math.hypot(spread[COMPANY], found.doubt)
        away[found.crowd, COMPANY] = (found.level - middle[COMPANY]) / wider * WEIGHTS[COMPANY]
    return np.where(answers.asked & ~np.isnan(away), away, -np.inf)


def robust_normal(past: Sequence[FloatMatrix]) -> tuple[FloatVector, FloatVector]:
    """Return middle and spread of each channel: median, and median deviation scaled to a standard deviation.

    What is usual for anyone is as varied as clients are, often of several kinds: its spread is that of nearly all,
    not of the middle half.
    """
    values = np.concatenate(past)
    middle = middles(values)
    away = np.abs(values - middle)
    spread = NORMAL * middles(away)
    spread[ANY] = np.quantile(away[:, ANY], NEARLY_ALL, axis=0) / 1.96
    return middle, spread


def middles(values: FloatMatrix) -> FloatVector:
    """Return the median of each column, of what is not NaN; 0 if nothing is."""
    known = [column[~np.isnan(column)] for column in values.T]
    return np.array([np.median(column) if column.size else 0.0 for column in known])


def typical_level(
    levels: FloatMatrix, alike: NDArray[np.bool_], last: tuple[float, float], spread: FloatVector
) -> tuple[float, float]:
    """Return the round's typical length and heading: near the last, where most lie who look like themselves.

    Attackers in the majority may agree on anything; to be taken for typical it must be what
    honest clients could have come to in a round.
    """
    x = levels[alike] if alike.any() else levels
    apart = (((x[:, None] - x[None, :]) / spread) ** 2).sum(axis=2)
    moved = ((x - last) / PACE) ** 2
    best = np.argmax(np.exp(-0.5 * apart).sum(axis=1) * np.exp(-0.5 * moved.sum(axis=1)))
    step = np.median(x[apart[best] <= 2 * NEAR**2], axis=0) - last
    length, heading = last + np.clip(step, LARGEST_FALL, LARGEST_RISE)
    return float(length), float(heading)


def in_words(from_middle: FloatVector, away: FloatVector, spoken: NDArray[np.bool_]) -> str:
    """Say which answers speak against a client, the strongest first, and how far off they are."""
    texts = (
        "not its own fingerprint",
        f"{math.exp(min(from_middle[LENGTH], 700.0)):.2g} times its usual length" if spoken[LENGTH] else "",
        "heading away from the others",
        "nearly a copy of another client's",
        f"{math.exp(min(from_middle[ANY_LENGTH], 700.0)):.2g} times the usual length" if spoken[ANY_LENGTH] else "",
        "heading away from the others",
        "made up of earlier updates",
        "too much in common with the others",
    )
    order = sorted(np.flatnonzero(spoken), key=lambda i: -away[i])
    return ", ".join(dict.fromkeys(f"{texts[i]} ({away[i]:.1f} sd)" for i in order))


def in_layers(known: Signatures, round_: Round, answers: Answers, suspects: NDArray[np.bool_]) -> dict[int, str]:
    """Say of suspects that have a mark in which layers they are unlike it, as far as that can be told."""
    row_of = {client: row for row, client in enumerate(known.clients)}
    marked = np.array([client in row_of for client in round_.clients])
    wrong, right = np.flatnonzero(suspects & marked), np.flatnonzero(~suspects & marked)[:EXAMPLES]
    if len(round_.layers) < 2 or wrong.size == 0 or right.size < FEWEST_OTHERS:
        return {}
    assert known.usual is not None
    rows = np.concatenate([wrong, right])
    places = np.array([row_of[round_.clients[i]] for i in rows])
    headings, same = known.usual[places, 1] + answers.typical[1], np.zeros_like(rows)
    likeness = np.full(rows.size, np.median(answers.likeness[right]))
    expected = [(headings, known.crowd[None, :], same), (likeness, known.marks, places)]
    scale = 1.0 / lengths_of_gram(answers.products)[rows]
    squares = squares_by_layer(round_.updates, rows, round_.global_model, scale, expected, round_.layers)
    told = in_which(squares[: wrong.size], squares[wrong.size :], list(round_.layers))
    return dict(zip(wrong.tolist(), told, strict=True))


def t_limit(tail: float) -> float:
    """Return the value that Student's t with 5 degrees of freedom exceeds with this probability."""
    low, high = 0.0, 1e12
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(t_tail(np.array([middle]))[0]) > tail else (low, middle)
    return high


def t_tail(x: FloatVector) -> FloatVector:
    """Return the probability that Student's t with 5 degrees of freedom is above x."""
    # with tan(angle) = sqrt(5) / x: no difference of nearly equal numbers far out
    angle = np.arctan2(math.sqrt(5.0), x)
    sine, cosine = np.sin(angle), np.cos(angle)
    tail = (angle - sine * cosine * (1 + 2 / 3 * sine**2)) / math.pi
    far = 8 * 25 * math.sqrt(5) / (15 * math.pi) / np.maximum(np.abs(x), 1.0) ** 5
    return np.where(x > 1e3, far, tail)
