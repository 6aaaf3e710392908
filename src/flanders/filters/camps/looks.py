"""What a round is looked at for: one number a client, and which end of the numbers is the wrong one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, FloatMatrix, FloatVector
from flanders.filters.camps.votes import agreement, trust
from flanders.filters.fingerprint.questions import FINGERPRINT, LENGTH, Answers
from flanders.linalg.products import cosines_of_gram, gram, lengths_of_gram, projections
from flanders.round import Round

LOW, CHANGED, UNKNOWN = "low", "changed", "unknown"
"""Which camp of a look is wrong: the lower one, the one that is farther from its own past, or a judge must say."""
STEPS = 30
"""Steps of Weiszfeld's algorithm: more do not change the geometric median of unit vectors visibly."""
STRANGE = 2.0
"""A stranger's update stands out from others by less than this many standard deviations at a client's mark."""
TURNED_FAR = 0.3
"""Honest clients' cosines with the others change by less than this from round to round."""
MANY_TIMES = np.log(2.0)
"""Honest clients' updates change in length by less than this factor, as a rule."""
LESS_NEW = np.log(0.2)
"""The share of an update that nobody sent in the last round does not fall to less than this in honest training."""


@dataclass(frozen=True, eq=False)
class Look:
    """One number a client."""

    name: str
    values: FloatVector
    """`(m,)`, NaN where there is none."""
    floor: float
    """Numbers of one camp spread at least this much."""
    wrong: str
    words: tuple[str, str]
    """What to say of the lower and of the upper camp, if it is dropped."""
    fewest: int = 1
    """The smallest camp."""
    limit: float = np.inf
    """What the median of the wrong camp must pass: be below if the lower camp is wrong, be farther from zero if the
    changed one is. If a judge must say which one it is, the medians must lie on both sides of it and of its
    negative."""


ALIKE = 0.02
"""Cosines of clients of one camp differ by at least this: two batches more or less make as much."""
LENGTHS = 0.25
"""Log lengths of honest clients differ by this: numbers of steps and data differ."""
MARKS = 0.5
"""Fingerprints of one camp, in standard deviations of strangers' ones, differ by at least this."""
VOTES = 0.1
"""Trust in clients of one camp differs by at least this."""
FEWEST_VOTES = 2
"""A single client that others vote against may just hold what nobody else holds."""
DISTRUSTED = -0.3
"""Honest clients are rarely trusted less than this."""
AGREE = 0.05
"""Votes count while clients have this much in common, as a mean cosine; late in training there is only noise."""
DISAGREE = 0.1
"""Clients disagree if at least this share of them is not trusted by the others."""
NEW = 0.25
"""Log shares of what is new differ by at least this."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The inner products of the round's updates, part by part of the model."""

    names: tuple[str, ...]
    products: tuple[FloatMatrix, ...]
    rooted: tuple[FloatVector, ...] = ()
    """Cosines with the server's own step, in each part; empty if it made none."""
    headings: tuple[FloatVector, ...] = ()
    """Cosines with the direction of the clients accepted last, in each part; empty if nothing is remembered."""


def last_layer(round_: Round) -> int | None:
    """Return where the last layer begins; None if the layers are not known, or there is only one.

    A layer is all tensors with the same name but for what comes after the last dot: weight and bias.
    """
    names = list(round_.layers)
    owners = [name.rpartition(".")[0] or name for name in names]
    size = sum(round_.layers[name] for name, owner in zip(names, owners, strict=True) if owner == owners[-1])
    start = round_.updates.shape[1] - size if names else 0
    return start if 0 < start < round_.updates.shape[1] else None


def parts_of(round_: Round, products: FloatMatrix, crowd: Array | None) -> Parts:
    """Return the inner products of all parameters, of the last layer, and of the others."""
    start, g = last_layer(round_), round_.global_model
    if start is None:
        along = (() if v is None else (directed(round_, products, v, slice(None)),) for v in (round_.root, crowd))
        return Parts(("the model",), (products,), *along)
    last = slice(start, None)
    of_last = gram(round_.updates[:, last], g[last])
    found: list[tuple[FloatVector, ...]] = []
    for v in (round_.root, crowd):
        if v is None:
            found.append(())
            continue
        pieces = ((products, slice(None)), (of_last, last), (products - of_last, slice(None, start)))
        found.append(tuple(directed(round_, own, v, columns) for own, columns in pieces))
    return Parts(
        ("the model", "the last layer", "the first layers"), (products, of_last, products - of_last), *found
    )


def directed(round_: Round, products: FloatMatrix, v: Array, columns: slice) -> FloatVector:
    """Return the cosines of updates with a direction in some columns."""
    part = v[columns][None, :]
    along = projections(round_.updates[:, columns], part, round_.global_model[columns])[:, 0]
    length = float(projections(part, part)[0, 0]) ** 0.5
    return np.asarray(along / lengths_of_gram(products) / max(length, 1e-100))


def alike_looks(parts: Parts, rows: NDArray[np.bool_]) -> list[Look]:
    """Return how alike each of some clients is to the middle of them all, part by part."""
    looks = []
    for name, products in zip(parts.names, parts.products, strict=True):
        values = np.full(len(rows), np.nan)
        values[rows] = with_the_middle(cosines_of_gram(products[np.ix_(rows, rows)]))
        words = (f"away from the others in {name}", f"too much like some others in {name}")
        looks.append(Look(f"alike in {name}", values, ALIKE, UNKNOWN, words))
    return looks


def vote_looks(cosines: FloatMatrix, server: FloatVector | None, rows: NDArray[np.bool_]) -> list[Look]:
    """Return how far clients trust each other and, if it has a step of its own, how far the server trusts them.

    Where clients have too little in common, nobody is asked. The server's examples may be unlike what some honest
    clients hold: its trust is only asked for if the clients disagree among themselves.
    """
    own = cosines[np.ix_(rows, rows)]
    if agreement(own) < AGREE:
        return []
    found = [("votes", UNKNOWN, trust(own), ("others vote against it", "it votes against others"))]
    if server is not None and (found[0][2] < 0).mean() >= DISAGREE:
        found.append(("the server's trust", LOW, trust(own, server[rows]), ("against what the server trusts", "")))
    looks = []
    for name, wrong, trusted, words in found:
        values = np.full(len(rows), np.nan)
        values[rows] = trusted
        looks.append(Look(name, values, VOTES, wrong, words, FEWEST_VOTES, DISTRUSTED))
    return looks


def length_look(lengths: FloatVector) -> Look:
    """Return how long updates are."""
    return Look(
        "length", np.log(lengths), LENGTHS, UNKNOWN, ("much shorter than others", "much longer than others")
    )


def own_looks(
    answers: Answers, changes: tuple[FloatVector, ...], novelty: FloatVector, names: tuple[str, ...]
) -> list[Look]:
    """Return how each client compares with its own accepted past."""
    values = answers.values
    own = values[:, FINGERPRINT]
    looks = [
        Look("fingerprint", own, MARKS, LOW, ("not its own fingerprint", ""), 1, STRANGE),
        Look("novelty", novelty, NEW, LOW, ("made up of earlier updates", ""), 1, float(LESS_NEW)),
        Look(
            "own length",
            values[:, LENGTH],
            LENGTHS,
            CHANGED,
            ("much shorter than it was", "much longer than it was"),
            1,
            MANY_TIMES,
        ),
    ]
    for name, change in list(zip(names, changes, strict=False))[:2]:
        words = (f"turned away from its past course in {name}", f"turned towards the others in {name}")
        looks.append(Look(f"own course in {name}", change, ALIKE, CHANGED, words, 1, TURNED_FAR))
    return looks


def with_the_middle(cosines: FloatMatrix) -> FloatVector:
    """Return the cosine of each unit vector with the geometric median of all of them.

    The median is found by Weiszfeld's algorithm on inner products alone. Up to half of the vectors cannot move it
    far, as they could the mean.
    """
    m = len(cosines)
    a = np.full(m, 1.0 / m)
    for _ in range(STEPS):
        with_it = cosines @ a
        a = 1.0 / np.sqrt(np.maximum(1.0 - 2.0 * with_it + a @ with_it, 1e-9))
        a /= a.sum()
    with_it = cosines @ a
    return np.asarray(with_it / np.sqrt(max(float(a @ with_it), 1e-12)))
