"""Chooses which numbers of a model the filter `Flanders` compares: all parameters, a sample of them, or sketches.

A sketch of a model has far fewer numbers than the model. Each number of a sketch is a sum of many parameters with
random signs. The random signs are drawn after the models have arrived, so an attacker cannot prepare for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import InputError, check_choice, check_number
from flanders.filters.forecast.history import Numbering, Snapshot
from flanders.layers import last_layer_of, sizes_of_layers
from flanders.linalg.columns import most_varied_columns
from flanders.linalg.selection import take_columns
from flanders.linalg.sketch import CountSketch
from flanders.round import Round

CHOICES = ("random", "variance", "last-layer", "per-layer")


class Look:
    """Says which numbers of the models `Flanders` compares. In this base class, it compares all parameters."""

    @property
    def changes(self) -> bool:
        """Whether different numbers are compared in each round."""
        return False

    @property
    def mixes(self) -> bool:
        """Whether parameters are added up. If so, only Euclidean distances can be measured."""
        return False

    def columns(self, seed: int, d: int, layers: Mapping[str, int]) -> IntVector | None:
        """Return the positions of the compared parameters, if the secret seed alone determines them; else None."""
        return None

    def chosen_columns(self, round_: Round, kept: IntVector) -> IntVector | None:
        """Return the positions of the compared parameters, if the first round determines them; else None."""
        return None

    def views(self, numbering: Numbering, rng: np.random.Generator) -> Iterator[Numbering]:
        """For each random draw, yield all vectors of `numbering`, reduced to the compared numbers.

        This method is used only if `changes` is true.
        """
        yield numbering


@dataclass(frozen=True)
class Everything(Look):
    """Compare every parameter."""


@dataclass(frozen=True)
class Sample(Look):
    """Compare some of the parameters.

    Parameters
    ----------
    size
        How many parameters to compare. The FLANDERS paper compares 500.
    choose
        How the parameters are chosen. `"random"`: at random. `"variance"`: the parameters in which the clients kept
        in the first round differ most. `"last-layer"`: at random from the last layer. `"per-layer"`: at random, the
        same number from each layer. `"last-layer"` and `"per-layer"` need the layers: pass `layers=` to `Defense`
        or `Round`.
    redraw
        Whether to draw new parameters in every round, after the models have arrived, so that an attacker cannot
        know which parameters are compared. This needs `choose="random"`.
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
        """Whether different parameters are compared in each round."""
        return self.redraw

    def columns(self, seed: int, d: int, layers: Mapping[str, int]) -> IntVector | None:
        """Return the positions of the compared parameters, if the secret seed alone determines them; else None."""
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
        """Return the positions of the parameters in which the models kept in the first round differ most."""
        return most_varied_columns(round_.take(kept).updates, self.size) if self.choose == "variance" else None

    def views(self, numbering: Numbering, rng: np.random.Generator) -> Iterator[Numbering]:
        """Draw the parameters for this round. Yield all vectors, reduced to these parameters."""
        yield on_columns(numbering, sample_columns(numbering.round_.updates.shape[1], self.size, rng))


@dataclass(frozen=True)
class Sketch(Look):
    """Compare CountSketches of the models. New sketches are drawn in every round, after the models have arrived.

    Several sketches are drawn in a round. A client's score is the largest of its scores in these sketches. A sketch
    preserves only Euclidean distances.

    Parameters
    ----------
    width
        The number of buckets of a sketch. Each parameter is added to one of them, with a random sign. The relative
        error of a score is about 1 / sqrt(width).
    repeats
        How many sketches to draw in each round.
    """

    width: int
    repeats: int = 5

    def __post_init__(self) -> None:
        check_number("Sketch", "width", self.width, 1, whole=True)
        check_number("Sketch", "repeats", self.repeats, 1, whole=True)

    @property
    def changes(self) -> bool:
        """True: different numbers are compared in each round."""
        return True

    @property
    def mixes(self) -> bool:
        """True: each number of a sketch is a sum of parameters."""
        return True

    def views(self, numbering: Numbering, rng: np.random.Generator) -> Iterator[Numbering]:
        """Draw `repeats` times. Yield the sketches of all vectors after each draw."""
        for _ in range(self.repeats):
            yield in_sketch(numbering, self.width, rng)


def sample_columns(d: int, count: int, rng: np.random.Generator) -> IntVector:
    """Return the positions of `count` random parameters out of `d`, in rising order.

    If `count` is larger than `d`, return all positions.
    """
    if count >= d:
        return np.arange(d)
    return np.sort(rng.choice(d, size=count, replace=False)).astype(np.int64)


def sample_of_layers(sizes: Sequence[int], count: int, rng: np.random.Generator) -> IntVector:
    """Return the positions of `count` random parameters, the same number from each layer, in rising order.

    If a layer has too few parameters, all of them are drawn, and more are drawn from the other layers.

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
    """Return the round with only these parameters. None means all of them."""
    if columns is None:
        return round_
    g = take_columns(round_.global_model[None, :], columns)[0, :]
    return Round(take_columns(round_.updates, columns), round_.clients, round_.weights, g)


def on_columns(numbering: Numbering, columns: IntVector) -> Numbering:
    """Return all vectors of a numbering with only these parameters."""
    snapshots = tuple(
        Snapshot(s.clients, take_columns(s.rows, columns), take_columns(s.global_model[None, :], columns)[0, :])
        for s in numbering.snapshots
    )
    return Numbering(snapshots, round_on_columns(numbering.round_, columns))


def in_sketch(numbering: Numbering, width: int, rng: np.random.Generator) -> Numbering:
    """Return the sketches of all vectors of a numbering, by one new CountSketch with `width` buckets.

    Each vector is sketched after the current global model g was subtracted from it. So small differences keep their
    precision. The sketch of g itself is then zero, and that of the origin (a model of zeros) is the sketch of -g.
    """
    round_, center = numbering.round_, numbering.round_.global_model
    sketch = CountSketch.draw(center.shape[0], width, rng)
    snapshots = tuple(
        replace(s, rows=sketch.of(s.rows, center), global_model=sketch.of(s.global_model[None, :], center)[0, :])
        for s in numbering.snapshots
    )
    sketched = Round(sketch.of(round_.updates, center), round_.clients, round_.weights)
    return Numbering(snapshots, sketched, sketch.of(0 * center[None, :], center)[0, :])
