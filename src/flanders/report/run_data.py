"""The runs of a results file, read into arrays. Only this module of the report knows how results are stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, FloatVector, IntVector
from flanders.checks import InputError
from flanders.record import PHASES, Fate
from flanders.results.confusion import Confusion
from flanders.results.record_columns import CLIENT_COLUMNS, ROUND_COLUMNS, Value
from flanders.results.schema import reading
from flanders.results.tree import Table
from flanders.round import ClientId

BoolMatrix = NDArray[np.bool_]
NO, YES, UNKNOWN = 0, 1, 2
"""The values of a matrix that answers a question about each client."""
MEASURES = tuple(column.name for column in ROUND_COLUMNS if column.kind == "float64")
"""What is measured in each round: accuracy, loss, threshold, the seconds of each phase."""


@dataclass(frozen=True, eq=False)
class TextMatrix:
    """A text for each client and round: a list of all different texts, and each cell's place in the list."""

    words: tuple[str, ...]
    """The texts. The first one is empty."""
    codes: NDArray[np.int64]
    """`(C, T)`: which text. It is 0 where a client did not take part."""

    @classmethod
    def of(cls, texts: Sequence[Value], at: tuple[list[int], list[int]], shape: tuple[int, int]) -> TextMatrix:
        """Put texts into a matrix at these rows and columns."""
        place = {"": 0}
        codes = np.zeros(shape, dtype=np.int64)
        codes[at] = [place.setdefault(str(text), len(place)) for text in texts]
        return cls(tuple(place), codes)

    def is_(self, word: str) -> BoolMatrix:
        """Return where the text is this one."""
        found: BoolMatrix = self.codes == (self.words.index(word) if word in self.words else -1)
        return found


@dataclass(frozen=True, eq=False)
class RunData:
    """One run: its T finished rounds, and what happened to each of its C clients in each of them.

    Vectors have one value per round. Matrices are `(C, T)`: a row per client, a column per round. A client that
    took no part in a round is not `present` there, and the other matrices say nothing about it.
    """

    id: str
    spec: Table
    status: str
    rounds: IntVector
    measures: Mapping[str, FloatVector]
    """All that is measured in a round, by name; see `MEASURES`. NaN where it was not measured."""
    clients: tuple[ClientId, ...]
    numbers: Mapping[str, FloatMatrix]
    """The fields of `ClientRecord` that are numbers. NaN where there is none."""
    answers: Mapping[str, NDArray[np.uint8]]
    """The fields of `ClientRecord` that are true or false: `NO`, `YES` or `UNKNOWN`."""
    texts: Mapping[str, TextMatrix]
    """The fields of `ClientRecord` that are texts."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """Round number -> what was out of the ordinary."""
    message: str = ""
    """Why the run failed, if it did."""

    @property
    def accuracy(self) -> FloatVector:
        """The accuracy after each round."""
        return self.measures["accuracy"]

    @property
    def loss(self) -> FloatVector:
        """The loss after each round."""
        return self.measures["loss"]

    @property
    def attack_success(self) -> FloatVector:
        """The share of triggered images taken for the attacker's target, after each round."""
        return self.measures["attack_success"]

    @property
    def threshold(self) -> FloatVector:
        """The largest score that was kept in each round; NaN if no kept client has a score."""
        return self.measures["threshold"]

    @cached_property
    def seconds(self) -> Mapping[str, FloatVector]:
        """Phase -> seconds in each round."""
        return {phase: self.measures[phase] for phase in PHASES}

    @property
    def score(self) -> FloatMatrix:
        """How abnormal each client looked: higher is more abnormal. NaN if nothing judged it."""
        return self.numbers["score"]

    @property
    def probability(self) -> FloatMatrix:
        """Each client's probability of being malicious. NaN if the filter cannot tell."""
        return self.numbers["probability"]

    @cached_property
    def present(self) -> BoolMatrix:
        """Whether a client has a record in a round."""
        found: BoolMatrix = self.texts["fate"].codes > 0
        return found

    @cached_property
    def malicious(self) -> BoolMatrix:
        """Whether a client is known to have sent poison."""
        found: BoolMatrix = self.answers["malicious"] == YES
        return found

    @cached_property
    def kept(self) -> BoolMatrix:
        """Whether a client's model was aggregated."""
        return self.having(Fate.KEPT)

    def having(self, fate: Fate) -> BoolMatrix:
        """Return where clients have this fate."""
        return self.texts["fate"].is_(fate)

    @cached_property
    def fates(self) -> dict[Fate, int]:
        """How often each fate occurred, all rounds together. Fates that did not occur are left out."""
        counts = {fate: int(np.count_nonzero(self.having(fate))) for fate in Fate}
        return {fate: count for fate, count in counts.items() if count}

    @cached_property
    def truth(self) -> bool:
        """Whether it is known who is malicious. Nobody knows in a live federation."""
        return not np.any(self.answers["malicious"][self.present] == UNKNOWN)

    @cached_property
    def detection(self) -> Confusion:
        """Malicious and honest clients, kept and not, counted over all rounds; zeros if the truth is not known."""
        known = self.present & self.truth
        return Confusion.of(self.malicious[known], self.kept[known])

    @cached_property
    def judged(self) -> bool:
        """Whether a filter judged the clients. A filter that gives all the same score and drops nobody did not."""
        scores = self.score[np.isfinite(self.score)]
        return scores.size > 0 and bool(np.any(scores != scores[0]) or np.any(self.having(Fate.DROPPED)))


def read_results(path: Path) -> list[RunData]:
    """Read all runs of a results file, in the order in which they were added.

    A run may still be writing to the file. All that is read is from one moment.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name the results file in it.")
    with reading(path) as connection:
        connection.execute("BEGIN")
        runs = connection.execute("SELECT id, spec, status, error FROM run ORDER BY position").fetchall()
        return [_read_run(connection, *run) for run in runs]


def _read_run(connection: sqlite3.Connection, id_: str, spec: str, status: str, error: str | None) -> RunData:
    rounds = _read_columns(connection, "round", ["number", "note", *MEASURES], id_)
    names = ["round", *(column.name for column in CLIENT_COLUMNS)]
    cells = _read_columns(connection, "client", names, id_)
    clients = sorted(set(cells["client"]), key=lambda client: (isinstance(client, str), client))
    row_of = {client: i for i, client in enumerate(clients)}
    column_of = {number: i for i, number in enumerate(rounds["number"])}
    shape = len(clients), len(rounds["number"])
    at = [row_of[client] for client in cells["client"]], [column_of[number] for number in cells["round"]]
    numbers, answers, texts = dict[str, FloatMatrix](), dict[str, NDArray[np.uint8]](), dict[str, TextMatrix]()
    for column in CLIENT_COLUMNS:
        values = cells[column.name]
        if column.name == "client":
            continue
        if column.kind == "string":
            texts[column.name] = TextMatrix.of(values, at, shape)
        elif column.kind == "bool":
            answers[column.name] = np.full(shape, UNKNOWN, dtype=np.uint8)
            answers[column.name][at] = [UNKNOWN if value is None else int(value) for value in values]
        else:
            numbers[column.name] = np.full(shape, np.nan)
            numbers[column.name][at] = np.array(values, dtype=float)
    return RunData(
        id=id_,
        spec=json.loads(spec),
        status=status,
        message=error or "",
        rounds=np.array(rounds["number"], dtype=np.int64),
        measures={name: np.array(rounds[name], dtype=float) for name in MEASURES},
        notes={number: note for number, note in zip(rounds["number"], rounds["note"], strict=True) if note},
        clients=tuple(clients),
        numbers=numbers,
        answers=answers,
        texts=texts,
    )


def _read_columns(
    connection: sqlite3.Connection, table: str, names: Sequence[str], id_: str
) -> dict[str, list[Any]]:
    """Return the columns of a table for one run, by name. Rows are in the order of the first column."""
    query = f"SELECT {', '.join(names)} FROM {table} WHERE run = ? ORDER BY {names[0]}"
    rows = connection.execute(query, (id_,)).fetchall()
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
