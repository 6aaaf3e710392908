"""The results file, read into arrays: the one module of the report that knows how results are stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, FloatVector, IntVector
from flanders.checks import InputError
from flanders.record import PHASES
from flanders.results.confusion import Confusion
from flanders.results.schema import reading
from flanders.round import ClientId

BoolMatrix = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RunData:
    """One run: T finished rounds, and what became of each of its C clients in each of them.

    The matrices are `(C, T)`, a row per client and a column per round. A client that was not selected in
    a round is not `present` there, and the other matrices say nothing of it.
    """

    id: str
    spec: Mapping[str, Any]
    status: str
    rounds: IntVector
    accuracy: FloatVector
    loss: FloatVector
    attack_success: FloatVector
    seconds: Mapping[str, FloatVector]
    """Phase -> seconds in each round."""
    clients: tuple[ClientId, ...]
    present: BoolMatrix
    malicious: BoolMatrix
    """Nobody, where it is not known who is."""
    kept: BoolMatrix
    score: FloatMatrix
    """Higher is more abnormal; NaN where nothing judged the client."""
    probability: FloatMatrix
    notes: Mapping[int, str] = field(default_factory=dict)
    """Round number -> what was out of the ordinary."""
    message: str = ""
    """Why the run failed, if it did."""
    truth: bool = True
    """Whether it is known who is malicious; it is not in a live federation."""

    @cached_property
    def detection(self) -> Confusion:
        """Clients caught, missed and wronged, over all rounds; none of them where the truth is not known."""
        known = self.present & self.truth
        return Confusion.of(self.malicious[known], self.kept[known])

    @cached_property
    def judged(self) -> bool:
        """Whether a filter told any client from another: a filter that keeps everyone scores them all alike."""
        scores = self.score[np.isfinite(self.score)]
        return scores.size > 0 and bool(np.any(scores != scores[0]) or np.any(self.present & ~self.kept))

    @cached_property
    def threshold(self) -> FloatVector:
        """The largest kept score of each round; NaN where nobody was scored, or nobody was dropped."""
        kept = np.where(self.present & self.kept & np.isfinite(self.score), self.score, -np.inf)
        largest = kept.max(axis=0, initial=-np.inf)
        dropped = np.any(self.present & ~self.kept & ~np.isnan(self.score), axis=0)
        return np.where(dropped & np.isfinite(largest), largest, np.nan)


def read_results(path: Path) -> list[RunData]:
    """Read all runs of a results file, in the order in which they were asked for.

    The file may still be written to: what is read is one moment of it.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name the results file in it.")
    with reading(path) as connection:
        connection.execute("BEGIN")
        runs = connection.execute("SELECT id, spec, status, error FROM run ORDER BY position").fetchall()
        return [_read_run(connection, *run) for run in runs]


def _read_run(connection: sqlite3.Connection, id_: str, spec: str, status: str, error: str | None) -> RunData:
    rounds = connection.execute(
        f"SELECT number, accuracy, loss, attack_success, {', '.join(PHASES)}, note FROM round "
        "WHERE run = ? ORDER BY number",
        (id_,),
    ).fetchall()
    columns = list(zip(*rounds, strict=True)) or [()] * (5 + len(PHASES))
    numbers, accuracy, loss, success, *phases, notes = columns
    rows = connection.execute(
        "SELECT client, round, malicious, fate = 'kept', score, probability FROM client WHERE run = ?", (id_,)
    ).fetchall()
    clients = sorted({row[0] for row in rows}, key=lambda client: (isinstance(client, str), client))
    row_of = {client: i for i, client in enumerate(clients)}
    column_of = {number: i for i, number in enumerate(numbers)}
    shape = len(clients), len(numbers)
    at = [row_of[row[0]] for row in rows], [column_of[row[1]] for row in rows]

    def matrix(field_: int, dtype: type, empty: Any) -> NDArray[Any]:
        filled: NDArray[Any] = np.full(shape, empty, dtype=dtype)
        filled[at] = np.array([row[field_] for row in rows], dtype=dtype)
        return filled

    present = np.zeros(shape, dtype=bool)
    present[at] = True
    return RunData(
        id=id_,
        spec=json.loads(spec),
        status=status,
        message=error or "",
        rounds=np.array(numbers, dtype=np.int64),
        accuracy=np.array(accuracy, dtype=float),
        loss=np.array(loss, dtype=float),
        attack_success=np.array(success, dtype=float),
        seconds={name: np.array(values, dtype=float) for name, values in zip(PHASES, phases, strict=True)},
        notes={number: note for number, note in zip(numbers, notes, strict=True) if note},
        clients=tuple(clients),
        present=present,
        malicious=matrix(2, bool, False),
        kept=matrix(3, bool, False),
        score=matrix(4, float, np.nan),
        probability=matrix(5, float, np.nan),
        truth=all(row[2] is not None for row in rows),
    )
