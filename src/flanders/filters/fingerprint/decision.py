"""Computes the scores of the filter `Fingerprint`, which decide which clients are dropped.

The module `questions` measures each update by several questions. The answer to a question is a number. The answers
of all clients to one question form a channel, which is a column of `Answers.values`:

- *fingerprint*: how much more the update is like its sender's mark than like the marks of others. The mark of a
  client is the direction in which its update differed from those of the other clients when it was last accepted,
  that is, kept.
- *length*: the logarithm of the update's length.
- *heading*: the cosine of the update with the mean direction of the clients accepted last.
- *originality*: how far the update is from the nearest update with a higher fingerprint.
- *novelty*: how much of the update is not a weighted sum of the last round's updates.
- *company*: the mean cosine with the other clients whose fingerprint is not suspicious. A crowd is a group of
  clients whose company is clearly higher than that of the rest.

Length and heading have two channels each. One channel compares a client with its own past. The other channel
compares the client with all clients. It is used for clients without a past.

Each answer is compared with the answers of clients that were accepted in the last rounds. The deviation of an
answer is its distance from the median of these earlier answers, in robust standard deviations. A robust standard
deviation is computed from the median distance to the median. So it is about the same with and without clients whose
answers are extreme.

The score of a client is the largest deviation of its answers. The client is dropped if its score is above a limit.
The limit follows from `max_false_positive_rate` and Student's t distribution with 5 degrees of freedom. In this
distribution, large deviations are more frequent than in a normal distribution.
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
"""For each channel, in the order of `CHANNELS`: whether low answers (-1), high answers (1) or both (0) are
suspicious."""
TAILS = 7
"""The number of ways in which a client with a mark can be suspicious. The allowed rate of false positives is
divided by it.

Such a client is judged by six channels. In the channel of the length there are two ways: the length may be too low
or too high.
"""
STRANGE_BELOW = -2.0
"""A fingerprint below this is always suspicious, except after rounds that kept no client (see `WIDENING`).

Fingerprints of honest clients are positive. If an update was not trained on its sender's data, its fingerprint is
around zero.
"""
CLEAR_ABOVE = 10.0
"""A fingerprint above this is never suspicious, even if most accepted clients have far higher fingerprints.

The fingerprint of an honest client can fall from one round to the next, since it also depends on the marks of the
other clients in the round.
"""
WEIGHTS = np.array([1.5, *[1.0] * 6, 1.5])
"""For each channel, the factor by which the deviations are multiplied.

It is higher for fingerprint and company. Their answers are nearly normally distributed, so large deviations are
rare among honest clients.
"""
LEAST_SPREAD = np.array([0.3, 0.02, 0.02, 0.2, 0.02, 0.02, 0.02, 0.02])
"""For each channel, the smallest standard deviation that is assumed. The answers of a few clients may be close
together by chance."""
NEARLY_ALL, NEARLY_ALL_WITHIN = 0.95, 1.96
"""In a normal distribution, 95% of all values lie within 1.96 standard deviations of the mean."""
USUAL_CHANGE = 0.1
"""From one round to the next, the typical log length and the typical heading usually change by about this much."""
LARGEST_FALL, LARGEST_RISE = -0.4, 0.3
"""By how much the typical log length and the typical heading may fall and rise from one round to the next. These
limits hold even if a majority of the clients changes more."""
NEAR_THE_TYPICAL = 2.0
"""`typical_level` finds the most typical client. The typical length and heading are medians over all clients that
are at most this many standard deviations away from it. Clients farther away may be attackers."""
WIDENING = 1.5
"""If a round keeps no client, the limits of the next round are wider by this factor, since the clients' data may
have changed. After a round that keeps a client, the limits are as usual again."""
MOST_FAILURES = 4
"""After this many rounds in a row without a kept client, the limits stop widening. They are then 1.5^4, or about
five, times as wide as usual.

If they widened without end, a majority of attackers could wait until every update passes.
"""
WEIGHT_IF_COPIED = 2.0
"""The deviation of a fingerprint is multiplied by this if another client sends nearly the same update. Honest
clients do not send the same update."""
ENOUGH_CLIENTS = 20
"""The answers of this many clients show well enough what is usual. With fewer clients the limits are wider."""
SPREAD_OF_LENGTHS = (0.25, 0.7)
"""The smallest and the largest standard deviation of log lengths that is assumed.

Honest clients differ in their data and in their numbers of training steps, so a smaller one would drop honest
clients. But no honest client sends an update that is fifty times as long as most updates or as its own earlier
updates, so a larger one is not needed.
"""
LENGTHS = np.array([LENGTH, ANY_LENGTH])
"""The two channels of the length."""
NO_LOWEST_YET = (math.inf, math.inf)
"""The lowest typical log length and heading before the first round."""


def score_by_answers(known: Signatures, round_: Round, number: int, max_false_positive_rate: float) -> Scores:
    """Return the scores of the clients in round `number`: the largest deviation of each client."""
    answers, limit = ask_questions(known, round_, number), t_limit(max_false_positive_rate / TAILS)
    if not known.past:
        return first_look(answers, round_, limit)
    middle, spread = usual_answers(known, limit)
    answers = replace(answers, scale=np.minimum(answers.scale, max(1.0, SPREAD_OF_LENGTHS[1] / spread[LENGTH])))
    copied = answers.nearest < middle[ORIGINALITY] - limit * spread[ORIGINALITY]
    answers = answers_in_context(answers, known, copied, middle, spread, limit)
    away = deviations(answers, middle, spread, known.lowest)
    away[copied, FINGERPRINT] *= WEIGHT_IF_COPIED
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
    """Return how many times as wide as usual the limits are, because the last rounds kept no client."""
    return float(WIDENING ** min(known.failures, MOST_FAILURES))


def usual_answers(known: Signatures, limit: float) -> tuple[FloatVector, FloatVector]:
    """Return the median and the spread of the accepted clients' answers, for each channel.

    Spreads are larger if few clients are known. They are also larger after rounds that kept no client, but then the
    spread of lengths grows only up to `SPREAD_OF_LENGTHS[1]`. `limit` is the largest deviation that passes. The
    spread of fingerprints is chosen so that the lowest fingerprint that passes is between `STRANGE_BELOW` and
    `CLEAR_ABOVE`.
    """
    middle, spread = middle_and_spread(known.past)
    middle[COMPANY], spread[COMPANY] = known.company
    unsure = uncertainty(len(known.clients))
    spread *= unsure
    least, most = (
        WEIGHTS[FINGERPRINT] * (middle[FINGERPRINT] - low) / limit for low in (CLEAR_ABOVE, STRANGE_BELOW)
    )
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
    """Return the answers with the company of each client, and with the round's typical length and heading.

    Company is measured with the clients whose fingerprint passes. The typical length and heading come from these
    clients and from clients without a mark. Suspicious crowds are left out.

    `copied` says which clients send nearly the same update as another client. `middle` and `spread` are those of
    `usual_answers`, and `limit` is the largest deviation that passes.
    """
    alike = deviations(answers, middle, spread)[:, FINGERPRINT] <= limit
    group = alike & answers.asked[:, FINGERPRINT] & ~copied  # copies and clients without a mark are left out
    answers = answers.in_company(group)
    alike &= deviations(answers, middle, spread)[:, COMPANY] <= limit
    own, any_ = answers.values[:, OWN] - middle[OWN], answers.values[:, ANY] - middle[ANY]
    levels = np.where(answers.asked[:, OWN], own, any_)
    return replace(answers, typical=typical_level(levels, alike, known.typical, spread[OWN]))


def first_look(answers: Answers, round_: Round, limit: float) -> Scores:
    """Return scores by the length of the updates alone, for the first two rounds.

    In these rounds there are no earlier answers to compare with: the marks come from the first round, so the first
    answers come from the second round. The scores find a minority whose long updates would dominate the average.
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
    """Return the factor by which limits are wider if they come from the answers of few clients (`examples`).

    >>> uncertainty(100), uncertainty(5)
    (1.0, 2.0)
    """
    return math.sqrt(max(1.0, ENOUGH_CLIENTS / max(1, examples)))


def deviations(
    answers: Answers, middle: FloatVector, spread: FloatVector, lowest: tuple[float, float] = NO_LOWEST_YET
) -> FloatMatrix:
    """Return how far each answer is from the median `middle`, towards the suspicious side, in units of `spread`.

    A high length is compared with the typical length of this round. A low length or heading is compared with the
    typical value of this round or with `lowest`, the lowest typical value so far, whichever is lower. The reason is
    that a majority may send longer and longer updates, which raises the typical length. A client whose length stays
    the same must not become suspicious by this. All clients of a crowd have the same deviation in company: that of
    the crowd's median.
    """
    above = (answers.relative - middle) / spread * WEIGHTS
    below = (middle - answers.relative_to(np.minimum(lowest, answers.typical))) / spread * WEIGHTS
    away = np.where(SIDES > 0, above, np.where(SIDES < 0, below, np.maximum(above, below)))
    away[:, COMPANY] = -np.inf
    if (company := answers.company) is not None:
        wider = math.hypot(spread[COMPANY], company.doubt)
        away[company.crowd, COMPANY] = (company.level - middle[COMPANY]) / wider * WEIGHTS[COMPANY]
    return np.where(answers.asked & ~np.isnan(away), away, -np.inf)


def middle_and_spread(past: Sequence[FloatMatrix]) -> tuple[FloatVector, FloatVector]:
    """Return the median and the spread of each channel over the last rounds.

    The spread is the robust standard deviation, except in the channels `ANY`, which compare a client with all
    others. Clients are often of several kinds, and the robust standard deviation would show only how the middle
    half of them differ. So the spread of these channels is computed from the distance to the median within which
    95% of the answers lie.
    """
    values = np.concatenate(past)
    middle = middle_of_columns(values)
    away = np.abs(values - middle)
    spread = NORMAL * middle_of_columns(away)
    spread[ANY] = np.quantile(away[:, ANY], NEARLY_ALL, axis=0) / NEARLY_ALL_WITHIN
    return middle, spread


def middle_of_columns(values: FloatMatrix) -> FloatVector:
    """Return the median of each column, leaving out NaN. The median of a column of NaN is 0."""
    known = [column[~np.isnan(column)] for column in values.T]
    return np.array([np.median(column) if column.size else 0.0 for column in known])


def typical_level(
    levels: FloatMatrix, alike: BoolVector, last: tuple[float, float], spread: FloatVector
) -> tuple[float, float]:
    """Return the round's typical log length and heading.

    The typical values are those around which most of the clients in `alike` are. `levels` has the log length and
    the heading of each client. `last` has the typical values of the last round. Values near `last` are preferred,
    and the result is never far from `last`. So even if most clients are attackers with another length and heading,
    they can change the typical values only as much as honest training can.
    """
    x = levels[alike] if alike.any() else levels
    apart = (((x[:, None] - x[None, :]) / spread) ** 2).sum(axis=2)
    moved = ((x - last) / USUAL_CHANGE) ** 2
    best = np.argmax(np.exp(-0.5 * apart).sum(axis=1) * np.exp(-0.5 * moved.sum(axis=1)))
    step = np.median(x[apart[best] <= 2 * NEAR_THE_TYPICAL**2], axis=0) - last
    length, heading = last + np.clip(step, LARGEST_FALL, LARGEST_RISE)
    return float(length), float(heading)
