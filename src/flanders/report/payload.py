"""Builds the data of the HTML page: all runs, in a compact form for JSON. The size of the data is limited."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from flanders.alarms import MOST_NAMED, Alarm
from flanders.record import PHASES
from flanders.report.client_cells import PageData, encode_clients, page_id
from flanders.report.compared_runs import ComparedRuns
from flanders.report.run_data import RunData
from flanders.results.spec_keys import (
    ATTACK_NAMES,
    DATASET,
    FRACTION,
    MODEL,
    SEED,
    attack_fraction,
    attack_start,
    flat_spec,
    is_attacked,
    is_live,
    num_rounds,
    seed,
)

CELLS = 1_500_000
"""The most cells in one page. A cell is one client in one round. The cells then take about 15 MB, which a browser
can open."""
CHARACTERS = 6_000_000
"""The most characters in one page for each text field of clients, such as the reason. They take about 6 MB."""
FEWEST = 8
"""The page shows either at least this many clients of a run or none. Very few of many clients would say little
about the run. If the run has fewer clients than this, the page shows all of them or none."""

_COLUMNS = (
    (DATASET, "Data"),
    (MODEL, "Model"),
    (ATTACK_NAMES[0], "Attack"),
    (ATTACK_NAMES[1], "Poison"),
    (FRACTION, "Malicious"),
    ("filter.name", "Filter"),
    ("aggregator.name", "Aggregator"),
    (SEED, "Seed"),
)
"""The usual keys of a spec, with titles. If runs differ in such a key, it is a column in the table of runs."""
_RESULTS = (
    ("final", "Accuracy", "percent"),
    ("best", "Best", "percent"),
    ("attack_success", "Attack succ.", "percent"),
    ("precision", "Precision", "percent"),
    ("recall", "Recall", "percent"),
    ("fpr", "False pos.", "percent"),
    ("seconds", "Seconds", "number"),
    ("rounds", "Rounds", "number"),
    ("status", "Status", "text"),
)
"""The results that get a column in the table of runs: the name, the title, and how the page writes the values."""


def build_payload(runs: Sequence[RunData], cells: int = CELLS, characters: int = CHARACTERS) -> PageData:
    """Return all data that the page shows. Its size has limits, which `CELLS` and `CHARACTERS` explain."""
    compared = ComparedRuns(runs)
    shares = share_cells(runs, cells)
    clients = [encode_clients(run, rows, characters // len(runs)) for run, rows in zip(runs, shares, strict=True)]
    page = build_summary(compared)
    for entry, cells_of_run in zip(page["runs"], clients, strict=True):
        entry["clients"] = cells_of_run
    return {**page, "left_out": _left_out(runs, clients)}


def build_summary(compared: ComparedRuns) -> PageData:
    """Return all data that the page shows, except the data about single clients."""
    described = [_describe(compared, i) for i in range(len(compared.runs))]
    return {
        "runs": described,
        "columns": _table_columns(compared, described),
        "phases": [phase for phase in PHASES if any(phase in entry["seconds"] for entry in described)],
        "summary": headline(compared),
        "left_out": "",
    }


def share_cells(runs: Sequence[RunData], cells: int) -> list[int]:
    """Return how many clients of each run are shown, if all runs together may have `cells` cells.

    A cell is one client in one round. Each run gets the same number of cells. If a small run needs fewer, the rest
    of its cells go to the other runs.
    """
    want = [len(run.clients) * run.rounds.size for run in runs]
    rows, left = [0] * len(runs), cells
    for done, i in enumerate(sorted(range(len(runs)), key=want.__getitem__)):
        fair = left // (len(runs) - done)
        fits = min(len(runs[i].clients), fair // max(1, runs[i].rounds.size))
        rows[i] = fits if fits >= min(FEWEST, len(runs[i].clients)) else 0
        left -= rows[i] * runs[i].rounds.size
    return rows


def headline(compared: ComparedRuns) -> str:
    """Return one line about the results: the numbers of runs, clients and rounds, and the data and models."""
    runs = compared.runs
    if not runs:
        return "No runs yet."
    parts = [f"{len(runs)} run{'s' * (len(runs) != 1)}"]
    states = dict.fromkeys(run.status for run in runs)
    if list(states) != ["done"]:
        parts[0] += " (" + ", ".join(f"{sum(r.status == s for r in runs)} {s}" for s in states) + ")"
    for key in (DATASET, MODEL):
        values = list(dict.fromkeys(str(flat[key]) for flat in compared.flat if key in flat))
        if values:
            parts.append(", ".join(values[:4]) + (" and more" if len(values) > 4 else ""))
    begun = [run for run in runs if run.rounds.size]
    if begun:
        parts += [
            _span([run.totals.clients for run in begun], "client"),
            _span([r.rounds.size for r in begun], "round"),
        ]
    return " · ".join(parts)


def json_number(value: float) -> float | int | None:
    """Return a number rounded to four significant digits. NaN and infinity become None, since JSON has neither."""
    value = float(value)
    if not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def json_numbers(values: Iterable[float]) -> list[float | int | None]:
    """Return a list of numbers, each as `json_number` returns it."""
    return [json_number(value) for value in values]


def _describe(compared: ComparedRuns, i: int) -> PageData:
    run = compared.runs[i]
    detection = run.detection
    totals = {phase: float(np.nansum(values)) for phase, values in run.seconds.items()}
    measured = {name: values for name, values in run.measures.items() if name not in (*PHASES, "widening")}
    return {
        "id": run.id,
        "label": compared.labels[i],
        "defence": compared.defence(i),
        "attack": compared.attack(i),
        "setting": compared.setting(i),
        "seed": seed(run.spec),
        "start": attack_start(run.spec) if is_attacked(run.spec) else None,
        "planned": num_rounds(run.spec),
        "live": is_live(run.spec),
        "status": run.status,
        "message": run.message,
        "attack_free": compared.free[i],
        "judged": run.judged,
        "truth": run.truth,
        "fates": {str(fate): count for fate, count in run.fates.items()},
        "fates_by_round": {str(fate): counts.tolist() for fate, counts in run.totals.fates.items()},
        "alarms": [_alarm(alarm) for alarm in run.totals.alarms],
        "num_clients": run.totals.clients,
        "twin": compared.twin(i),
        "siblings": compared.siblings(i),
        "spec": {key: str(value) for key, value in flat_spec(run.spec).items()},
        "rounds": run.rounds.tolist(),
        **{name: json_numbers(values) if np.isfinite(values).any() else [] for name, values in measured.items()},
        "notes": {str(key): value for key, value in run.notes.items() if value},
        "seconds": {phase: json_number(total) for phase, total in totals.items() if total > 0},
        "detection": {
            "caught": detection.caught,
            "wronged": detection.wronged,
            "missed": detection.missed,
            "passed": detection.passed,
            "precision": json_number(detection.precision),
            "recall": json_number(detection.recall),
            "fpr": json_number(detection.false_positive_rate),
        },
        "cells": {
            "status": run.status,
            "rounds": int(run.rounds.size),
            "final": json_number(run.accuracy[-1]) if run.rounds.size else None,
            "best": json_number(np.nanmax(run.accuracy)) if np.isfinite(run.accuracy).any() else None,
            "attack_success": json_number(run.attack_success[-1]) if run.rounds.size else None,
            "precision": json_number(detection.precision),
            "recall": json_number(detection.recall),
            "fpr": json_number(detection.false_positive_rate),
            "seconds": json_number(sum(totals.values())) if run.rounds.size else None,
        },
    }


def _alarm(alarm: Alarm) -> PageData:
    """Return an alarm for the page. It names the first few clients and counts all of them."""
    few = [page_id(client) for client in alarm.clients[:MOST_NAMED]]
    return {**dataclasses.asdict(alarm), "clients": few, "num_clients": len(alarm.clients)}


def _table_columns(compared: ComparedRuns, described: Sequence[PageData]) -> list[dict[str, str]]:
    """Return the columns of the table of runs: first the results, then the keys of the spec in which runs differ.

    Also write the values of these keys into `described`, as cells of the runs.
    """
    columns = [
        {"key": key, "title": title, "kind": kind}
        for key, title, kind in _RESULTS
        if any(entry["cells"][key] is not None for entry in described)
    ]
    usual = dict(_COLUMNS)
    extra = {key: key.removesuffix(".name").replace("_", " ") for key in compared.varying if key not in usual}
    for key, title in (usual | extra).items():
        values = [_plain(flat.get(key)) for flat in compared.flat]
        if key == FRACTION:
            values = [attack_fraction(run.spec) if run.truth else None for run in compared.runs]
        if all(value is None for value in values) or (len(values) > 1 and len(set(values)) == 1):
            continue
        numeric = all(value is None or isinstance(value, int | float) for value in values)
        kind = "text" if not numeric else "percent" if key == FRACTION else "number"
        columns.append({"key": key, "title": title, "kind": kind})
        for entry, value in zip(described, values, strict=True):
            entry["cells"][key] = value
    return columns


def _left_out(runs: Sequence[RunData], clients: Sequence[PageData]) -> str:
    """Return a sentence about what was left out of the page. It is empty if the page is complete."""
    with_rounds = [
        entry for run, entry in zip(runs, clients, strict=True) if run.rounds.size and run.totals.clients
    ]
    some = [entry for entry in with_rounds if 0 < entry["shown"] < entry["total"]]
    none = sum(entry["shown"] == 0 for entry in with_rounds)
    cut = sum(entry["shortened"] for entry in clients)
    parts = []
    if some:
        where = (
            f" for {len(some)} runs" if len(runs) > 1 and len(some) > 1 else " for 1 run" if len(runs) > 1 else ""
        )
        amounts = {f"{entry['shown']:,} of {entry['total']:,} clients" for entry in some}
        amount = amounts.pop() if len(amounts) == 1 else "only some of the clients"
        parts.append(f"shows {amount} one by one{where}")
    if none:
        parts.append(f"leaves out the clients of {_span([none], 'run')}")
    if cut:
        parts.append(f"leaves out the rarer reasons of {_span([cut], 'run')}")
    if not parts:
        return ""
    return (
        f"To stay small enough to open, this page {', and '.join(parts)}. Precision, recall, thresholds, alarms "
        "and every number in the tables of runs count all clients. The results file holds every row."
    )


def _span(values: Sequence[int], noun: str) -> str:
    """Return the range of some counts as text, e.g. `3 rounds` or `3 to 5 rounds`."""
    low, high = min(values), max(values)
    return f"{high:,} {noun}{'s' * (high != 1)}" if low == high else f"{low:,} to {high:,} {noun}s"


def _plain(value: object) -> int | float | str | None:
    return value if value is None or isinstance(value, int | float | str) else str(value)
