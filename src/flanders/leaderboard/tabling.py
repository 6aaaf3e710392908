"""The table of the leaderboard, with a line for each defence, as plain text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from flanders.leaderboard.board_rows import MeasuredRun, read_rows
from flanders.leaderboard.cells import SETTINGS, condition
from flanders.leaderboard.protocol import EVERYONE, LEADERBOARD_PACKAGE, MINORITY, BoardProtocol, Case
from flanders.leaderboard.standings import NEAR, Estimate, Standing, Standings
from flanders.report.tables import latex, markdown, text_table

HEAD = (
    "place",
    "defence",
    "told b",
    "mean rank",
    "mean",
    "worst case",
    "worst accuracy",
    "honest cost",
    "dropped",
    "holds",
    "ms",
    "worst under",
)
LEGEND = (
    "Numbers are means over seeds ± half the width of the 95% confidence interval. Told b: whether the defence is "
    "told how many clients are malicious. The score in a case is the accuracy or, if lower, the share of examples "
    "on which the attacker fails. Mean: the mean score over all cases. Worst case: the lowest score. Worst under: "
    "the case with the lowest score. Mean rank: the mean rank among the defences over all cases; 1 is the best. "
    f"Holds: the share of cases with a score at most {NEAR:g} below the oracle's score. Honest cost: the accuracy "
    "lost without an attack. Dropped: the share of clients that are dropped without an attack. Lines without a "
    "place are only for comparison."
)


def published_rows() -> list[MeasuredRun]:
    """Return the rows that come with the package."""
    return [
        row
        for file in sorted((files(LEADERBOARD_PACKAGE) / "rows").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".csv")
        for row in read_rows(Path(str(file)))
    ]


def cases_with(protocol: BoardProtocol, attacks: str, shares: str) -> list[Case]:
    """Return the cases of the protocol with the given attacks ("core" or "all") and shares (one of `SHARES`)."""
    cases = protocol.cases(attacks)
    return [case for case in cases if shares == EVERYONE or (case.fraction < 0.5) == (shares == MINORITY)]


def rows_with(rows: Sequence[MeasuredRun], wheres: Sequence[str]) -> list[MeasuredRun]:
    """Return the rows that fulfil all conditions of the option `--where`.

    A row of a run without an attack only has to fulfil the conditions on the seed, since every table needs these
    rows.
    """
    every = [row.cell for row in rows]
    fits = [(where.startswith("seed="), condition(where, SETTINGS, every)) for where in wheres]
    return [
        row
        for row in rows
        if all(fit(row.cell) or (row.cell.case == Case() and not of_seeds) for of_seeds, fit in fits)
    ]


def rendered(table: Standings, title: str, format_: str, width: int = 80, legend: str = LEGEND) -> str:
    """Return standings as `text`, `markdown`, `latex` or `csv`. After the table comes a legend, but not in `csv`.

    `width` is the number of characters in a line of `text`.
    """
    if format_ == "csv":
        return _csv(table)
    places = {
        line: str(place) for place, line in enumerate((x for x in table.lines if x.rank is not None), start=1)
    }
    body = [[places.get(line, "-"), *_values(line)] for line in table.lines]
    note = f"{legend} {_about(table)}".strip()
    if format_ == "latex":
        return latex(title, HEAD, body, note)
    if format_ == "text":
        return text_table(title, HEAD, body, note, 3, width)
    return markdown(title, HEAD, body, note)


def shares_of(cases: Sequence[Case]) -> str:
    """Return the shares of malicious clients in words.

    Examples
    --------
    >>> shares_of([Case("lie", 0.1), Case("lie", 0.2), Case("ipm", 0.2)]), shares_of([Case("lie", 0.2)])
    ('10 and 20% of the clients are malicious', '20% of the clients are malicious')
    """
    shares = [f"{100 * fraction:g}" for fraction in sorted({case.fraction for case in cases})]
    return f"{_joined(shares)}% of the clients are malicious"


def _joined(words: Sequence[str]) -> str:
    """Return words with commas between them, and with `and` before the last word."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _about(table: Standings) -> str:
    """Return sentences that say which cases and seeds a table uses, and which defences it leaves out."""
    seeds = _joined([str(seed) for seed in table.seeds])
    starts = _joined([str(start) for start in sorted({case.start for case in table.cases})])
    kinds = _joined(sorted({"rotating" if case.rotating else "fixed" for case in table.cases}))
    attacks = len({case.attack for case in table.cases})
    text = f"{len(table.cases)} cases: {attacks} attacks from round {starts}, {kinds} attackers. Seeds: {seeds}."
    if table.incomplete:
        left_out = ", ".join(f"{name} ({count})" for name, count in table.incomplete.items())
        text += f" Not shown, with the number of runs that are missing: {left_out}."
    return text


def _values(line: Standing) -> list[str]:
    """Return the values of a line as text, in the order of `HEAD` without the place."""
    return [
        line.name,
        "yes" if line.told else "no",
        _text(line.rank, 1),
        *map(_text, (line.mean, line.worst, line.accuracy, line.cost)),
        f"{line.dropped.value:.1%}",
        "-" if line.holds is None else f"{line.holds.value:.0%}",
        f"{line.milliseconds.value:.1f}",
        line.worst_case.name,
    ]


def _text(estimate: Estimate | None, digits: int = 2) -> str:
    """Return an estimate with the given number of digits after the point.

    Examples
    --------
    >>> _text(Estimate(0.51234, 0.01)), _text(Estimate(-0.0001, math.nan)), _text(None)
    ('0.51 ± 0.01', '0.00', '-')
    """
    if estimate is None:
        return "-"
    value = f"{round(estimate.value, digits) + 0.0:.{digits}f}"
    return value if math.isnan(estimate.half) else f"{value} ± {estimate.half:.{digits}f}"


def _csv(table: Standings) -> str:
    measures = ("rank", "worst", "accuracy", "mean", "holds", "cost", "dropped", "milliseconds")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    head: Sequence[str] = [name for key in measures for name in (key, f"{key}_ci")]
    writer.writerow(["defence", "told", "worst_case", *head])
    for line in table.lines:
        estimates: list[Estimate | None] = [getattr(line, key) for key in measures]
        numbers = [f"{x:.5f}" if not math.isnan(x) else "" for e in estimates for x in _pair(e)]
        writer.writerow([line.name, "yes" if line.told else "no", line.worst_case.name, *numbers])
    return text.getvalue()


def _pair(estimate: Estimate | None) -> tuple[float, float]:
    return (math.nan, math.nan) if estimate is None else (estimate.value, estimate.half)
