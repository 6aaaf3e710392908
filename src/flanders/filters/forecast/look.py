"""Which parameters FLANDERS looks at: all, a sample fixed for the run, or a secret drawn anew each round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import InputError, check_choice, check_number
from flanders.filters.forecast.history import Layout
from flanders.filters.forecast.memory import FlandersState
from flanders.filters.forecast.reduction import (
    most_varied_columns,
    sample_columns,
    sample_of_layers,
    sketch_of_layout,
    take_of_layout,
    take_of_round,
)
from flanders.round import Round

SAMPLINGS = ("random", "variance", "last-layer", "per-layer")


@dataclass(frozen=True)
class View:
    """The settings of what is looked at; see `Flanders`."""

    sample: int | None
    sketch: int | None
    sketches: int
    redraw: bool
    sampling: str
    layers: tuple[int, ...] | None

    def __post_init__(self) -> None:
        check_number("Flanders", "sketches", self.sketches, 1, whole=True)
        for name in ("sample", "sketch"):
            if getattr(self, name) is not None:
                check_number("Flanders", name, getattr(self, name), 1, whole=True)
        check_choice("Flanders", "sampling", self.sampling, SAMPLINGS)
        if self.redraw and self.sample is None:
            raise InputError("Flanders(redraw=True) needs `sample`: how many parameters to draw each round.")
        if self.sample is not None and self.sketch is not None:
            raise InputError("Flanders can take a `sample` or a `sketch` of the parameters, not both.")
        if self.secret and self.sampling != "random":
            raise InputError(
                f"Flanders(sampling={self.sampling!r}) looks at the same parameters in every round. "
                "Leave out `redraw` and `sketch`."
            )
        if self.sampling != "random" and self.sample is None:
            raise InputError(f"Flanders(sampling={self.sampling!r}) needs `sample`: how many parameters to choose.")
        if (self.layers is not None) != self.sampling.endswith("layer"):
            raise InputError(
                "Flanders needs `layers`, the number of parameters of each layer, for sampling='last-layer' and "
                f"'per-layer', and for nothing else. Got sampling={self.sampling!r}, layers={self.layers!r}."
            )

    @property
    def secret(self) -> bool:
        """Whether what is looked at changes from round to round."""
        return self.sketch is not None or self.redraw

    def chosen(self, state: FlandersState, round_: Round, kept: IntVector) -> FlandersState:
        """Return the memory with the parameters to look at, where the clients kept in the first round decide."""
        if self.sampling != "variance" or state.columns is not None:
            return state
        return replace(state, columns=most_varied_columns(round_.take(kept).updates, self.sample or 0))

    def columns(self, state: FlandersState, d: int) -> IntVector | None:
        """Return the parameters looked at in every round, if they are fixed and not all."""
        if self.sample is None or self.secret:
            return None
        if self.sampling == "variance":
            return state.columns
        rng = np.random.default_rng([state.seed, 0])
        if self.layers is not None:
            return sample_of_layers(d, self.sample, self.layers, rng, last_only=self.sampling == "last-layer")
        return sample_columns(d, self.sample, rng)

    def of_round(self, state: FlandersState, round_: Round) -> Round:
        """Return the round as it is remembered: whole, or through the run's fixed sample."""
        columns = self.columns(state, round_.updates.shape[1])
        return round_ if columns is None else take_of_round(round_, columns)

    def secrets(self, state: FlandersState, layout: Layout) -> Iterator[Layout]:
        """Yield the layout through this round's own sample or sketches, drawn after the models have arrived."""
        rng = np.random.default_rng([state.seed, 2, state.round_number])
        if self.sketch is not None:
            for _ in range(self.sketches):
                yield sketch_of_layout(layout, self.sketch, rng)
        else:
            assert self.sample is not None  # or nothing is secret
            yield take_of_layout(layout, sample_columns(layout.round_.updates.shape[1], self.sample, rng))
