"""The options of local training. This module does not need PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import check_choice, check_number


@dataclass(frozen=True)
class Training:
    """How clients train locally. Every round starts with a fresh optimizer.

    Parameters
    ----------
    optimizer
        `"adam"` or `"sgd"`.
    learning_rate
        The learning rate of the optimizer.
    momentum
        The momentum of `"sgd"`. Default: none. `"adam"` does not use it.
    batch_size, epochs
        The number of examples in a batch, and how often a client goes through its data in a round. The last batch
        of an epoch may be smaller. If the model has batch normalisation, a last batch of one example is left out.
    shuffle
        Whether each epoch goes through the data in a new random order.
    validation_fraction
        The share of each client's data that is set aside and never trained on. Default: none.
    """

    optimizer: str = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.0
    batch_size: int = 32
    epochs: int = 1
    shuffle: bool = True
    validation_fraction: float = 0.0

    def __post_init__(self) -> None:
        check_choice("Training", "optimizer", self.optimizer, ("adam", "sgd"))
        check_number("Training", "learning_rate", self.learning_rate, 0)
        check_number("Training", "momentum", self.momentum, 0, 1)
        check_number("Training", "batch_size", self.batch_size, 1, whole=True)
        check_number("Training", "epochs", self.epochs, 1, whole=True)
        check_number("Training", "validation_fraction", self.validation_fraction, 0, 0.99)

    def kept_examples(self, rows: IntVector, rng: np.random.Generator) -> IntVector:
        """Return the rows that a client trains on, out of all its rows. The other rows are set aside."""
        aside = int(round(len(rows) * self.validation_fraction, 9))
        if aside == 0:
            return rows
        return rows[np.sort(rng.permutation(len(rows))[aside:])]
