"""Reads the runs of a results file into `RunData` objects, which consist of arrays.

One round is read at a time. To save memory, only some clients get a row if a run has very many clients.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.alarms import Alarm, Lookout
from flanders.arrays import BoolVector, FloatMatrix, IntVector
from flanders.checks import InputError
from flanders.client_ids import ClientId, by_name, sort_key
from flanders.record import PHASES, ClientRecord, Fate, RoundRecord
from flanders.report.run_data import MEASURES, UNKNOWN, RunData, TextMatrix, Totals
from flanders.results.confusion import Confusion
from flanders.results.record_columns import CLIENT_COLUMNS
from flanders.results.rounds import read_rounds
from flanders.results.schema import ResultsError, reading

MOST_ROWS = 1_000
"""At most this many clients of a run get a row in the arrays. A screen cannot show more rows."""
FEWEST_ROWS = 8
"""At least this many clients of a run get a row, so that a run with very many rounds shows some clients, too."""
MOST_CELLS = 2_000_000
"""The most cells in an array of a run. An array has a cell for each row and round. With this limit, all arrays of a
run together take about 100 MB."""
MOST_ALARMS = 500
"""At most this many alarms of a run are stored, the latest ones. A long run may have an alarm in every round."""
FIELDS = tuple(column for column in CLIENT_COLUMNS if column.name != "client")
"""The columns of the table `client` except the client's id."""


@dataclass(frozen=True)
class ChosenClients:
    """The clients of a run that get a row in the arrays, if not all of them do."""

    clients: Collection[ClientId]
    evenly: Collection[ClientId]
    """Those of `clients` that were picked out of the list of all clients at equal distances.

    The other chosen clients are those that were most often not kept.
    """


class GrowingRun:
    """A run that is read one round after the other.

    Parameters
    ----------
    chosen
        The clients that get a row. Default: all clients.
    most_rows
        The most clients that get a row. The clients that appear first get the rows. Default: no limit.
    """

    def __init__(self, chosen: ChosenClients | None = None, most_rows: int | None = None) -> None:
        self._chosen, self._most = chosen, most_rows
        self.numbers: list[int] = []
        """The numbers of the rounds so far."""
        self._measures: list[list[float]] = []
        self._notes: dict[int, str] = {}
        self._row_of: dict[ClientId, int] = {}
        self._left_out: set[ClientId] = set()
        self._cells: list[tuple[IntVector, dict[str, NDArray[Any]]]] = []
        self._words = {column.name: {"": 0} for column in FIELDS if column.kind == "string"}
        self._fates: list[Counter[Fate]] = []
        self._totals = Totals()
        self._first_score = math.nan
        self._lookout = Lookout()
        self._alarms: deque[Alarm] = deque(maxlen=MOST_ALARMS)

    def add(self, record: RoundRecord) -> None:
        """Add the next round."""
        self.numbers.append(record.number)
        self._measures.append([_measure(record, name) for name in MEASURES])
        if record.note:
            self._notes[record.number] = record.note
        self._count(record)
        shown = [client for client in record.clients if self._has_row(client.client)]
        rows = np.array([self._row_of[client.client] for client in shown], dtype=np.int64)
        self._cells.append(
            (rows, {column.name: self._column(column.name, column.kind, shown) for column in FIELDS})
        )

    def replace_measures(self, rows: Sequence[Sequence[float]]) -> None:
        """Replace the measures of all rounds, since a measure may be added after its round was written.

        `rows` has a row for each round, with the numbers in the order of `MEASURES`.
        """
        self._measures = [list(row) for row in rows]

    def _has_row(self, client: ClientId) -> bool:
        """Whether a client has a row. A new client gets a row if it is chosen and a row is left."""
        if client in self._row_of:
            return True
        wanted = self._chosen is None or client in self._chosen.clients
        if not wanted or (self._most is not None and len(self._row_of) >= self._most):
            self._left_out.add(client)
            return False
        self._row_of[client] = len(self._row_of)
        return True

    def _column(self, name: str, kind: str, shown: Sequence[ClientRecord]) -> NDArray[Any]:
        """Return one field of the shown clients as an array. A text becomes its position in `_words`."""
        values = [getattr(client, name) for client in shown]
        if kind == "string":
            words = self._words[name]
            return np.array([words.setdefault(str(word), len(words)) for word in values], dtype=np.int32)
        if kind == "bool":
            return np.array([UNKNOWN if value is None else int(value) for value in values], dtype=np.uint8)
        return np.array(values, dtype=np.float64)

    def _count(self, record: RoundRecord) -> None:
        """Add the clients of a round to the totals."""
        self._fates.append(Counter(client.fate for client in record.clients))
        self._alarms.extend(self._lookout.look(record))
        old, malicious, scores = self._totals, record.malicious, record.scores
        truth = old.truth and not any(client.malicious is None for client in record.clients)
        finite = scores[np.isfinite(scores)]
        if finite.size and math.isnan(self._first_score):
            self._first_score = float(finite[0])
        judged = old.judged or bool((finite != self._first_score).any())
        self._totals = replace(
            old,
            truth=truth,
            detection=old.detection + Confusion.of(malicious, record.kept) if truth else Confusion(),
            attacked=old.attacked or bool(malicious.any()),
            judged=judged or (bool(finite.size) and self._fates[-1][Fate.DROPPED] > 0),
        )

    def data(self, id_: str, spec: str, status: str, error: str | None, *, sort: bool = True) -> RunData:
        """Return all rounds so far as arrays. With `sort`, clients are sorted by their ids.

        Without `sort`, the clients stay in the order in which they appeared.
        """
        clients = list(self._row_of)
        order = by_name(clients).tolist() if sort else list(range(len(clients)))
        place = np.empty(len(order), dtype=np.int64)  # the new row of each client
        place[order] = np.arange(len(order))
        shape = len(clients), len(self.numbers)
        numbers, answers, texts = dict[str, FloatMatrix](), dict[str, NDArray[np.uint8]](), dict[str, TextMatrix]()
        for column in FIELDS:
            name = column.name
            if column.kind == "string":
                texts[name] = TextMatrix(
                    tuple(self._words[name]), self._matrix(name, place, np.zeros(shape, np.int32))
                )
            elif column.kind == "bool":
                answers[name] = self._matrix(name, place, np.full(shape, UNKNOWN, dtype=np.uint8))
            else:
                numbers[name] = self._matrix(name, place, np.full(shape, np.nan))
        measures = np.array(self._measures, dtype=float).reshape(len(self.numbers), len(MEASURES))
        counts = {fate: np.array([fates[fate] for fates in self._fates], dtype=np.int64) for fate in Fate}
        evenly = None
        if self._chosen is not None:
            evenly = np.array([clients[i] in self._chosen.evenly for i in order], dtype=bool)
        return RunData(
            id=id_,
            spec=json.loads(spec),
            status=status,
            message=error or "",
            rounds=np.array(self.numbers, dtype=np.int64),
            measures={name: measures[:, i].copy() for i, name in enumerate(MEASURES)},
            notes=dict(self._notes),
            clients=tuple(clients[i] for i in order),
            numbers=numbers,
            answers=answers,
            texts=texts,
            totals=replace(
                self._totals,
                clients=len(clients) + len(self._left_out),
                fates={fate: count for fate, count in counts.items() if count.any()},
                alarms=tuple(self._alarms),
            ),
            evenly_chosen=evenly,
        )

    def _matrix(self, name: str, place: IntVector, empty: NDArray[Any]) -> NDArray[Any]:
        """Write one field of all rounds into the matrix `empty`. `place` has the row of each client."""
        for t, (rows, columns) in enumerate(self._cells):
            empty[place[rows], t] = columns[name]
        return empty


def read_results(path: Path, most_rows: int | None = None) -> list[RunData]:
    """Read all runs of a results file, in the order in which they were added.

    Other processes may write to the file at the same time. All runs are read as they were at one moment. At most
    `most_rows` clients of a run get a row in the matrices; see `choose_clients`. By default, all clients get a row.
    A run that cannot be read has a message and no rounds.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name the results file in it.")
    with reading(path) as connection:
        connection.execute("BEGIN")
        runs = connection.execute("SELECT id, spec, status, error FROM run ORDER BY position").fetchall()
        return [_read_run(connection, most_rows, *run) for run in runs]


def _read_run(
    connection: sqlite3.Connection, most_rows: int | None, id_: str, spec: str, status: str, error: str | None
) -> RunData:
    run = GrowingRun(None if most_rows is None else choose_clients(connection, id_, most_rows))
    try:
        for record in read_rounds(connection, id_):
            run.add(record)
    except ResultsError as damage:
        run, status, error = GrowingRun(), "damaged", str(damage)
    return run.data(id_, spec, status, error)


def choose_clients(connection: sqlite3.Connection, id_: str, most: int) -> ChosenClients | None:
    """Return the clients of a run that get a row. Return None if every client gets a row.

    At most `most` clients get a row. In a run with many rounds, fewer clients get a row, so that an array has at
    most `MOST_CELLS` cells. But at least `FEWEST_ROWS` clients get a row. `choose_rows` chooses the clients.
    """
    [[rounds, records]] = connection.execute(
        "SELECT (SELECT count(*) FROM round WHERE run = :run), (SELECT count(*) FROM client WHERE run = :run)",
        {"run": id_},
    )
    most = max(FEWEST_ROWS, min(most, MOST_CELLS // max(1, rounds)))
    if records <= most:
        return None
    counts = connection.execute(
        f"SELECT client, total(fate != '{Fate.KEPT}') FROM client WHERE run = ? GROUP BY client", (id_,)
    ).fetchall()
    if len(counts) <= most:
        return None
    counts.sort(key=lambda row: sort_key(row[0]))
    rows, evenly = choose_rows(np.array([not_kept for _, not_kept in counts]), most)
    return ChosenClients({counts[i][0] for i in rows}, {counts[i][0] for i in np.flatnonzero(evenly)})


def choose_rows(not_kept: NDArray[Any], most: int) -> tuple[IntVector, BoolVector]:
    """Choose `most` of all clients, in two ways.

    Half of them are picked out of the list of all clients at equal distances, to represent all clients. The other
    half are the clients that were most often not kept. `not_kept` has the number of rounds in which each client was
    not kept. Return the positions of the chosen clients, and for every client whether it is in the first half.

    Examples
    --------
    >>> choose_rows(np.array([0, 0, 9, 0, 0, 0, 5, 0]), 4)
    (array([0, 2, 6, 7]), array([ True, False, False, False, False, False, False,  True]))
    """
    n = len(not_kept)
    evenly = np.zeros(n, dtype=bool)
    evenly[np.linspace(0, n - 1, most if n <= most else (most + 1) // 2).round().astype(int)] = True
    worst = np.argsort(-not_kept, kind="stable")
    chosen = evenly.copy()
    chosen[worst[~evenly[worst]][: max(0, most - int(evenly.sum()))]] = True
    return np.flatnonzero(chosen), evenly


def _measure(record: RoundRecord, name: str) -> float:
    return float(record.seconds.get(name, math.nan) if name in PHASES else getattr(record, name))
