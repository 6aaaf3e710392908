"""The class `DefenseState`: what a `Defense` remembers from round to round, and saves to a file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array
from flanders.checks import InputError
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class DefenseState:
    """Everything that a `Defense` remembers."""

    filter: str
    """The filter that made the memory, with its parameters, as text. No other filter can use the memory."""
    memory: object
    """The filter's own memory."""
    model: Array
    """The last global model. None if there is no model yet, or if the caller of `Defense.step` keeps the model."""
    generator: dict[str, object]
    """The state of the random generator that the aggregators use."""
    aggregation: dict[str, object] = dataclasses.field(default_factory=dict)
    """The memory of each aggregator that has a memory. The key is the name of the aggregator's class. If there are
    pre-aggregators in front of the aggregator, the key also has their names, e.g. "Nnm+FoolsGold"."""
    rounds: int = 0
    """The number of rounds that were protected."""

    def check(self, filter: object, name: str, state: object, rng: np.random.Generator) -> None:
        """Raise an `InputError` if a `Defense` with this filter cannot continue from this memory.

        `name` is the filter with its parameters, as text. `state` is a new memory of this filter: the saved memory
        must be of the same type. `rng` is the random generator of the `Defense`.
        """
        if self.filter != name:
            raise InputError(
                f"This memory was made by {self.filter}, but the filter is {name}. "
                "Go on with the filter that made it, or start with an empty memory."
            )
        if state is not None and not isinstance(self.memory, type(state)):
            raise InputError(
                f"This memory holds a {type(self.memory).__name__}, but {type(filter).__name__} needs a "
                f"{type(state).__name__}. Go on with a file of this filter, or start with an empty memory."
            )
        if not (self.model is None or (array_api_compat.is_array_api_obj(self.model) and self.model.ndim == 1)):
            raise InputError("The global model in this memory is not a flat array. Start with an empty memory.")
        try:
            type(rng.bit_generator)().state = self.generator  # tried on a new generator, so `rng` does not change
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise InputError(
                f"The state of the random generator in this memory is wrong ({error}). Start with an empty memory."
            ) from error
