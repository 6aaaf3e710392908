"""The traits by which clients are compared: a trait is one number for each client, or several.

Some traits compare the clients of a round with each other: their directions and their lengths. A camp of clients
can stand out by such a trait, but the trait does not tell which of two camps is wrong. Other traits compare each
client with its own past. They also tell which camp is wrong: the one that is unlike its past.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, BoolVector, FloatMatrix, FloatVector
from flanders.filters.camps.directions import (
    Directions,
    all_cosines_with_middle,
    along_main_direction,
    weights_of_round,
)
from flanders.filters.camps.splitting import PER_CLIENT, PER_CLIENT_OF_NATURE
from flanders.filters.fingerprint.questions import FINGERPRINT, LENGTH, Answers
from flanders.linalg.products import gram, lengths_of_gram, projections
from flanders.round import ClientId, Round, last_layer_of

LOW, CHANGED, UNKNOWN = "low", "changed", "unknown"
"""Which camp of a trait is wrong: the lower one (`LOW`); the one farther from zero, where zero means no change
(`CHANGED`); or the trait does not tell, and a judge decides (`UNKNOWN`)."""
STRANGE = 2.0
"""A fingerprint is a number of standard deviations. If it is below this, another client may have made the
update."""
TURNED_FAR = 0.3
"""A client's cosine with the crowd has changed if it is this far from its usual value. Honest clients change less.

The crowd is the mean direction of the clients accepted last.
"""
MANY_TIMES = np.log(2.0)
"""The length of an honest client's updates usually changes by less than a factor of two. This is its logarithm."""
LESS_NEW = np.log(0.2)
"""The novelty of an update is the logarithm of the share of it that is not a sum of earlier updates. In honest
training this share does not fall below a fifth of its usual value. This is the logarithm of a fifth."""
LEAST_SPREAD_OF_COSINES = 0.02
"""The smallest spread of cosines in a camp: two batches of training more or fewer change a cosine by about this
much."""
LEAST_SPREAD_OF_LENGTHS = 0.25
"""The smallest spread of log lengths in a camp: honest clients differ that much in steps and data."""
LEAST_SPREAD_OF_FINGERPRINTS = 0.5
"""The smallest spread of fingerprints in a camp. Fingerprints are numbers of standard deviations."""
AGAINST = -0.3
"""Two camps point against each other if their median cosines with the main direction are below -0.3 and above 0.3.
The main direction is the first principal direction of the updates; see `along_main_direction`.

Honest clients that hold the same few classes may have large cosines with the main direction. But then the median
cosine of the other clients was never more than 0.2 away from zero.
"""
FEWEST_AGAINST = 2
"""The smallest camp along the main direction: a single client may only hold unusual data."""
LEAST_SPREAD_OF_NOVELTY = 0.25
"""The smallest spread of novelty in a camp. Novelty is a logarithm."""


@dataclass(frozen=True, eq=False)
class Trait:
    """One number for each client, or several, and what it means if these numbers form two camps."""

    name: str
    values: FloatVector | FloatMatrix
    """`(m,)`: the numbers; NaN for clients that have none. `(m, k)` if k numbers are looked at jointly."""
    floor: float
    """The smallest standard deviation of a camp; see `split_in_two`."""
    wrong: str
    """Which camp is wrong: `LOW`, `CHANGED` or `UNKNOWN`."""
    words: tuple[str, str]
    """What to say about a client of the lower and of the upper camp if it is dropped."""
    fewest: int = 1
    """The size of the smallest camp."""
    limit: float = np.inf
    """Where the medians of the camps must lie before a camp is dropped.

    - `LOW`: the median of the lower camp must be below the limit.
    - `CHANGED`: the median of the changed camp must be at least this far from zero.
    - `UNKNOWN`: the limit is negative. One median must be below it, the other one above its negative. Infinity
      means that there is no limit.
    """
    parts: tuple[str, ...] = ()
    """For each of the k numbers, the part of the model that it is about, in words. Names after the first k are not
    used."""

    @property
    def per_client(self) -> float:
        """The evidence that two camps need for each client, in nats."""
        return PER_CLIENT if self.wrong == UNKNOWN else PER_CLIENT_OF_NATURE


@dataclass(frozen=True, eq=False)
class Parts:
    """The inner products of a round's updates, for each part of the model."""

    names: tuple[str, ...]
    """The parts: the model and, if its layers are known, the last layer and the layers before it."""
    products: tuple[FloatMatrix, ...]
    """`(m, m)` for each part."""
    rooted: tuple[FloatVector, ...] = ()
    """The cosines with the server's own step, for each part; empty if the server made no step."""
    headings: tuple[FloatVector, ...] = ()
    """The cosines with the crowd, for each part; empty if there is no crowd yet. The crowd is the mean direction of
    the clients accepted last."""
    last_layer_named: bool = False
    """Whether the names of the tensors tell which of them belong to the last layer, e.g. `2.weight` and `2.bias`.

    Otherwise the last tensor is taken for the last layer. It may be only a part of it.
    """


def parts_of(round_: Round, products: FloatMatrix, crowd: Array | None) -> Parts:
    """Return the inner products for the whole model, for the last layer, and for the layers before it.

    If the layers are not known, or if there is only one, the whole model is the only part.
    """
    d, g = round_.updates.shape[1], round_.global_model
    start = int(last_layer_of(round_.layers, without_owner=1).start) if round_.layers else 0
    if not 0 < start < d:
        rooted, headings = (
            () if v is None else (cosines_with_direction(round_, products, v, slice(None)),)
            for v in (round_.root, crowd)
        )
        return Parts(("the whole model",), (products,), rooted, headings)
    last = slice(start, None)
    of_last = gram(round_.updates[:, last], g[last])
    found: list[tuple[FloatVector, ...]] = []
    for v in (round_.root, crowd):
        if v is None:
            found.append(())
            continue
        pieces = ((products, slice(None)), (of_last, last), (products - of_last, slice(None, start)))
        found.append(tuple(cosines_with_direction(round_, own, v, columns) for own, columns in pieces))
    assert round_.layers is not None  # there is a last layer, so the layers are known
    named = "." in list(round_.layers)[-1]
    names = ("the whole model", "the last layer", "the first layers")
    return Parts(names, (products, of_last, products - of_last), found[0], found[1], named)


def cosines_with_direction(round_: Round, products: FloatMatrix, v: Array, columns: slice) -> FloatVector:
    """Return the cosines of the updates with a direction, in some columns.

    `products` are the inner products of the updates in these columns.
    """
    part = v[columns][None, :]
    along = projections(round_.updates[:, columns], part, round_.global_model[columns])[:, 0]
    length = float(projections(part, part)[0, 0]) ** 0.5
    return np.asarray(along / lengths_of_gram(products) / max(length, 1e-100))


def direction_traits(
    names: tuple[str, ...],
    cosines: tuple[FloatMatrix, ...],
    clients: tuple[ClientId, ...],
    known: Directions,
    rows: BoolVector,
    server: FloatMatrix | None = None,
) -> list[Trait]:
    """Return how far each of these clients goes along with the others, in several ways.

    `cosines` are those between the clients, for each part of the model in `names`. The middle of some clients is
    the geometric median of their unit updates; see `directions`. The first three of these
    traits have one number for each part:

    - the cosine with the middle of all these clients;
    - the cosine with the middle of the clients that were not dropped the last time they took part;
    - the average of the second trait over all rounds in which the client took part;
    - if the server has made a step of its own: the numbers of the first trait, and after them the cosines with the
      server's step (`server`).

    One more trait is the cosine with the main direction in the last part. It shows two camps that point against
    each other.
    """
    words = ("away from the others", "too close to some others")
    accepted = known.middle_rows(clients, rows)
    now = all_cosines_with_middle(cosines, accepted)
    found = {
        "direction": now if np.array_equal(accepted, rows) else all_cosines_with_middle(cosines, rows),
        "direction from the clients kept before": now,
        "direction in all rounds": known.averages(clients, now, weights_of_round(cosines, accepted)),
    }
    if server is not None:
        found["direction with the server's"] = np.hstack([found["direction"], server])
    traits = [
        Trait(
            name, np.where(rows[:, None], values, np.nan), LEAST_SPREAD_OF_COSINES, UNKNOWN, words, parts=names * 2
        )
        for name, values in found.items()
    ]
    values = np.full(len(rows), np.nan)
    values[rows] = along_main_direction(cosines[-1][np.ix_(rows, rows)])
    against = (f"against the others in {names[-1]}",) * 2
    return [
        *traits,
        Trait("main direction", values, LEAST_SPREAD_OF_COSINES, UNKNOWN, against, FEWEST_AGAINST, AGAINST),
    ]


def length_trait(lengths: FloatVector) -> Trait:
    """Return the logarithm of the length of each update."""
    words = ("much shorter than the others", "much longer than the others")
    return Trait("length", np.log(lengths), LEAST_SPREAD_OF_LENGTHS, UNKNOWN, words)


def own_traits(
    answers: Answers, changes: tuple[FloatVector, ...], novelty: FloatVector, names: tuple[str, ...]
) -> list[Trait]:
    """Return how each client compares with its own accepted past.

    `answers` are what `ask_questions` measured in this round. `changes` tell, for each part of the model, how far
    the cosine with the crowd is from its usual value. `novelty` tells the same of novelty. `names` are the names of
    the parts. Only the whole model and the last layer are used. The layers before the last one are most of a model,
    so they change as the whole model does.
    """
    values = answers.values
    marks = Trait(
        "fingerprint",
        values[:, FINGERPRINT],
        LEAST_SPREAD_OF_FINGERPRINTS,
        LOW,
        ("it lacks its own fingerprint", ""),
        1,
        STRANGE,
    )
    made_up = ("nearly a sum of earlier updates, with little new in it", "")
    new = Trait("novelty", novelty, LEAST_SPREAD_OF_NOVELTY, LOW, made_up, 1, float(LESS_NEW))
    words = ("much shorter than its earlier updates", "much longer than its earlier updates")
    traits = [
        marks,
        new,
        Trait("own length", values[:, LENGTH], LEAST_SPREAD_OF_LENGTHS, CHANGED, words, 1, MANY_TIMES),
    ]
    for name, change in list(zip(names, changes, strict=False))[:2]:
        words = (
            f"its update points less in the direction of accepted clients than before, in {name}",
            f"its update points more in the direction of accepted clients than before, in {name}",
        )
        traits.append(
            Trait(f"own course in {name}", change, LEAST_SPREAD_OF_COSINES, CHANGED, words, 1, TURNED_FAR)
        )
    return traits
