"""The decision of `Fingerprint`: which clients to drop, by the answers to its questions.

Each answer is compared with those of the clients accepted in the last rounds, in robust standard deviations. These
use the median and the median deviation, which hardly change when the filter drops the extreme values. The largest
deviation is the client's score. Its p-value is that of Student's t with 5 degrees of freedom, which has heavy
tails. `questions` explains the answers, which are called channels here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.filters.filter import Scores
from flanders.filters.fingerprint.explanation import layers_in_words, reasons_in_words, times_as_long
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import (
    ANY,
    ANY_LENGTH,
    COMPANY,
    FINGERPRINT,
    LENGTH,
    ORIGINALITY,
    OWN,
    Answers,
    ask_questions,
)
from flanders.linalg.robust import NORMAL, local_false_discovery_rate, robust_spread, t_limit, t_tail
from flanders.round import Round

SIDES = np.array([-1, 0, -1, -1, 0, -1, -1, 1])
"""On which side an answer is suspicious, by channel: below (-1), above (1), or on both (0)."""
TAILS = 7
"""On how many sides one client can deviate. The allowed rate of false positives is divided by this number."""
STRANGE = -2.0
"""A fingerprint below this is always suspicious. Those of honest clients are positive, others are around zero."""
CLEAR = 10.0
"""A fingerprint above this always passes, even if accepted clients have higher ones.

How high they are also depends on which other clients are known.
"""
WEIGHTS = np.array([1.5, *[1.0] * 6, 1.5])
"""Deviations of fingerprint and company count 1.5 times, since their tails are nearly normal and not heavy."""
LEAST_SPREAD = np.array([0.3, 0.02, 0.02, 0.2, 0.02, 0.02, 0.02, 0.02])
"""Standard deviations count as at least this, by channel, since a few clients may agree by chance."""
NEARLY_ALL, NEARLY_ALL_WITHIN = 0.95, 1.96
"""This share of normal values lies within this many standard deviations."""
PACE = 0.1
"""The typical log length and heading usually move by about this much in a round."""
LARGEST_FALL, LARGEST_RISE = -0.4, 0.3
"""The typical log length and heading move no farther than this in a round, whatever a majority sends."""
NEAR = 2.0
"""A client within this many standard deviations of the typical client counts as normal."""
WIDENING = 1.5
"""With each round in a row that kept too few, the limits widen by this factor. The data may have changed."""
MOST_FAILURES = 4
"""After this many failed rounds the limits stop widening, at five times their width.

If they went on, a majority of attackers would only have to wait until anything passes.
"""
COPIED = 2.0
"""If another client sends nearly the same, a deviation of the fingerprint counts this many times."""
ENOUGH_CLIENTS = 20
"""This many clients show what is usual. With fewer, the limits are wider."""
SPREAD_OF_LENGTHS = (0.25, 0.7)
"""The least and the most that log lengths are assumed to vary from client to client (standard deviations).

Data and numbers of steps differ. But no honest client has to send an update that is fifty times as long as most,
or as its own usual ones.
"""
LENGTHS = np.array([LENGTH, ANY_LENGTH])
NO_LOWER = (math.inf, math.inf)
"""The lowest typical length and heading before any round has shown one."""


def score_by_answers(known: Signatures, round_: Round, number: int, max_false_positive_rate: float) -> Scores:
    """Score the clients of round `number` by their largest deviation."""
    answers, limit = ask_questions(known, round_, number), t_limit(max_false_positive_rate / TAILS)
    if not known.past:
        return first_look(answers, round_, limit)
    middle, spread = usual_answers(known, limit)
    answers = replace(answers, scale=np.minimum(answers.scale, max(1.0, SPREAD_OF_LENGTHS[1] / spread[LENGTH])))
    copied = answers.nearest < middle[ORIGINALITY] - limit * spread[ORIGINALITY]
    answers = answers_in_context(answers, known, copied, middle, spread, limit)
    away = deviations(answers, middle, spread, known.lowest)
    away[copied, FINGERPRINT] *= COPIED
    scores = away.max(axis=1)
    p = np.minimum(1.0, TAILS * t_tail(scores))
    chance = 1.0 - local_false_discovery_rate(np.maximum(p, 1e-300))
    off = replace(answers, scale=np.ones(len(p))).relative - middle
    reasons = [reasons_in_words(*client) for client in zip(off, away, away > limit, strict=True)]
    for row, where in layers_in_words(known, round_, answers, scores > limit).items():
        reasons[row] += f"; {where}" if where else ""
    wider = widening(known)
    return Scores(round_.clients, scores, chance, scores > limit, tuple(reasons), evidence=answers, widening=wider)


def widening(known: Signatures) -> float:
    """Return how many times as wide as usual the limits are. They get wider with each round that kept nobody."""
    return float(WIDENING ** min(known.failures, MOST_FAILURES))


def usual_answers(known: Signatures, limit: float) -> tuple[FloatVector, FloatVector]:
    """Return middle and spread of the accepted clients' answers, for each channel.

    Spreads are wider if few clients are known, and after rounds that kept nobody. Those of lengths stay within what
    lengths can vary. The spread of fingerprints is such that the limit lies between `STRANGE` and `CLEAR`.
    """
    middle, spread = middle_and_spread(known.past)
    middle[COMPANY], spread[COMPANY] = known.company
    unsure = uncertainty(len(known.clients))
    spread *= unsure
    least, most = (WEIGHTS[FINGERPRINT] * (middle[FINGERPRINT] - low) / limit for low in (CLEAR, STRANGE))
    spread[FINGERPRINT] = np.clip(spread[FINGERPRINT], least, most)
    spread = np.maximum(spread, unsure * LEAST_SPREAD)
    wider = spread * widening(known)
    wider[LENGTHS] = np.maximum(spread[LENGTHS], np.minimum(wider[LENGTHS], SPREAD_OF_LENGTHS[1]))
    return middle, wider


def answers_in_context(
    answers: Answers,
    known: Signatures,
    copied: BoolVector,
    middle: FloatVector,
    spread: FloatVector,
    limit: float,
) -> Answers:
    """Return the answers with what the clients have in common, and with the round's typical length and heading.

    Both are measured on the clients whose fingerprint passes.
    """
    alike = deviations(answers, middle, spread)[:, FINGERPRINT] <= limit
    group = alike & answers.asked[:, FINGERPRINT] & ~copied  # without newcomers and copies
    answers = answers.in_company(group)
    alike &= deviations(answers, middle, spread)[:, COMPANY] <= limit
    own, any_ = answers.values[:, OWN] - middle[OWN], answers.values[:, ANY] - middle[ANY]
    levels = np.where(answers.asked[:, OWN], own, any_)
    return replace(answers, typical=typical_level(levels, alike, known.typical, spread[OWN]))


def first_look(answers: Answers, round_: Round, limit: float) -> Scores:
    """Score the clients of a first round, which has no past, by the length of their updates.

    This finds a minority whose long updates would dominate the average. Later rounds are compared with the others.
    """
    lengths = answers.values[:, ANY_LENGTH]
    usual = lengths[answers.moved] if answers.moved.any() else lengths
    spread = float(np.clip(robust_spread(usual) * uncertainty(usual.size), *SPREAD_OF_LENGTHS))
    above = lengths - np.median(usual)
    scores = above / spread
    reasons = [
        f"{times_as_long(more)} the usual length ({score:.1f} sd)" if score > limit else ""
        for more, score in zip(above, scores, strict=True)
    ]
    suspects = scores > limit
    return Scores(round_.clients, scores, None, suspects, tuple(reasons), provisional=True, evidence=answers)


def uncertainty(examples: int) -> float:
    """Return how much wider the limits are if they come from few examples.

    >>> uncertainty(100), uncertainty(5)
    (1.0, 2.0)
    """
    return math.sqrt(max(1.0, ENOUGH_CLIENTS / max(1, examples)))


def deviations(
    answers: Answers, middle: FloatVector, spread: FloatVector, lowest: tuple[float, float] = NO_LOWER
) -> FloatMatrix:
    """Return how far each answer is on the suspicious side, in standard deviations of accepted clients' answers.

    Lengths and headings are compared with what is typical of the round. On the lower side they are compared with
    the `lowest` typical ones so far, if these are lower. So a client that stays as it was does not become
    suspicious because a majority pulls more from round to round. All clients of a crowd have the same deviation
    for what they have in common.
    """
    above = (answers.relative - middle) / spread * WEIGHTS
    below = (middle - answers.relative_to(np.minimum(lowest, answers.typical))) / spread * WEIGHTS
    away = np.where(SIDES > 0, above, np.where(SIDES < 0, below, np.maximum(above, below)))
    away[:, COMPANY] = -np.inf
    if (found := answers.company) is not None:
        wider = math.hypot(spread[COMPANY], found.doubt)
        away[found.crowd, COMPANY] = (found.level - middle[COMPANY]) / wider * WEIGHTS[COMPANY]
    return np.where(answers.asked & ~np.isnan(away), away, -np.inf)


def middle_and_spread(past: Sequence[FloatMatrix]) -> tuple[FloatVector, FloatVector]:
    """Return middle and spread of each channel: median, and median deviation scaled to a standard deviation.

    The channels `ANY` compare a client with all others, and clients are often of several kinds. So their spread is
    that of nearly all clients, not that of the middle half.
    """
    values = np.concatenate(past)
    middle = middle_of_columns(values)
    away = np.abs(values - middle)
    spread = NORMAL * middle_of_columns(away)
    spread[ANY] = np.quantile(away[:, ANY], NEARLY_ALL, axis=0) / NEARLY_ALL_WITHIN
    return middle, spread


def middle_of_columns(values: FloatMatrix) -> FloatVector:
    """Return the median of the numbers in each column that are not NaN; 0 if all are NaN."""
    known = [column[~np.isnan(column)] for column in values.T]
    return np.array([np.median(column) if column.size else 0.0 for column in known])


def typical_level(
    levels: FloatMatrix, alike: BoolVector, last: tuple[float, float], spread: FloatVector
) -> tuple[float, float]:
    """Return the round's typical length and heading: those of most clients whose fingerprint passes.

    They are near those of the last round. A majority of attackers may agree on any length and heading. But the
    typical ones move only as far as honest clients can move in a round.
    """
    x = levels[alike] if alike.any() else levels
    apart = (((x[:, None] - x[None, :]) / spread) ** 2).sum(axis=2)
    moved = ((x - last) / PACE) ** 2
    best = np.argmax(np.exp(-0.5 * apart).sum(axis=1) * np.exp(-0.5 * moved.sum(axis=1)))
    step = np.median(x[apart[best] <= 2 * NEAR**2], axis=0) - last
    length, heading = last + np.clip(step, LARGEST_FALL, LARGEST_RISE)
    return float(length), float(heading)
