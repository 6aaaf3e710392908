"""What FLANDERS remembers between rounds, whichever way it decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from flanders.arrays import FloatMatrix, IntVector
from flanders.filters.forecast.history import Snapshot
from flanders.filters.forecast.probability import Calibration
from flanders.filters.forecast.refitting import KeptFit
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class FlandersState:
    """The memory of `Flanders`; each way of deciding uses a part of it."""

    seed: int
    round_number: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    """The amended matrices of the last rounds, the oldest first."""
    gram: FloatMatrix | None = None
    """The inner products of all vectors in the snapshots, around the newest global model."""
    calibration: Calibration = field(default_factory=Calibration)
    """The scores of clients accepted so far, with a `threshold`."""
    columns: IntVector | None = None
    """The parameters looked at, where they were chosen by what the first round's clients sent."""
    fit: KeptFit | None = None
    """The coefficients in use, where they are kept for more than a round."""
