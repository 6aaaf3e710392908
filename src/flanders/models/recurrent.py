"""A recurrent model, for text and other sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flanders.checks import check_number
from flanders.models.model_spec import ModelSpec


@dataclass(frozen=True)
class Gru(ModelSpec):
    """One layer of gated recurrent units and one linear layer, for text and other sequences.

    An example of shape `(steps, features)` is read step by step. In examples with more axes, the last axis has the
    features, and all other axes together are the steps.

    Examples
    --------
    >>> Gru(hidden=8).build((16, 30), 30)(torch.zeros(2, 16, 30)).shape
    torch.Size([2, 30])

    References
    ----------
    Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine translation",
    EMNLP 2014.
    """

    hidden: int = 64

    def __post_init__(self) -> None:
        check_number("Gru", "hidden", self.hidden, 1, whole=True)

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module."""
        return GatedReader(input_shape, self.hidden, num_classes)


class GatedReader(nn.Module):
    """Reads a sequence with gated recurrent units, and computes the logits of the classes from their last state.

    The units compute the same as `torch.nn.GRU`, but with plain operations. `torch.func.vmap` can run these for all
    clients at once.
    """

    def __init__(self, input_shape: tuple[int, ...], hidden: int, num_classes: int) -> None:
        super().__init__()
        self._shape = (math.prod(input_shape[:-1]), input_shape[-1])
        self.input = nn.Linear(input_shape[-1], 3 * hidden)
        self.state = nn.Linear(hidden, 3 * hidden)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of sequences."""
        x = x.reshape(x.shape[0], *self._shape)
        from_input = self.input(x)
        state = x.new_zeros(x.shape[0], self.head.in_features)
        for step in range(self._shape[0]):
            reset_in, update_in, new_in = from_input[:, step].chunk(3, dim=-1)
            reset_of, update_of, new_of = self.state(state).chunk(3, dim=-1)
            update = torch.sigmoid(update_in + update_of)
            new = torch.tanh(new_in + torch.sigmoid(reset_in + reset_of) * new_of)
            state = (1 - update) * new + update * state
        logits: Tensor = self.head(state)
        return logits
