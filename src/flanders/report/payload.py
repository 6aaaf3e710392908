"""The data of the HTML page: every run in a compact form that JSON can hold, with a bound on its size."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, IntVector
from flanders.record import PHASES
from flanders.report.compared_runs import ComparedRuns
from flanders.report.run_data import RunData, TextMatrix
from flanders.results.record_columns import CLIENT_COLUMNS
from flanders.results.spec_keys import ATTACK_NAMES, DATASET, FRACTION, MODEL, SEED, attack_fraction

CELLS = 1_500_000
"""Clients times rounds in one page at most: about 15 MB."""
CHARACTERS = 6_000_000
"""Characters of text about clients, such as reasons, in one page at most: about 6 MB."""
ROWS = 1_000
"""Clients of one run at most: a screen does not show more rows apart."""
SIBLINGS = 6
"""Runs drawn side by side at first: more lines are hard to tell apart."""
FEWEST = 8
"""Clients of one run at least. A run with room for fewer is shown without clients."""
ENCODINGS = {"float64": "number", "int64": "number", "bool": "answer", "string": "text"}
"""How the page holds a field of `ClientRecord`, by the type of its column."""

PageData = dict[str, Any]
"""A part of the page's data, ready for JSON."""

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


def build_payload(runs: Sequence[RunData], cells: int = CELLS, characters: int = CHARACTERS) -> PageData:
    """Return everything that the page shows."""
    compared = ComparedRuns(runs)
    shares = share_cells(runs, cells)
    described = [_describe(compared, i) for i in range(len(runs))]
    for entry, run, rows in zip(described, runs, shares, strict=True):
        entry["clients"] = _clients(run, rows, characters // len(runs))
    return {
        "runs": described,
        "columns": _table_columns(compared, described),
        "phases": [phase for phase in PHASES if any(phase in entry["seconds"] for entry in described)],
        "start": _start(runs),
        "summary": headline(compared),
        "left_out": _left_out(runs, shares, [entry["clients"] for entry in described]),
    }


def share_cells(runs: Sequence[RunData], cells: int) -> list[int]:
    """Return how many clients of each run are shown if all runs together may have this many cells.

    A cell is one client in one round. Every run gets the same number; what small runs do not need goes to others.
    """
    want = [min(len(run.clients), ROWS) * run.rounds.size for run in runs]
    rows, left = [0] * len(runs), cells
    for done, i in enumerate(sorted(range(len(runs)), key=want.__getitem__)):
        fair = left // (len(runs) - done)
        fits = min(len(runs[i].clients), ROWS, fair // max(1, runs[i].rounds.size))
        rows[i] = fits if fits >= min(FEWEST, len(runs[i].clients)) else 0
        left -= rows[i] * runs[i].rounds.size
    return rows


def headline(compared: ComparedRuns) -> str:
    """Return the results in one line: how many runs, their data and models, their clients and rounds."""
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
            _span([len(run.clients) for run in begun], "client"),
            _span([r.rounds.size for r in begun], "round"),
        ]
    return " · ".join(parts)


def json_number(value: float) -> float | int | None:
    """Round to four significant digits. NaN and infinity, which JSON cannot hold, become None."""
    value = float(value)
    if not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def json_numbers(values: Iterable[float]) -> list[float | int | None]:
    """Round a list of numbers for JSON."""
    return [json_number(value) for value in values]


def pack(array: NDArray[Any]) -> str:
    """Return the bytes of an array as base64, little-endian."""
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _describe(compared: ComparedRuns, i: int) -> PageData:
    run = compared.runs[i]
    found = run.detection
    totals = {phase: float(np.nansum(values)) for phase, values in run.seconds.items()}
    measured = {name: values for name, values in run.measures.items() if name not in PHASES}
    return {
        "id": run.id,
        "label": compared.labels[i],
        "status": run.status,
        "message": run.message,
        "attack_free": compared.free[i],
        "judged": run.judged,
        "truth": run.truth,
        "fates": {str(fate): count for fate, count in run.fates.items()},
        "twin": compared.twin(i),
        "siblings": compared.siblings(i, SIBLINGS),
        "spec": {key: str(value) for key, value in compared.flat[i].items()},
        "rounds": run.rounds.tolist(),
        **{name: json_numbers(values) if np.isfinite(values).any() else [] for name, values in measured.items()},
        "notes": {str(key): value for key, value in run.notes.items() if value},
        "seconds": {phase: json_number(total) for phase, total in totals.items() if total > 0},
        "detection": {
            "caught": found.caught,
            "wronged": found.wronged,
            "missed": found.missed,
            "passed": found.passed,
            "precision": json_number(found.precision),
            "recall": json_number(found.recall),
            "fpr": json_number(found.false_positive_rate),
        },
        "cells": {
            "status": run.status,
            "rounds": int(run.rounds.size),
            "final": json_number(run.accuracy[-1]) if run.rounds.size else None,
            "best": json_number(np.nanmax(run.accuracy)) if np.isfinite(run.accuracy).any() else None,
            "attack_success": json_number(run.attack_success[-1]) if run.rounds.size else None,
            "precision": json_number(found.precision),
            "recall": json_number(found.recall),
            "fpr": json_number(found.false_positive_rate),
            "seconds": json_number(sum(totals.values())) if run.rounds.size else None,
        },
    }


def _table_columns(compared: ComparedRuns, described: Sequence[PageData]) -> list[dict[str, str]]:
    """Choose the columns of the table of runs: the results, then the keys in which runs differ."""
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


def _clients(run: RunData, rows: int, characters: int) -> PageData:
    """Return every field of `ClientRecord`, of `rows` clients spread evenly over all of them."""
    total = len(run.clients)
    if rows == 0 or run.rounds.size == 0:
        return {"shown": 0, "total": total, "shortened": False}
    chosen = np.unique(np.linspace(0, total - 1, rows).round().astype(int))
    fields: dict[str, PageData | None] = {}
    shortened = False
    for column in CLIENT_COLUMNS:
        name, encoding = column.name, ENCODINGS[column.kind]
        if name == "client":
            continue
        if encoding == "text":
            fields[name], cut = _text_field(run.texts[name], chosen, characters)
            shortened |= cut
        elif encoding == "answer":
            fields[name] = {"kind": encoding, "data": pack(run.answers[name][chosen])}
        else:
            fields[name] = _number_field(run.numbers[name][chosen])
    return {
        "shown": int(chosen.size),
        "total": total,
        "ids": [run.clients[i] for i in chosen],
        "fields": fields,
        "shortened": shortened,
    }


def _number_field(values: FloatMatrix) -> PageData | None:
    """Return numbers for the page, or None if there are none. They are clipped to what four bytes can hold."""
    if not np.isfinite(values).any():
        return None
    largest = float(np.finfo(np.float32).max)
    clipped = np.where(np.isinf(values), values, values.clip(-largest, largest))
    return {"kind": "number", "data": pack(clipped.astype(np.float32))}


def _text_field(texts: TextMatrix, chosen: IntVector, characters: int) -> tuple[PageData, bool]:
    """Return texts for the page, the most frequent ones if not all fit, and whether some had to be left out."""
    codes, places, counts = np.unique(texts.codes[chosen], return_inverse=True, return_counts=True)
    words, new, room = [""], np.zeros(codes.size, dtype=np.int64), characters
    for i in np.argsort(-counts, kind="stable"):
        word = texts.words[codes[i]]
        room -= len(word)
        if word and room >= 0:
            new[i] = len(words)
            words.append(word)
    width = next(kind for kind in (np.uint8, np.uint16, np.uint32) if len(words) <= np.iinfo(kind).max)
    places = places.reshape(texts.codes[chosen].shape)
    field = {
        "kind": "text",
        "words": words,
        "bytes": np.dtype(width).itemsize,
        "data": pack(new[places].astype(width)),
    }
    return field, room < 0


def _left_out(runs: Sequence[RunData], shares: Sequence[int], clients: Sequence[PageData]) -> str:
    """Say what was left out of the page, if anything was."""
    have = [(run, rows) for run, rows in zip(runs, shares, strict=True) if run.rounds.size and run.clients]
    some = sum(0 < rows < len(run.clients) for run, rows in have)
    none = sum(rows == 0 for _, rows in have)
    cut = sum(entry["shortened"] for entry in clients)
    parts = []
    if some:
        parts.append(f"shows a sample of the clients for {some} run{'s' * (some != 1)}")
    if none:
        parts.append(f"leaves out the clients of {none} run{'s' * (none != 1)}")
    if cut:
        parts.append(f"leaves out the rarer reasons of {cut} run{'s' * (cut != 1)}")
    if not parts:
        return ""
    return (
        f"To stay small enough to open, this page {', and '.join(parts)}. Precision, recall, thresholds and every "
        "number in the tables count all clients; the results file holds every row."
    )


def _start(runs: Sequence[RunData]) -> int:
    """Choose the run that the page shows first: one in which clients were judged and some were malicious."""
    worth = [(r.judged and bool(r.malicious.any()), r.judged, r.rounds.size > 0, r.rounds.size) for r in runs]
    return max(range(len(runs)), key=lambda i: (worth[i], -i), default=0)


def _span(values: Sequence[int], noun: str) -> str:
    low, high = min(values), max(values)
    return f"{high:,} {noun}{'s' * (high != 1)}" if low == high else f"{low:,} to {high:,} {noun}s"


def _plain(value: object) -> int | float | str | None:
    return value if value is None or isinstance(value, int | float | str) else str(value)
