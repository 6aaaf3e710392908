"""What the HTML page is given: every run in compact, JSON-ready form, with a bound on its size."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.record import PHASES
from flanders.report.data import RunData
from flanders.report.naming import ATTACK, Names

CELLS = 1_500_000
"""Client-rounds embedded in one page at most: about 12 MB."""
ROWS = 1_000
"""Clients of one run shown at most."""
SIBLINGS = 6
"""Runs drawn side by side at first, at most."""
FEWEST = 8
"""A run that has room for fewer clients than this is shown without them."""
PRESENT, MALICIOUS, KEPT = 1, 2, 4

_COLUMNS = (
    ("data.dataset.name", "Data"),
    ("model.name", "Model"),
    ("attack.name", "Attack"),
    ("poison.name", "Poison"),
    ("attack.fraction", "Malicious"),
    ("filter.name", "Filter"),
    ("aggregator.name", "Aggregator"),
    ("federation.seed", "Seed"),
)
_RESULTS = (
    ("final", "Final acc.", "percent"),
    ("best", "Best acc.", "percent"),
    ("attack_success", "Attack succ.", "percent"),
    ("precision", "Precision", "percent"),
    ("recall", "Recall", "percent"),
    ("fpr", "False pos.", "percent"),
    ("seconds", "Seconds", "number"),
    ("rounds", "Rounds", "number"),
    ("status", "Status", "text"),
)


def build(runs: Sequence[RunData], cells: int = CELLS) -> dict[str, Any]:
    """Return everything the page shows."""
    names = Names(runs)
    shares = share(runs, cells)
    described = [_describe(names, i) for i in range(len(runs))]
    for entry, run, rows in zip(described, runs, shares, strict=True):
        entry["clients"] = _clients(run, rows)
    return {
        "runs": described,
        "columns": _columns(names, described),
        "phases": [p for p in _phases(runs) if any(p in entry["seconds"] for entry in described)],
        "start": _start(runs),
        "summary": summarise(names),
        "left_out": _left_out(runs, shares),
    }


def share(runs: Sequence[RunData], cells: int) -> list[int]:
    """Return how many clients of each run fit when `cells` client-rounds are dealt out evenly.

    What small runs leave over goes to the larger ones.
    """
    want = [min(len(run.clients), ROWS) * run.rounds.size for run in runs]
    rows, left = [0] * len(runs), cells
    for done, i in enumerate(sorted(range(len(runs)), key=want.__getitem__)):
        fair = left // (len(runs) - done)
        fits = min(len(runs[i].clients), ROWS, fair // max(1, runs[i].rounds.size))
        rows[i] = fits if fits >= min(FEWEST, len(runs[i].clients)) else 0
        left -= rows[i] * runs[i].rounds.size
    return rows


def summarise(names: Names) -> str:
    """Return one line: how many runs, of what, how far."""
    runs = names.runs
    if not runs:
        return "No runs yet."
    parts = [f"{len(runs)} run{'s' * (len(runs) != 1)}"]
    states = dict.fromkeys(run.status for run in runs)
    if list(states) != ["done"]:
        parts[0] += " (" + ", ".join(f"{sum(r.status == s for r in runs)} {s}" for s in states) + ")"
    for key in ("data.dataset.name", "model.name"):
        values = list(dict.fromkeys(str(flat[key]) for flat in names.flat if key in flat))
        if values:
            parts.append(", ".join(values[:4]) + (" and more" if len(values) > 4 else ""))
    begun = [run for run in runs if run.rounds.size]
    if begun:
        parts += [
            _span([len(run.clients) for run in begun], "client"),
            _span([r.rounds.size for r in begun], "round"),
        ]
    return " · ".join(parts)


def number(value: float) -> float | int | None:
    """Round to four significant digits; what JSON cannot hold becomes None."""
    value = float(value)
    if not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def numbers(values: Iterable[float]) -> list[float | int | None]:
    """Round a list of numbers for JSON."""
    return [number(value) for value in values]


def pack(array: NDArray[Any]) -> str:
    """Return the bytes of an array as base64, little-endian."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _describe(names: Names, i: int) -> dict[str, Any]:
    run = names.runs[i]
    found = run.detection
    totals = {phase: float(np.nansum(values)) for phase, values in run.seconds.items()}
    return {
        "id": run.id,
        "label": names.labels[i],
        "status": run.status,
        "message": run.message,
        "attack_free": names.free[i],
        "judged": run.judged,
        "truth": run.truth,
        "unused": number(float(np.mean(~run.kept[run.present]))) if run.present.any() else None,
        "twin": names.twin(i),
        "siblings": names.siblings(i, SIBLINGS),
        "spec": {key: str(value) for key, value in names.flat[i].items()},
        "rounds": run.rounds.tolist(),
        "accuracy": numbers(run.accuracy),
        "loss": numbers(run.loss),
        "attack_success": numbers(run.attack_success) if np.isfinite(run.attack_success).any() else [],
        "threshold": numbers(run.threshold),
        "notes": {str(key): value for key, value in run.notes.items() if value},
        "seconds": {phase: number(total) for phase, total in totals.items() if total > 0},
        "detection": {
            "caught": found.caught,
            "wronged": found.wronged,
            "missed": found.missed,
            "passed": found.passed,
            "precision": number(found.precision),
            "recall": number(found.recall),
            "fpr": number(found.false_positive_rate),
        },
        "cells": {
            "status": run.status,
            "rounds": int(run.rounds.size),
            "final": number(run.accuracy[-1]) if run.rounds.size else None,
            "best": number(np.nanmax(run.accuracy)) if np.isfinite(run.accuracy).any() else None,
            "attack_success": number(run.attack_success[-1]) if run.rounds.size else None,
            "precision": number(found.precision),
            "recall": number(found.recall),
            "fpr": number(found.false_positive_rate),
            "seconds": number(sum(totals.values())) if run.rounds.size else None,
        },
    }


def _columns(names: Names, described: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Choose the table's columns: results, then what the runs were; without what is empty or the same in all."""
    columns = [
        {"key": key, "title": title, "kind": kind}
        for key, title, kind in _RESULTS
        if any(entry["cells"][key] is not None for entry in described)
    ]
    usual = dict(_COLUMNS)
    extra = {key: key.removesuffix(".name").replace("_", " ") for key in names.varying if key not in usual}
    for key, title in (usual | extra).items():
        values = [_plain(flat.get(key)) for flat in names.flat]
        if key == "attack.fraction":
            values = [_malicious(f) if run.truth else None for f, run in zip(names.flat, names.runs, strict=True)]
        if all(value is None for value in values) or (len(values) > 1 and len(set(values)) == 1):
            continue
        numeric = all(value is None or isinstance(value, int | float) for value in values)
        kind = "text" if not numeric else "percent" if key == "attack.fraction" else "number"
        columns.append({"key": key, "title": title, "kind": kind})
        for entry, value in zip(described, values, strict=True):
            entry["cells"][key] = value
    return columns


def _clients(run: RunData, rows: int) -> dict[str, Any]:
    """Return the client matrices, client by client, of `rows` clients spread evenly over all of them."""
    total = len(run.clients)
    if rows == 0 or run.rounds.size == 0:
        return {"shown": 0, "total": total}
    chosen = np.unique(np.linspace(0, total - 1, rows).round().astype(int))
    flags = PRESENT * run.present[chosen] | MALICIOUS * run.malicious[chosen] | KEPT * run.kept[chosen]
    score, probability = run.score[chosen], run.probability[chosen]
    largest = float(np.finfo(np.float32).max)
    score = np.where(np.isinf(score), score, score.clip(-largest, largest))
    return {
        "shown": int(chosen.size),
        "total": total,
        "ids": [run.clients[i] for i in chosen],
        "flags": pack(flags.astype(np.uint8)),
        "score": pack(score.astype(np.float32)) if np.isfinite(score).any() else None,
        "probability": pack(probability.astype(np.float32)) if np.isfinite(probability).any() else None,
    }


def _left_out(runs: Sequence[RunData], shares: Sequence[int]) -> str:
    """Say what was left out of the page, if anything was."""
    have = [(run, rows) for run, rows in zip(runs, shares, strict=True) if run.rounds.size and run.clients]
    some = sum(0 < rows < len(run.clients) for run, rows in have)
    none = sum(rows == 0 for _, rows in have)
    parts = []
    if some:
        parts.append(f"shows a sample of the clients for {some} run{'s' * (some != 1)}")
    if none:
        parts.append(f"leaves out the clients of {none} run{'s' * (none != 1)}")
    if not parts:
        return ""
    return (
        f"To stay small enough to open, this page {' and '.join(parts)}. Precision, recall, thresholds and every "
        "number in the tables count all clients; the results file holds every row."
    )


def _start(runs: Sequence[RunData]) -> int:
    """Choose the run to show first: one in which clients were judged and some were malicious."""
    worth = [(r.judged and bool(r.malicious.any()), r.judged, r.rounds.size > 0, r.rounds.size) for r in runs]
    return max(range(len(runs)), key=lambda i: (worth[i], -i), default=0)


def _phases(runs: Sequence[RunData]) -> list[str]:
    return list(dict.fromkeys([*PHASES, *(phase for run in runs for phase in run.seconds)]))


def _span(values: Sequence[int], noun: str) -> str:
    low, high = min(values), max(values)
    return f"{high:,} {noun}{'s' * (high != 1)}" if low == high else f"{low:,} to {high:,} {noun}s"


def _malicious(flat: Mapping[str, Any]) -> float:
    """Return the share of malicious clients that a spec asks for."""
    return max((float(flat.get(f"{section}.fraction", 0)) for section in ATTACK), default=0.0)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else str(value)
