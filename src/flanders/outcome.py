"""The class `Outcome`: what a `Defense` returns for a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flanders.arrays import Array, IntVector
from flanders.client_ids import ClientId
from flanders.filters import Scores
from flanders.record import ClientRecord, Fate, lines_about


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """The result of a protected round: the new model, and what happened to each client.

    The models of a round are an array with a row for each client.
    """

    model: Array
    """The new global model, a vector of its parameters."""
    kept: IntVector
    """The indices of the rows that were aggregated, in rising order."""
    clients: tuple[ClientRecord, ...]
    """What happened to the client of each row."""
    scores: Scores | None
    """The filter's scores of all clients except those in `unusable`. None if the filter gave no scores."""
    state: Any
    """The filter's memory for the next round."""
    note: str = ""
    """Anything unusual that happened, in words. Empty if nothing did."""

    def __str__(self) -> str:
        """Return the outcome in five lines: who was kept, who was not, why, the size of the model, the note."""
        model = f"model     {self.model.shape[0]:,} parameters, {self.model.dtype}"
        return "\n".join([*lines_about(self.clients), model, f"note      {self.note or '-'}"])

    def __repr__(self) -> str:
        return f"Outcome(kept {len(self.kept)} of {len(self.clients)} clients; print it for more)"

    @property
    def stayed(self) -> bool:
        """Whether nobody was kept. The global model then stays as it is."""
        return self.kept.size == 0

    @property
    def widening(self) -> float:
        """How many times as wide as usual the filter's limits are. 1 if they are as usual; see `Scores`."""
        return 1.0 if self.scores is None else self.scores.widening

    @property
    def dropped(self) -> tuple[ClientId, ...]:
        """The clients whose models were not aggregated. This includes the clients of `unusable`."""
        return tuple(record.client for record in self.clients if not record.kept)

    @property
    def unusable(self) -> tuple[ClientId, ...]:
        """The clients whose rows held NaN, infinite or too large values."""
        return tuple(record.client for record in self.clients if record.fate is Fate.REFUSED)

    @property
    def reasons(self) -> dict[ClientId, str]:
        """For each client that was not kept, the reason in words."""
        return {record.client: record.reason for record in self.clients if not record.kept}
