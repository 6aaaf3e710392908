"""The last accuracy of one's own grid: attacks down, defences across, mean and range over seeds in the cells."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from flanders.checks import InputError, resolve_count
from flanders.report.tables import latex, markdown
from flanders.results.labels import DEFENCE, section_of, told, varying
from flanders.results.summary import Summary, attack_of, is_live, rule_of, summarise
from flanders.results.tree import Table

NAMED = ("filter.name", "aggregator.name", "aggregator.preaggregators")
TOLD = ("federation.seed", "attack.name", "attack.fraction", "poison.name", "poison.fraction")
LEGEND = "Accuracy after the last round: mean over seeds [lowest, highest seed]; `-`: no run is done."


def crosstable(results: Path, format_: str) -> str:
    """Return the done runs of a results file as a table in Markdown, LaTeX or CSV."""
    done = [s for s in summarise(results) if s.status == "done" and s.final is not None and not is_live(s.spec)]
    if not done:
        raise InputError(f"{results} has no run that is done. `flanders resume {results}` goes on with it.")
    flats = _relative([told(s.spec) for s in done])
    front = [key for key in varying(flats) if key not in TOLD and section_of(key) not in DEFENCE]
    rows = [
        (*(_text(flat.get(key)) for key in front), *_attacked(s.spec)) for s, flat in zip(done, flats, strict=True)
    ]
    alike: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row, flat in zip(rows, flats, strict=True):
        alike[row, flat["federation.seed"]].append(flat)
    differ = dict.fromkeys(key for group in alike.values() for key in varying(group))
    behind = [key for key in differ if section_of(key) in DEFENCE and key not in NAMED]
    cells: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for s, row, flat in zip(done, rows, flats, strict=True):
        cells[row][_defence(s, flat, behind)].append(float(s.final or 0.0))
    across = list(dict.fromkeys(name for found in cells.values() for name in found))
    header = [*front, "attack", "r"]
    if format_ == "csv":
        return _csv([*header, "defence", "accuracy", "low", "high", "seeds"], cells)
    body = [[*row, *(_cell(found.get(name, [])) for name in across)] for row, found in cells.items()]
    return (markdown if format_ == "markdown" else latex)(results.name, [*header, *across], body, LEGEND)


def _relative(flats: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return specs with `m-b` and `b` for numbers of clients that go with the share of malicious ones."""

    def counts(flat: Mapping[str, Any]) -> dict[str, int]:
        m = flat.get("federation.per_round", flat["federation.clients"])
        b = resolve_count(float(flat.get("attack.fraction", flat.get("poison.fraction", 0.0))), m)
        return {"keep": m - b, "num_malicious": b}

    words = {"keep": "m-b", "num_malicious": "b"}
    fixed, found = set(), []
    for flat in flats:
        fixed |= {(k, v) for k, v in flat.items() if _last(k) in words and v != counts(flat)[_last(k)]}
    for flat in flats:
        meant = {k: words[_last(k)] for k, v in flat.items() if _last(k) in words and (k, v) not in fixed}
        found.append({**flat, **meant})
    return found


def _attacked(spec: Table) -> tuple[str, str]:
    attack, fraction = attack_of(spec)
    return attack, f"{fraction:g}"


def _defence(s: Summary, flat: Mapping[str, Any], keys: Sequence[str]) -> str:
    details = [f"{key}={flat[key]}" for key in keys if key in flat]
    return f"{s.spec['filter']['name']} + {rule_of(s.spec)}" + (f" ({', '.join(details)})" if details else "")


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" [{min(values):.3f}, {max(values):.3f}]" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{spread}"


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _csv(header: Sequence[str], cells: Mapping[tuple[str, ...], Mapping[str, Sequence[float]]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row, found in cells.items():
        for name, values in found.items():
            numbers = (fmean(values), min(values), max(values))
            writer.writerow([*row, name, *(f"{x:.4f}" for x in numbers), len(values)])
    return text.getvalue()
