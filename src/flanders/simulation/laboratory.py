"""The class `Laboratory`: the global model and the examples that the attacker can compute with.

Data poisons that learn from the global model before every round get a `Laboratory` (see `DataPoison.learn`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flanders.models import Layout

BATCH = 1000
"""How many examples are evaluated at a time. The limit saves memory."""

Run = Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Tensor, Tensor], Tensor]
"""A function that runs a model. It takes parameters, buffers, a key for dropout and examples, and returns logits.

It can run several models at the same time, one for each position on the first axis of its arguments. Here it runs
one model, so the first axis of the arguments and of the logits has length 1."""


@dataclass(frozen=True, eq=False)
class Laboratory:
    """The global model of a round, and the examples of the attacker's clients."""

    run: Run
    """Runs the model in evaluation mode."""
    layout: Layout
    """The order of the parameters in a flat vector."""
    buffers: Mapping[str, Tensor]
    """The global model's buffers, with a first axis of length 1."""
    model: Tensor
    """The global model as a vector of its d parameters, `(d,)`."""
    x: Tensor
    """The n examples of the attacker's clients, not poisoned, `(n, *input_shape)`."""
    y: Tensor
    """The classes of these examples, `(n,)`."""
    examples: Tensor
    """The row numbers of these examples in the training data, `(n,)`."""

    def logits(self, x: Tensor, model: Tensor | None = None) -> Tensor:
        """Return the logits of a model, by default of the global model, on the examples x.

        Autograd can differentiate the logits.
        """
        model = self.model if model is None else model
        key = torch.zeros(1, dtype=torch.int32, device=model.device)  # for dropout, which is off here
        return self.run(self.layout.unflatten(model[None]), self.buffers, key, x[None])[0]

    def classes(self, x: Tensor, model: Tensor) -> Tensor:
        """Return the classes to which a model assigns the examples x."""
        with torch.no_grad():
            starts = range(0, len(x), BATCH)
            predicted = [self.logits(x[start : start + BATCH], model).argmax(1) for start in starts]
        return torch.cat(predicted) if predicted else torch.zeros(0, dtype=torch.int64, device=x.device)
