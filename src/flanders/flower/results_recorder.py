"""The class `Recorder`: tells the user about each round of a `FilteredStrategy`.

It writes the round to Flower's log and to a results file, and passes it to the callbacks.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from flanders.callbacks import Callbacks, RunInfo
from flanders.catalog import FILTERS
from flanders.checks import InputError
from flanders.client_ids import ClientId
from flanders.client_memory import newest_entries
from flanders.filters import Filter
from flanders.flower.identity import LONGEST_NAME, AskedClient
from flanders.flower.roster import MOST_REMEMBERED
from flanders.flower.round_report import Details, Nodes, details_of
from flanders.hosts.round_line import line_of
from flanders.plain_text import printable
from flanders.record import Fate, RoundRecord
from flanders.results.heartbeat import heartbeat
from flanders.results.run import RunSpec
from flanders.results.spec_keys import flat_spec, label
from flanders.results.store import ClaimLost, Store
from flanders.results.tree import Table

ROUNDS_IN_DETAIL = 100
"""Flower's `Result` has the details of each client, such as its score, only for this many of the latest rounds.
Otherwise the memory would grow with every round. The results file has the details of all rounds."""


def live_spec(
    run: str, strategy: Strategy, filter: Filter[Any], fallback: Strategy | None, sketch: int | None
) -> Table:
    """Return the description of a federation for the results file.

    It has the form of a spec, the description of a simulated run. `run` is the name of this federation.
    """
    names = []
    inner: object = strategy
    while inner is not None:
        names.append(type(inner).__name__)
        inner = getattr(inner, "strategy", None)
    try:
        name = FILTERS.name_of(filter)
    except InputError:  # a filter of the user's own is not registered
        name = type(filter).__name__
    parameters = json.loads(json.dumps(getattr(filter, "__dict__", {}), default=str))
    return {
        "live": run,
        "data": {"dataset": {"name": "live federation"}},
        "federation": {"rounds": None, "seed": None},
        "filter": {"name": name, **parameters, "sketched": sketch},
        "aggregator": {"name": " > ".join(names), "preaggregators": []},
        "fallback": None if fallback is None else {"name": type(fallback).__name__, "preaggregators": []},
    }


class Recorder:
    """Writes each round to the log and to the results file, and passes it to the callbacks.

    Parameters
    ----------
    results
        The results file; None if there is none.
    spec
        The description of the federation. In the results file the federation is a run, and the hash of its
        description is the id of the run.
    callbacks
        The callbacks. They get the record of each round.
    """

    def __init__(self, results: Path | None, spec: Table, callbacks: Callbacks) -> None:
        self.results, self.spec, self._callbacks = results, RunSpec(spec), callbacks
        self.last: RoundRecord | None = None
        """The record of the last round."""
        self.details: dict[int, Details] = {}
        """The details of each client in the latest rounds of this call of `start`, by the number of the round."""
        self._store: Store | None = None
        self._known: dict[ClientId, int] = {}
        self._untold = False

    def continue_run(self, run: str) -> None:
        """Record the next rounds as rounds of the federation with the name `run`."""
        self.spec = RunSpec({**self.spec.canonical, "live": run})

    def open(self) -> None:
        """Open the results file. Add the federation to it, unless the file has the federation already."""
        if self.results is None or self._store is not None:
            return
        store = Store(self.results)
        store.add([self.spec], {name: version(name) for name in ("flanders-fl", "flwr", "numpy")})
        store.reopen(self.spec.id)
        if store.claim([self.spec.id], live=True) is None:
            store.close()
            raise InputError(
                f"Another process is at work on run {self.spec.id} in {self.results}. End it, or name another "
                "`state_dir`."
            )
        self._store = store

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Mark the federation as running in the results file during the block, and as done afterwards.

        If the block raises an error, the federation is not marked as done.
        """
        self.open()
        self._start_callbacks()
        finished = False
        try:
            with contextlib.nullcontext() if self.results is None else heartbeat(self.results, self.spec.id):
                yield
            finished = True
        finally:
            self.settle()
            self._callbacks.end()
            self.close(done=finished)

    def introduce(self, everyone: Iterable[AskedClient]) -> None:
        """Log which client is on each node, except what was logged before, and names that are just the node id."""
        for asked in everyone:
            if self._known.get(asked.client) != asked.node and str(asked.client) != str(asked.node):
                log(INFO, "flanders: node %s is client %s", asked.label, printable(asked.client, LONGEST_NAME))
            self._known[asked.client] = asked.node
        self._known = newest_entries(self._known, {}, MOST_REMEMBERED)

    def tell(self, record: RoundRecord, nodes: Nodes, *, warn: bool) -> None:
        """Log a round and write it to the results file.

        The log entry is a warning if `warn` is set, or if a client was dropped, was refused or did not reply.
        """
        self.settle()
        self.last, self.details[record.number], self._untold = record, details_of(record, nodes), True
        self.details.pop(record.number - ROUNDS_IN_DETAIL, None)
        unusual = record.having(Fate.DROPPED, Fate.REFUSED, Fate.SILENT) or warn
        log(WARNING if unusual else INFO, "flanders: %s", line_of(record, lambda client: nodes[client].label))
        self.open()
        self._write(record)

    def add_evaluation(self, metrics: MetricRecord | None) -> None:
        """Add the accuracy and the loss of the global model to the last round, if the metrics have them."""
        if metrics is None or self.last is None:
            return
        accuracy, loss = _metric_named(metrics, "acc"), _metric_named(metrics, "loss")
        if accuracy is None and loss is None:
            return
        self.last = replace(
            self.last,
            accuracy=self.last.accuracy if accuracy is None else accuracy,
            loss=self.last.loss if loss is None else loss,
        )
        self._write(self.last)

    def settle(self) -> None:
        """Pass the record of the last round to the callbacks, if that was not done before.

        The recorder waits until the next round begins or the last round ends. Until then, an evaluation may add the
        accuracy and the loss to the record.
        """
        if self._untold and self.last is not None:
            self._untold = False
            self._start_callbacks()
            self._callbacks.tell(self.last)

    def _start_callbacks(self) -> None:
        run = RunInfo(label(self.spec.canonical), self.spec.id, flat_spec(self.spec.canonical))
        self._callbacks.start(run)

    def close(self, *, done: bool) -> None:
        """Close the results file. With `done`, first mark the federation in this file as done."""
        if self._store is None:
            return
        try:
            if done:
                self._store.write_rounds(self.spec.id, [], last=True)
            else:
                self._store.release(self.spec.id)
        except (InputError, ClaimLost) as error:
            log(ERROR, "flanders: the results file does not say that the federation has ended: %s", error)
        self._store.close()
        self._store = None

    def _write(self, record: RoundRecord) -> None:
        if self._store is None:
            return
        try:
            self._store.write_round(self.spec.id, record)
            self._store.beat(self.spec.id)
        except Exception as error:  # e.g. a full disk, which must not end the federation
            log(ERROR, "flanders: round %s is not in the results file: %s", record.number, error)


def _metric_named(metrics: MetricRecord, part: str) -> float | None:
    """Return the first metric whose name contains `part`, which is "acc" or "loss".

    A metric whose name contains both, such as "loss_of_accuracy", counts as an accuracy. Return None if there is no
    such metric.
    """
    for key, value in metrics.items():
        wanted = "acc" if "acc" in key.lower() else "loss" if "loss" in key.lower() else ""
        if wanted == part and not isinstance(value, list):
            return float(value)
    return None
