"""What is told of each round: to Flower's log, to its `Result`, and to the results file."""

from __future__ import annotations

import contextlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord
from flwr.common.logger import log

from flanders.catalog import FILTERS
from flanders.checks import InputError
from flanders.filters import Filter, Scores
from flanders.flower.identity import Asked
from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.results.heartbeat import heartbeat
from flanders.results.run import RunSpec
from flanders.results.store import ClaimLost, Store
from flanders.results.tree import Table
from flanders.round import ClientId

NAN = math.nan
PREFIX = "flanders-"
NAMED = 20
"""Nodes of one fate that a line of the log names at most; the results file has them all."""
CODES = {fate: code for code, fate in enumerate(Fate)}
"""The numbers by which `Result` tells fates, for it holds nothing but numbers."""


@dataclass(frozen=True)
class Verdict:
    """What became of one client."""

    asked: Asked
    fate: Fate
    why: str = ""
    score: float = NAN
    probability: float = NAN


@dataclass(frozen=True)
class RoundReport:
    """What became of a round."""

    number: int
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    stayed: bool = False
    """Whether the global model is still that of the last round."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    accuracy: float = NAN
    loss: float = NAN

    def having(self, *fates: Fate) -> list[Verdict]:
        """Return the verdicts of these kinds."""
        return [v for v in self.verdicts if v.fate in fates]

    @property
    def threshold(self) -> float:
        """The largest score that was kept; NaN if nobody was scored."""
        return max((v.score for v in self.having(Fate.KEPT) if not math.isnan(v.score)), default=NAN)

    @property
    def note(self) -> str:
        """What was out of the ordinary, and who could not be used for which reason, in one line."""
        reasons: dict[str, list[ClientId]] = defaultdict(list)
        for verdict in self.having(Fate.REFUSED, Fate.SILENT, Fate.BANNED):
            reasons[f"{verdict.fate}, {verdict.why}"].append(verdict.asked.client)
        who = [f"{reason}: {', '.join(map(str, clients))}" for reason, clients in reasons.items()]
        return "; ".join([*self.notes, *who])

    def line(self) -> str:
        """Return the round in one line for people: how many were kept, and who was not and why."""
        kept, replied = len(self.having(Fate.KEPT)), len(self.having(Fate.KEPT, Fate.DROPPED, Fate.REFUSED))
        return "; ".join([f"round {self.number}: kept {kept} of {replied} replies", *self.unused(), *self.notes])

    def unused(self) -> list[str]:
        """Return who was not kept and why, in words, one text for each fate."""
        by_fate = {fate: self.having(fate) for fate in Fate if fate is not Fate.KEPT}
        return [f"{fate} {_told(some)}" for fate, some in by_fate.items() if some]

    def metrics(self) -> dict[str, int | float | list[int]]:
        """Return how many clients came to what, and the nodes of those that replied in vain."""
        unused = self.having(Fate.DROPPED, Fate.REFUSED)
        counts = {f"{PREFIX}{fate}": len(self.having(fate)) for fate in Fate}
        nodes = [v.asked.node for v in unused]
        return {
            **counts,
            f"{PREFIX}stayed": int(self.stayed),
            f"{PREFIX}threshold": self.threshold,
            f"{PREFIX}unused-nodes": nodes,
        }

    def details(self) -> dict[str, list[int] | list[float]]:
        """Return what became of each client, as lists of the same length."""
        return {
            f"{PREFIX}nodes": [v.asked.node for v in self.verdicts],
            f"{PREFIX}fates": [CODES[v.fate] for v in self.verdicts],
            f"{PREFIX}scores": [v.score for v in self.verdicts],
            f"{PREFIX}probabilities": [v.probability for v in self.verdicts],
        }


def _told(verdicts: Sequence[Verdict]) -> str:
    more = f" and {len(verdicts) - NAMED} more" if len(verdicts) > NAMED else ""
    return ", ".join(map(_told_of, verdicts[:NAMED])) + more


def _told_of(verdict: Verdict) -> str:
    if verdict.fate is Fate.DROPPED:
        sure = "" if math.isnan(verdict.probability) else f", p={verdict.probability:.2g}"
        score = "not judged" if math.isnan(verdict.score) else f"score {verdict.score:.3g}{sure}"
        because = f": {verdict.why}" if verdict.why else ""
        return f"{verdict.asked.label} [{score}{because}]"
    return f"{verdict.asked.label} [{verdict.why}]"


def judge(rows: Sequence[Asked], kept: set[int], scores: Scores | None) -> list[Verdict]:
    """Return the verdicts on the clients whose replies were usable, one a row."""
    place = {} if scores is None else {client: i for i, client in enumerate(scores.clients)}
    told = {} if scores is None else scores.told(scores.clients)
    verdicts = []
    for row, asked in enumerate(rows):
        i = place.get(asked.client)
        score = NAN if scores is None or i is None else float(scores.values[i])
        chances = None if scores is None else scores.probabilities
        chance = NAN if chances is None or i is None else float(chances[i])
        fate, why = (Fate.KEPT, "") if row in kept else (Fate.DROPPED, told.get(asked.client, ""))
        verdicts.append(Verdict(asked, fate, why, score, chance))
    return verdicts


def describe(run: str, strategy: Any, filter_: Filter[Any], fallback: Any, sketch: int | None) -> Table:
    """Return what the results file is to know of a live federation: the same kind of table that a spec is."""
    names = []
    while strategy is not None:
        names.append(type(strategy).__name__)
        strategy = getattr(strategy, "strategy", None)
    try:
        name = FILTERS.name_of(filter_)
    except InputError:  # one of the user's own, with whatever parameters
        name = type(filter_).__name__
    parameters = json.loads(json.dumps(getattr(filter_, "__dict__", {}), default=str))
    return {
        "live": run,
        "data": {"dataset": {"name": "live federation"}},
        "federation": {"rounds": None, "seed": None},
        "attack": None,
        "poison": None,
        "filter": {"name": name, **parameters, "sketched": sketch},
        "aggregator": {"name": " > ".join(names), "preaggregators": []},
        "fallback": None if fallback is None else {"name": type(fallback).__name__, "preaggregators": []},
    }


class Recorder:
    """Tells of rounds as they end.

    Parameters
    ----------
    results
        The results file, or None for no such file.
    spec
        What the results file is to know of the federation; its hash is the run's id.
    """

    def __init__(self, results: Path | None, spec: Table) -> None:
        self.results, self.spec = results, RunSpec(spec)
        self.last: RoundReport | None = None
        self.details: dict[int, dict[str, list[int] | list[float]]] = {}
        """What became of each client in the rounds so far of this start, in numbers."""
        self._store: Store | None = None
        self._known: dict[ClientId, int] = {}

    def open(self) -> None:
        """Enter the federation into the results file, or go on with it there."""
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
        """Have the federation in the results file while it runs; it is over if nothing is raised."""
        self.open()
        finished = False
        try:
            with contextlib.nullcontext() if self.results is None else heartbeat(self.results, self.spec.id):
                yield
            finished = True
        finally:
            self.close(done=finished)

    def introduce(self, everyone: Iterable[Asked]) -> None:
        """Log once who is who, where clients have other names than their nodes."""
        for asked in everyone:
            if self._known.get(asked.client) != asked.node and str(asked.client) != str(asked.node):
                log(INFO, "flanders: node %s is client %s", asked.label, asked.client)
            self._known[asked.client] = asked.node

    def tell(self, report: RoundReport) -> None:
        """Log a round and write it down."""
        self.last, self.details[report.number] = report, report.details()
        odd = report.having(Fate.REFUSED, Fate.SILENT) or report.stayed
        log(WARNING if odd else INFO, "flanders: %s", report.line())
        self.open()
        self._write(report)

    def add_evaluation(self, metrics: MetricRecord | None) -> None:
        """Add accuracy and loss of the global model to the last round, if there are any among these metrics."""
        if metrics is None or self.last is None:
            return
        found: dict[str, Any] = {}
        for key, value in metrics.items():
            name = "accuracy" if "acc" in key.lower() else "loss" if "loss" in key.lower() else ""
            if name and not isinstance(value, list):
                found.setdefault(name, float(value))
        if found:
            self.last = replace(self.last, **found)
            self._write(self.last)

    def close(self, *, done: bool) -> None:
        """Leave the results file; the federation is over if `done`."""
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

    def _write(self, report: RoundReport) -> None:
        if self._store is None:
            return
        clients = tuple(
            ClientRecord(v.asked.client, v.fate, v.score, v.probability, v.why) for v in report.verdicts
        )
        stored = RoundRecord(
            report.number, clients, report.note, report.accuracy, report.loss, seconds=report.seconds
        )
        try:
            self._store.write_round(self.spec.id, stored)
            self._store.beat(self.spec.id)
        except (InputError, ClaimLost) as error:  # a federation does not end for want of a disk
            log(ERROR, "flanders: round %s is not in the results file: %s", report.number, error)
