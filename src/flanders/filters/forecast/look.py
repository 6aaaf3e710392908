"""Which numbers of a model FLANDERS compares: all parameters, a sample of them, or sketches.

A sketch has far fewer numbers than the model: each is a sum of many parameters with random signs. Which parameters
are added up is drawn after the models have arrived. So an attacker cannot prepare for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import InputError, check_choice, check_number
from flanders.filters.forecast.history import Numbering, Snapshot
from flanders.linalg.columns import most_varied_columns
from flanders.linalg.selection import take_columns
from flanders.linalg.sketch import CountSketch
from flanders.round import Round, last_layer_of, sizes_of_layers

CHOICES = ("random", "variance", "last-layer", "per-layer")


class Look:
    """Which numbers of the models FLANDERS compares. By default it compares every parameter."""

    @property
    def changes(self) -> bool:
        """Whether the filter looks at different numbers in every round."""
        return False

    @property
    def mixes(self) -> bool:
        """Whether parameters are added up. Then only Euclidean distances can be measured."""
        return False

    def columns(self, seed: int, d: int, layers: Mapping[str, int]) -> IntVector | None:
        """Return the parameters to look at, if they are drawn before the first round; else None."""
        return None

    def chosen_columns(self, round_: Round, kept: IntVector) -> IntVector | None:
        """Return the parameters to look at, if the models kept in the first round decide them; else None."""
        return None

    def views(self, numbering: Numbering, rng: np.random.Generator) -> Iterator[Numbering]:
        """Yield the numbers to compare in this round, once for each random draw. Used if `changes` is true."""
        yield numbering


@dataclass(frozen=True)
class Everything(Look):
    """Look at every parameter."""


@dataclass(frozen=True)
class Sample(Look):
    """Look at some of the parameters.

    Parameters
    ----------
    size
        How many parameters to look at. The FLANDERS paper looks at 500.
    choose
        How they are chosen. `"random"`: at random. `"variance"`: the parameters in which the clients kept in the
        first round differ most. `"last-layer"`: at random from the last layer. `"per-layer"`: at random, the
        same number from each layer. The last two need to know the layers: pass `layers=` to `Defense` or `Round`.
    redraw
        Whether to draw new parameters in every round, after the models have arrived. An attacker cannot avoid
        parameters that are not drawn yet. Only random parameters can be redrawn.
    """

    size: int = 500
    choose: str = "random"
    redraw: bool = False

    def __post_init__(self) -> None:
        check_number("Sample", "size", self.size, 1, whole=True)
        check_choice("Sample", "choose", self.choose, CHOICES)
        if self.redraw and self.choose != "random":
            raise InputError(
                f"Sample(choose={self.choose!r}) looks at the same parameters in every round. Leave out `redraw`, "
                "or choose them at random."
            )

    @property
    def changes(self) -> bool:
        """Whether the filter looks at different parameters in every round."""
        return self.redraw

    def columns(self, seed: int, d: int, layers: Mapping[str, int]) -> IntVector | None:
        """Return the parameters that are drawn before the first round, in rising order."""
        if self.redraw or self.choose == "variance":
            return None
        rng = np.random.default_rng([seed, 0])
        if self.choose == "random":
            return sample_columns(d, self.size, rng)
        if not layers:
            raise InputError(
                f"Sample(choose={self.choose!r}) needs the sizes of the model's layers, but the round does not "
                "have them. Pass `layers=`, the number of parameters of each layer by name, to Defense or Round."
            )
        if self.choose == "last-layer":
            first = int(last_layer_of(layers).start)
            return first + sample_columns(d - first, self.size, rng)
        return sample_of_layers(sizes_of_layers(layers), self.size, rng)

    def chosen_columns(self, round_: Round, kept: IntVector) -> IntVector | None:
        """Return the parameters in which the models kept in the first round differ most."""
        return most_varied_columns(round_.take(kept).updates, self.size) if self.choose == "variance" else None

    def views(self, numbering: Numbering, rng: np.random.Generator) -> Iterator[Numbering]:
        """Draw the parameters for this round. Yield all vectors, cut down to these parameters."""
        yield on_columns(numbering, sample_columns(numbering.round_.updates.shape[1], self.size, rng))


@dataclass(frozen=True)
class Sketch(Look):
    """Look at CountSketches of all parameters, new ones in every round, drawn after the models have arrived.

    A client's score is its largest score in any sketch of the round. A sketch preserves only Euclidean distances.

    Parameters
    ----------
    width
        The number of buckets. Each parameter is added to one of them, with a random sign. A score from a sketch has
        a random error of about 1 / sqrt(width) of its size. repeats How many sketches to draw each round.
    """

    width: int
    repeats: int = 5

    def __post_init__(self) -> None:
        check_number("Sketch", "width", self.width, 1, whole=True)
        check_number("Sketch", "repeats", self.repeats, 1, whole=True)

    @property
    def changes(self) -> bool:
        """True, since the filter looks at different numbers in every round."""
        return True

    @property
    def mixes(self) -> bool:
        """True, since parameters are added up."""
        return True

    def views(self, numbering: Numbering, rng: np.random.Generator) -> Iterator[Numbering]:
        """Yield the sketches of all vectors, once for each sketch of this round."""
        for _ in range(self.repeats):
            yield in_sketch(numbering, self.width, rng)


def sample_columns(d: int, count: int, rng: np.random.Generator) -> IntVector:
    """Draw `count` of `d` parameters, in rising order. If `count` is larger than `d`, return all of them."""
    if count >= d:
        return np.arange(d)
    return np.sort(rng.choice(d, size=count, replace=False)).astype(np.int64)


def sample_of_layers(sizes: Sequence[int], count: int, rng: np.random.Generator) -> IntVector:
    """Draw `count` parameters, an equal share from each layer, in rising order.

    If a layer has fewer parameters than its share, all of them are drawn, and the other layers give more.

    Examples
    --------
    >>> sample_of_layers((7, 1, 2), 4, np.random.default_rng(0))
    array([3, 6, 7, 9])
    """
    ends = np.cumsum(sizes)
    drawn: list[IntVector] = []
    left = min(count, int(ends[-1]))
    for position, layer in enumerate(np.argsort(sizes, kind="stable")):
        share = min(sizes[layer], left // (len(sizes) - position))
        drawn.append(ends[layer] - sizes[layer] + sample_columns(sizes[layer], share, rng))
        left -= share
    return np.sort(np.concatenate(drawn))


def round_on_columns(round_: Round, columns: IntVector | None) -> Round:
    """Return the round with only these columns. None means all of them."""
    if columns is None:
        return round_
    g = take_columns(round_.global_model[None, :], columns)[0, :]
    return Round(take_columns(round_.updates, columns), round_.clients, round_.weights, g)


def on_columns(numbering: Numbering, columns: IntVector) -> Numbering:
    """Return all vectors with only these columns."""
    snapshots = tuple(
        Snapshot(s.clients, take_columns(s.rows, columns), take_columns(s.global_model[None, :], columns)[0, :])
        for s in numbering.snapshots
    )
    return Numbering(snapshots, round_on_columns(numbering.round_, columns))


def in_sketch(numbering: Numbering, width: int, rng: np.random.Generator) -> Numbering:
    """Return the sketches of all vectors, by one new CountSketch with `width` buckets.

    All vectors are sketched as displacements from the current global model g, so that small displacements keep
    their precision. So the sketch of g is zero. The origin of parameter space, a model of zeros, is sketched as -g.
    """
    round_, center = numbering.round_, numbering.round_.global_model
    sketch = CountSketch.draw(center.shape[0], width, rng)
    snapshots = tuple(
        replace(s, rows=sketch.of(s.rows, center), global_model=sketch.of(s.global_model[None, :], center)[0, :])
        for s in numbering.snapshots
    )
    sketched = Round(sketch.of(round_.updates, center), round_.clients, round_.weights)
    return Numbering(snapshots, sketched, sketch.of(0 * center[None, :], center)[0, :])
