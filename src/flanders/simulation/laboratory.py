"""What the attacker can compute by itself before a round: it has the global model and its own clients' examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flanders.models import Layout

BATCH = 1000
"""How many examples are tried at a time. This limits the memory that activations take."""

Run = Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Tensor, Tensor], Tensor]
"""A function from parameters, buffers, a key `(1,)` and examples, all with a first axis of length 1, to logits."""


@dataclass(frozen=True, eq=False)
class Laboratory:
    """The global model of a round, and the examples of the attacker's clients."""

    run: Run
    """Runs the model in evaluation mode."""
    layout: Layout
    buffers: Mapping[str, Tensor]
    """The global model's buffers, with a first axis of length 1."""
    model: Tensor
    """The global model, `(d,)`."""
    x: Tensor
    """The examples of the attacker's clients, `(n, *input_shape)`, not poisoned."""
    y: Tensor
    """Their classes."""
    examples: Tensor
    """Their numbers in the training data."""

    def logits(self, x: Tensor, model: Tensor | None = None) -> Tensor:
        """Return the logits of a model, by default the global one. Gradients flow to the examples and the model."""
        at = self.model if model is None else model
        key = torch.zeros(1, dtype=torch.int32, device=at.device)
        return self.run(self.layout.unflatten(at[None]), self.buffers, key, x[None])[0]

    def classes(self, x: Tensor, model: Tensor) -> Tensor:
        """Return the classes to which a model assigns examples."""
        with torch.no_grad():
            starts = range(0, len(x), BATCH)
            found = [self.logits(x[start : start + BATCH], model).argmax(1) for start in starts]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64, device=x.device)
