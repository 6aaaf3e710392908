"""What the attacker can use for computations of its own: the global model and the examples of its clients.

Data poisons that learn before every round get a `Laboratory` (see `DataPoison.learn`).
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
"""A function that runs a model: from parameters, buffers, a dropout key and examples to logits.

The arguments and the logits have a first axis of length 1."""


@dataclass(frozen=True, eq=False)
class Laboratory:
    """The global model of a round, and the examples of the attacker's clients."""

    run: Run
    """Runs the model in evaluation mode."""
    layout: Layout
    """How the parameters lie in a flat vector."""
    buffers: Mapping[str, Tensor]
    """The global model's buffers, with a first axis of length 1."""
    model: Tensor
    """The global model, `(d,)`."""
    x: Tensor
    """The examples of the attacker's clients, `(n, *input_shape)`, not poisoned."""
    y: Tensor
    """The classes of these examples, `(n,)`."""
    examples: Tensor
    """The row numbers of these examples in the training data, `(n,)`."""

    def logits(self, x: Tensor, model: Tensor | None = None) -> Tensor:
        """Return the logits of a model on examples.

        Default: the global model. Autograd can differentiate the logits.
        """
        at = self.model if model is None else model
        key = torch.zeros(1, dtype=torch.int32, device=at.device)
        return self.run(self.layout.unflatten(at[None]), self.buffers, key, x[None])[0]

    def classes(self, x: Tensor, model: Tensor) -> Tensor:
        """Return the classes to which a model assigns examples."""
        with torch.no_grad():
            starts = range(0, len(x), BATCH)
            found = [self.logits(x[start : start + BATCH], model).argmax(1) for start in starts]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64, device=x.device)
