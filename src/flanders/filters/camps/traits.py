"""The traits by which `Guard` and `Camps` compare clients. A trait is one number for each client, or several.

If the numbers of a trait form two groups, these groups are called camps, and one camp is dropped as wrong. There
are two kinds of traits:

- Some traits compare the clients of a round with each other, by the directions and lengths of their updates. These
  traits do not tell which of two camps is wrong.
- The other traits compare each client with its own past. These traits do tell which camp is wrong: the camp that is
  unlike its past.

The direction and the length of an update are those of the difference between the client's model and the global
model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.client_ids import ClientId
from flanders.filters.camps.directions import (
    Directions,
    all_cosines_with_middle,
    along_main_direction,
    weights_of_round,
)
from flanders.filters.camps.splitting import PER_CLIENT, PER_CLIENT_OF_NATURE
from flanders.filters.fingerprint.questions import FINGERPRINT, LENGTH, Answers
from flanders.layers import last_layer_of, owner_of
from flanders.linalg.products import gram, lengths_of_gram, projections
from flanders.round import Round

LOW, HIGH_MINORITY, CHANGED, RESIZED, UNKNOWN = "low", "high minority", "changed", "resized", "unknown"
"""Which camp of a trait is wrong.

- `LOW`: the camp with the lower numbers.
- `HIGH_MINORITY`: the camp with the higher numbers, if it has at most `MINORITY` of the clients, and if it is
  farther from zero than the other camp. Zero is the usual number.
- `CHANGED`: the camp whose numbers are farther from zero. Zero means that a client has not changed.
- `RESIZED`: the same, but not if this is the larger camp and still goes the same way as in earlier rounds. Then the
  server has changed the training of all clients, e.g. the learning rate, and some of them ignore it.
- `UNKNOWN`: the trait does not tell. The rules in `judging` decide.
"""
MINORITY = 1 / 3
"""For traits with `HIGH_MINORITY`, a camp with more than this share of the clients is not wrong.

If clients have few classes each, two large camps of honest clients may have different classes. In rounds without
attackers, there was much evidence for such camps. They had two fifths to one half of the clients.
"""
STRANGE = 2.0
"""A camp is wrong if its median fingerprint is below this.

A fingerprint tells how much more an update resembles its sender's earlier updates than those of other clients, in
standard deviations. Below this limit the update may come from another client.
"""
TURNED_FAR = 0.3
"""A camp has changed if its median change is at least this far from zero.

The change of a client is the cosine of its update with the common direction, minus the usual value of this cosine.
The common direction is the mean direction of the updates accepted last. The cosines of honest clients change less.
"""
MANY_TIMES = np.log(2.0)
"""A camp has changed if the updates of its median client are at least twice as long as usual, or at most half as
long.

The lengths of an honest client's updates usually change less. This number is the logarithm of two.
"""
LESS_NEW = np.log(0.2)
"""A camp is wrong if its median novelty has fallen to less than a fifth of its usual value.

The novelty of an update is the share of it that is not a weighted sum of earlier updates. In honest training the
novelty does not fall as far. This number is the logarithm of a fifth.
"""
LEAST_SPREAD_OF_COSINES = 0.02
"""The smallest standard deviation that is assumed for the cosines in a camp. Two batches of training more or fewer
change a cosine by about this much."""
LEAST_SPREAD_OF_LENGTHS = 0.25
"""The smallest standard deviation that is assumed for the log lengths in a camp. Honest clients differ by this
much, since they have different data and numbers of training steps."""
LEAST_SPREAD_OF_FINGERPRINTS = 0.5
"""The smallest standard deviation that is assumed for the fingerprints in a camp. The unit of a fingerprint is a
standard deviation, so smaller differences are mostly chance."""
AGAINST = -0.3
"""Two camps point against each other if the median cosine with the main direction is below -0.3 in one camp, and
above 0.3 in the other.

The main direction is the first principal direction of the updates; see `along_main_direction`. If some honest
clients hold the same few classes, their cosines with it may be large. But the median cosine of the other clients
was never more than 0.2 away from zero in this case.
"""
FEWEST_AGAINST = 2
"""The smallest camp along the main direction. A single client may have unusual data."""
WHOLE = "the whole model"
"""The name of the part of the model that has all its parameters."""
LEAST_SPREAD_OF_NOVELTY = 0.25
"""The smallest standard deviation that is assumed for the log novelty in a camp. It is a factor of 1.3, which is
small beside the factor of five in `LESS_NEW`."""


@dataclass(frozen=True, eq=False)
class Trait:
    """One number for each of m clients, or several, and what it means if these numbers form two camps."""

    name: str
    values: FloatVector | FloatMatrix
    """`(m,)`: the numbers; NaN for clients without a number. `(m, k)` if each client has k numbers."""
    floor: float
    """The smallest standard deviation that is assumed for a camp; see `split_in_two`."""
    wrong: str
    """Which camp is wrong: `LOW`, `HIGH_MINORITY`, `CHANGED` or `UNKNOWN`."""
    words: tuple[str, str]
    """The reason that is given if the lower camp is dropped, and the reason if the upper camp is dropped."""
    fewest: int = 1
    """The smallest number of clients in a camp."""
    limit: float = np.inf
    """A camp is dropped only if the medians of the camps are beyond this limit. What this means depends on `wrong`:

    - `LOW`: the median of the lower camp must be below the limit.
    - `CHANGED` and `RESIZED`: the median of the changed camp must be at least this far from zero.
    - `UNKNOWN`: the limit is negative. One median must be below `limit`, and the other one above `-limit`. Infinity
      means that there is no limit.
    """
    parts: tuple[str, ...] = ()
    """For each of the k numbers, the name of the part of the model from which it comes. There may be more names
    than numbers."""

    @property
    def per_client(self) -> float:
        """The evidence for two camps that is needed for each client, in nats; see `splitting`."""
        return PER_CLIENT_OF_NATURE if self.wrong in (LOW, CHANGED, RESIZED) else PER_CLIENT


@dataclass(frozen=True, eq=False)
class Parts:
    """Inner products and cosines of a round's updates, for each part of the model."""

    names: tuple[str, ...]
    """The parts: the whole model and, if its layers are known, the last layer and the layers before it."""
    products: tuple[FloatMatrix, ...]
    """`(m, m)` for each part: the inner products of the updates with each other."""
    rooted: tuple[FloatVector, ...] = ()
    """`(m,)` for each part: the cosines of the updates with the server's own step, which the server trains on its
    own examples. Empty if the server made no step."""
    headings: tuple[FloatVector, ...] = ()
    """`(m,)` for each part: the cosines of the updates with the common direction, which is the mean direction of
    the updates accepted last. Empty if no clients were accepted yet."""
    last_layer_named: bool = False
    """Whether the names of the tensors tell which of them belong to the last layer, e.g. `2.weight` and `2.bias`.

    If the names do not tell, the last tensor counts as the last layer, though it may be only a part of that layer.
    """


def parts_of(round_: Round, products: FloatMatrix, common: Array | None) -> Parts:
    """Return the inner products and cosines for the whole model, for the last layer, and for the layers before it.

    If the layers are not known, or if there is only one, the whole model is the only part. `products` are the inner
    products of the updates in the whole model. `common`, `(d,)`, is the common direction; None in the first round.
    """
    d, g = round_.updates.shape[1], round_.global_model
    start = int(last_layer_of(round_.layers, without_owner=1).start) if round_.layers else 0
    if not 0 < start < d:
        rooted, headings = (
            () if v is None else (cosines_with_direction(round_, products, v, slice(None)),)
            for v in (round_.root, common)
        )
        return Parts((WHOLE,), (products,), rooted, headings)
    last = slice(start, None)
    of_last = gram(round_.updates[:, last], g[last])
    found: list[tuple[FloatVector, ...]] = []
    for v in (round_.root, common):
        if v is None:
            found.append(())
            continue
        pieces = ((products, slice(None)), (of_last, last), (products - of_last, slice(None, start)))
        found.append(tuple(cosines_with_direction(round_, own, v, columns) for own, columns in pieces))
    assert round_.layers is not None  # otherwise `start` would be 0
    named = bool(owner_of(list(round_.layers)[-1]))
    names = (WHOLE, "the last layer", "the first layers")
    return Parts(names, (products, of_last, products - of_last), found[0], found[1], named)


def cosines_with_direction(round_: Round, products: FloatMatrix, v: Array, columns: slice) -> FloatVector:
    """Return the cosines of the updates with the vector `v`, in some columns.

    `products` are the inner products of the updates with each other in these columns.
    """
    part = v[columns][None, :]
    along = projections(round_.updates[:, columns], part, round_.global_model[columns])[:, 0]
    length = float(projections(part, part)[0, 0]) ** 0.5
    return np.asarray(along / lengths_of_gram(products) / max(length, 1e-100))


def headings_among(parts: Parts, rows: IntVector) -> FloatMatrix:
    """Return the cosine of each update in these n rows with the mean direction of the others, `(k, n)` for k parts.

    A client's own update is left out of the mean. In a small round the own update would make the cosine much
    higher, and in the next round the cosine would seem to have fallen.
    """
    lengths = lengths_of_gram(parts.products[0])[rows]
    found = []
    for products in parts.products:
        unit = products[np.ix_(rows, rows)] / np.outer(lengths, lengths)
        own, along = np.diagonal(unit), unit.sum(axis=1)
        square_of_others = unit.sum() - 2 * along + own
        found.append((along - own) / np.sqrt(np.maximum(own * square_of_others, 1e-24)))
    return np.array(found)


def direction_traits(
    names: tuple[str, ...],
    cosines: tuple[FloatMatrix, ...],
    clients: tuple[ClientId, ...],
    known: Directions,
    rows: BoolVector,
    server: FloatMatrix | None = None,
) -> list[Trait]:
    """Return traits that measure how much the updates of the clients in `rows` point in the same direction.

    `names` are the parts of the model that are compared. For each part, `cosines` has the cosines of the updates
    with each other, and a column of `server` has their cosines with the server's own step. `server` is None if the
    server made no step. The middle of some clients is the geometric median of their unit updates; see `directions`.

    These are the traits of a client. Except for the last one, they have a number for each part of the model:

    - the cosine of its update with the middle of the clients in `rows`;
    - the cosine of its update with the middle of the clients in `rows` that were not dropped the last time they
      took part;
    - the average of the second trait over all rounds in which the client took part;
    - the first trait and the cosines with the server's own step, if the server made a step;
    - the cosine of its update with the main direction, in the last part of `names`. This trait shows two camps that
      point against each other.
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
    floor, traits = LEAST_SPREAD_OF_COSINES, []
    for name, values in found.items():
        own = np.where(rows[:, None], values, np.nan)
        traits.append(Trait(name, own, floor, UNKNOWN, words, parts=names * 2))
    along = np.full(len(rows), np.nan)
    along[rows] = along_main_direction(cosines[-1][np.ix_(rows, rows)])
    against = (f"against the others in {names[-1]}",) * 2
    traits.append(Trait("main direction", along, floor, UNKNOWN, against, FEWEST_AGAINST, AGAINST))
    return traits


def length_trait(lengths: FloatVector) -> Trait:
    """Return the trait that is the logarithm of the length of each update."""
    words = ("much shorter than the others", "much longer than the others")
    return Trait("length", np.log(lengths), LEAST_SPREAD_OF_LENGTHS, UNKNOWN, words)


def own_traits(
    answers: Answers,
    level: float,
    changes: tuple[FloatVector, ...],
    novelty: FloatVector,
    names: tuple[str, ...],
) -> list[Trait]:
    """Return the traits that compare each client with its own past.

    The cosines with the common direction are compared in the whole model and in the last layer only. The layers
    before the last one are most of the model, so their cosines change like those of the whole model.

    Parameters
    ----------
    answers
        What `ask_questions` has measured in this round.
    level
        The typical log length of an update in the last round. For each client, `answers` has the log length of its
        update, minus its usual difference from the typical log length. If the client has not changed, the result is
        about `level`.
    changes
        For each part of the model: by how much the cosine of each client's update with the common direction is
        above its usual value.
    novelty
        By how much the novelty of each update is above its usual value; see `LESS_NEW`.
    names
        The names of the parts of the model.
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
        Trait("own length", values[:, LENGTH] - level, LEAST_SPREAD_OF_LENGTHS, RESIZED, words, 1, MANY_TIMES),
    ]
    for name, change in list(zip(names, changes, strict=False))[:2]:
        than = "with the others than in earlier rounds" + ("" if name == WHOLE else f", in {name}")
        words = f"its update agrees less {than}", f"its update agrees more {than}"
        traits.append(
            Trait(f"own course in {name}", change, LEAST_SPREAD_OF_COSINES, CHANGED, words, 1, TURNED_FAR)
        )
    return traits
