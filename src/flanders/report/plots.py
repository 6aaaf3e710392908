"""Draws the figures of the command `flanders plot` with matplotlib, except the figure `grid`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from flanders.extras import needing

with needing("report"):
    import matplotlib as mpl

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from flanders.arrays import FloatVector
from flanders.files import atomic, check_target, file_name
from flanders.record import Fate
from flanders.report.compared_runs import ComparedRuns, without_shared_aggregator
from flanders.report.run_data import BoolMatrix, RunData
from flanders.results.spec_keys import attack_start

COLUMN = 3.35
"""The width of one column of a two-column page, in inches."""
TALL = 100
"""The most clients in a heat map, which has a row for each client. In print, more rows could not be told apart."""
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INDIGO, GREY = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#777777"),
)
LONGEST_LINE = 22
"""The most characters in a line of a label beside a bar. Longer lines would leave too little space for the bars."""
DRAWABLE = 1e30
"""Scores are clipped to this absolute value, since matplotlib cannot draw larger ones.

A logarithmic scale begins above 1 / `DRAWABLE`."""
MISSED, WRONGED = "#FF5A36", "#FF9DE1"
"""The colours of frames in a heat map: `MISSED` around a malicious client that was kept, and `WRONGED` around an
honest client that was dropped. No score is drawn in one of these two colours."""
Style = dict[str, Any]
"""Keyword arguments of matplotlib."""
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INDIGO)  # the colours of lines
DASHES: Sequence[Any] = (
    "-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5))
)  # fmt: skip
"""The styles of lines. Five styles and seven colours make 35 lines that differ from each other."""
FATE_MARKERS = {Fate.REFUSED: "x", Fate.BANNED: "s", Fate.SILENT: "$○$"}
"""The markers of clients that were not asked, did not reply, or sent a reply that could not be used."""
PHASE_COLORS = (SKY, VERMILLION, BLUE, GREEN, ORANGE, PURPLE, GREY)  # the colours of the phases of a round
STYLE: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "flanders",
    "savefig.dpi": 300,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.02,
}


def draw_figures(compared: ComparedRuns, group: Sequence[int], only: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    """Draw figures of one setting, and yield each figure with its name.

    `group` has the runs with this setting, as positions in `compared.runs`. `only` has the names of the figures:
    some of `FIGURE_NAMES`.
    """
    defences: dict[str, list[int]] = {}
    for i in group:
        defences.setdefault(compared.defence(i), []).append(i)
    shown_as = dict(zip(defences, without_shared_aggregator(list(defences)), strict=True))
    runs_of = {shown_as[label]: [compared.runs[i] for i in runs] for label, runs in defences.items()}
    twin = next((compared.twin(i) for i in group if compared.twin(i) is not None), None)
    free = None if twin is None or twin in group else compared.runs[twin]  # a similar run without an attack
    judged = [(label, run) for label, runs in runs_of.items() for run in runs if run.judged]
    shown: dict[str, RunData | None] = dict(reversed(judged)) or {"": None}  # the first run of each defence
    if "accuracy" in only:
        height = 2.0 + 0.15 * _legend_rows([*runs_of, *([] if free is None else ["attack-free"])])
        start = min((attack_start(compared.runs[i].spec) for i in group if not compared.free[i]), default=1)
        yield "accuracy", new_figure(height, lambda ax: _accuracy(ax, runs_of, free, start))
    for label, run in shown.items():
        end = f"-{file_name(label)}" if len(shown) > 1 else ""
        height = 1.0 + 2.9 * min(1, max(0.25, min(len(run.clients), TALL) / TALL)) if run else 1.5
        if "scores_heatmap" in only:
            yield f"scores_heatmap{end}", new_figure(height, partial(_heatmap, run=run))
        if "score_distributions" in only:
            yield f"score_distributions{end}", new_figure(2.1, partial(_distributions, run=run))
    rows = max(1, len(runs_of))
    if "precision_recall" in only:
        yield "precision_recall", new_figure(0.9 + 0.42 * rows, lambda ax: _rates(ax, runs_of))
    if "time_by_phase" in only:
        yield "time_by_phase", new_figure(0.9 + 0.32 * rows, lambda ax: _time(ax, runs_of))


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the ending of `path` names. The same figure gives the same bytes."""
    check_target(path)
    dates: dict[str, Style] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with mpl.rc_context(STYLE), atomic(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix("."), metadata=dates.get(path.suffix, {}))


def new_figure(height: float, fill: Callable[[Axes], None], width: float = COLUMN) -> Figure:
    """Return a figure that `fill` draws. By default the figure is as wide as one column of text."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        ax = figure.add_subplot()
        try:
            fill(ax)
        except NothingToDraw as nothing:
            ax.set_axis_off()
            ax.text(0.5, 0.5, str(nothing), ha="center", va="center", transform=ax.transAxes, color="#555555")
    return figure


class NothingToDraw(Exception):
    """There is nothing to draw. The figure shows the message of this error instead."""


def _accuracy(ax: Axes, defences: dict[str, list[RunData]], free: RunData | None, start: int) -> None:
    drawn, most = False, 0
    for n, (label, runs) in enumerate(defences.items()):
        curves = [run for run in runs if np.isfinite(run.accuracy).any()]
        if not curves:
            continue
        drawn, most = True, max(most, len(curves))
        rounds = np.unique(np.concatenate([run.rounds for run in curves]))
        table = np.full((len(curves), rounds.size), np.nan)
        for row, run in zip(table, curves, strict=True):
            row[np.searchsorted(rounds, run.rounds)] = run.accuracy
        known = np.isfinite(table).any(axis=0)
        rounds, table = rounds[known], table[:, known]
        mean, color = np.nanmean(table, axis=0), SERIES[n % len(SERIES)]
        marker = "o" if rounds.size == 1 else None
        ax.plot(rounds, mean, color=color, linestyle=DASHES[n % len(DASHES)], label=label, marker=marker, ms=3)
        if len(curves) > 1:
            low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
            ax.fill_between(rounds, low, high, color=color, alpha=0.18, linewidth=0)
    if free is not None:
        drawn = True
        ax.plot(free.rounds, free.accuracy, color="black", linestyle=":", linewidth=1.1, label="attack-free")
    if not drawn:
        raise NothingToDraw("No finished round yet.")
    if start > 1:
        ax.axvline(start, color="black", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
        ax.text(start, 1.03, "attack begins", ha="center", va="bottom", fontsize=6.5, color="#555555")
    ax.set(xlabel="Round", ylabel="Test accuracy", ylim=(0, 1.02))
    if most > 1:
        ax.set_xlabel(f"Round (mean and range of {most} seeds)")
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    ax.grid(axis="y")
    labels = ax.get_legend_handles_labels()[1]
    _legend(ax, "outside lower center", ncols=_legend_columns(labels), handlelength=2.6, columnspacing=1.2)


def _legend_columns(labels: Sequence[str]) -> int:
    """Return how many labels fit side by side into the width of a column of text."""
    longest = max(map(len, labels), default=1)
    return 3 if longest <= 10 else 2 if longest <= 22 else 1


def _legend_rows(labels: Sequence[str]) -> int:
    return -(-len(labels) // _legend_columns(labels))


def _heatmap(ax: Axes, run: RunData | None) -> None:
    if run is None or not np.isfinite(run.score).any():
        raise NothingToDraw("No clients were scored.")
    total = len(run.clients)
    chosen = np.unique(np.linspace(0, total - 1, min(total, TALL)).round().astype(int))
    norm = score_norm(run.score[np.isfinite(run.score)])
    scores = run.score[chosen].clip(norm.vmin, norm.vmax)
    colors = mpl.colormaps["viridis"].with_extremes(bad="#d9d9d9")
    shown = np.ma.masked_invalid(scores)
    image = ax.imshow(shown, aspect="auto", cmap=colors, norm=norm, interpolation="nearest", rasterized=True)
    bad, kept, dropped = run.malicious[chosen], run.kept[chosen], run.having(Fate.DROPPED)[chosen]
    size = min(7.0, 240 / chosen.size, 170 / max(1, run.rounds.size))
    dot: Style = {"marker": "o", "s": (0.3 * size) ** 2, "color": "black", "linewidths": 0}
    stroke: Style = {"marker": "_", "s": size**2, "color": "black", "linewidths": 0.25, "alpha": 0.7}
    frame: Style = {"marker": "s", "s": (1.05 * size) ** 2, "facecolor": "none", "linewidths": 0.7}
    sign: Style = {"s": (0.55 * size) ** 2, "color": "black", "linewidths": 0.6}
    scored = ~np.isnan(scores)
    marks: tuple[tuple[str, BoolMatrix, Style], ...] = (
        ("malicious", bad, dot),
        ("dropped", dropped, stroke),
        ("missed", scored & bad & kept, {**frame, "edgecolor": MISSED}),
        ("wronged", scored & ~bad & dropped & run.truth, {**frame, "edgecolor": WRONGED}),
        *((fate, run.having(fate)[chosen], {**sign, "marker": marker}) for fate, marker in FATE_MARKERS.items()),
    )
    for label, where, style in marks:
        row, column = np.nonzero(where)
        if row.size:
            ax.scatter(column, row, label=str(label), rasterized=True, **style)
    ax.set(xlim=(-0.5, run.rounds.size - 0.5), ylim=(chosen.size - 0.5, -0.5))
    columns, rows = _spaced(run.rounds.tolist()), _spaced(range(chosen.size))
    ax.set_xticks(columns, [str(run.rounds[t]) for t in columns])
    ax.set_yticks(rows, [str(run.clients[chosen[i]]) for i in rows])
    ax.set(xlabel="Round", ylabel=_client_axis(chosen.size, run.totals.clients))
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, fraction=0.05, aspect=30)
    bar.set_label("Anomaly score")
    _legend(ax, "outside upper center", ncols=4, markerscale=1.8, handletextpad=0.1)


def _client_axis(shown: int, total: int) -> str:
    return "Client" if shown == total else f"Client ({shown} of {total:,})"


def _legend(ax: Axes, place: Literal["outside upper center", "outside lower center"], **style: Any) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.figure.legend(loc=place, **style)


def _spaced(values: Sequence[int]) -> list[int]:
    """Return the positions of about six values for tick labels. These values are multiples of a round number."""
    step = next(s for k in range(12) for s in (10**k, 2 * 10**k, 5 * 10**k) if len(values) <= 6 * s)
    return [i for i, value in enumerate(values) if value % step == 0] or [0]


def _distributions(ax: Axes, run: RunData | None) -> None:
    if run is None or not np.isfinite(run.score).any():
        raise NothingToDraw("No clients were scored.")
    usable = run.present & np.isfinite(run.score)
    norm = score_norm(run.score[usable])
    low, high = float(norm.vmin or 0), float(norm.vmax or 1)
    log = isinstance(norm, LogNorm)
    edges = np.geomspace(low, high, 41) if log else np.linspace(low, high, 41)
    names, bad = (
        (("honest", "malicious"), run.malicious) if run.truth else (("kept", "dropped"), run.having(Fate.DROPPED))
    )
    groups = ((names[0], ~bad, BLUE, 1, ""), (names[1], bad, VERMILLION, -1, "////"))
    tallest = 0.0
    for label, mask, color, sign, hatch in groups:
        scores = run.score[usable & mask].clip(low, high)
        if scores.size:
            share, _ = np.histogram(scores, edges)
            tallest = max(tallest, float(share.max()) / scores.size)
            style: Style = {"color": color, "edgecolor": "white", "linewidth": 0.2, "hatch": hatch}
            ax.bar(edges[:-1], sign * share / scores.size, np.diff(edges), align="edge", label=label, **style)
    cuts = run.threshold[np.isfinite(run.threshold)].clip(low, high)
    if cuts.size:
        ax.axvspan(cuts.min(), cuts.max(), color="black", alpha=0.08, linewidth=0)
        ax.axvline(float(np.median(cuts)), color="black", linewidth=1, label="threshold (median, range)")
    ax.axhline(0, color="black", linewidth=0.5)
    if log:
        ax.set_xscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(100 * value):g}%")
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.set(xlabel="Anomaly score", ylabel="Share of group", ylim=(-1.05 * tallest, 1.05 * tallest))
    _legend(ax, "outside lower center", ncols=3, columnspacing=1.0, handlelength=1.6)


def _rates(ax: Axes, defences: dict[str, list[RunData]]) -> None:
    finished = {label: [run for run in runs if run.rounds.size] for label, runs in defences.items()}
    rows = [(label, runs) for label, runs in finished.items() if runs]
    if not rows:
        raise NothingToDraw("No finished round yet.")
    kinds = (
        ("Precision", "precision", BLUE, ""),
        ("Recall", "recall", GREEN, "////"),
        ("False-positive rate", "false_positive_rate", ORANGE, "...."),
    )
    for k, (label, name, color, hatch) in enumerate(kinds):
        for y, (_, runs) in enumerate(rows):
            values = np.array([getattr(run.detection, name) for run in runs])
            values, at = values[np.isfinite(values)], y + (k - 1) * 0.27
            if not values.size:
                ax.text(0.01, at, "–", va="center", fontsize=7, color="#555555")
                continue
            mean = float(values.mean())
            ax.barh(at, mean, 0.25, color=color, hatch=hatch, edgecolor="white", linewidth=0.2)
            ax.text(float(values.max()) + 0.02, at, f"{100 * mean:.1f}%", va="center", fontsize=6)
            if values.size > 1:
                ax.plot(values, np.full(values.size, at), "k.", markersize=2)
        ax.barh(0, 0, 0, color=color, hatch=hatch, edgecolor="white", linewidth=0.2, label=label)
    _rows(ax, [label for label, _ in rows])
    ax.set_xlim(0, 1.16)
    ax.set_xticks(np.arange(0, 1.1, 0.25))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    _legend(ax, "outside upper center", ncols=3, columnspacing=1.0, handlelength=1.4)


def _time(ax: Axes, defences: dict[str, list[RunData]]) -> None:
    rows = [(label, _per_round(runs)) for label, runs in defences.items()]
    rows = [(label, spent) for label, spent in rows if sum(spent.values()) > 0]
    if not rows:
        raise NothingToDraw("No finished round has been timed yet.")
    phases = list(dict.fromkeys(phase for _, spent in rows for phase in spent))
    left: FloatVector = np.zeros(len(rows))
    for n, phase in enumerate(phases):
        width = np.array([spent.get(phase, 0.0) for _, spent in rows])
        ax.barh(range(len(rows)), width, 0.6, left=left, label=phase, color=PHASE_COLORS[n % len(PHASE_COLORS)])
        left = left + width
    _rows(ax, [label for label, _ in rows])
    ax.set_xlabel("Seconds a round")
    _legend(ax, "outside upper center", ncols=5, columnspacing=0.8, handlelength=0.8)


def _rows(ax: Axes, labels: Sequence[str]) -> None:
    ax.set_yticks(range(len(labels)), ["\n".join(textwrap.wrap(label, LONGEST_LINE)) for label in labels])
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)


def _per_round(runs: Sequence[RunData]) -> dict[str, float]:
    """Return the mean seconds of each phase, over all rounds of all runs."""
    rounds = sum(run.rounds.size for run in runs)
    totals: dict[str, float] = {}
    for run in runs:
        for phase, values in run.seconds.items():
            totals[phase] = totals.get(phase, 0.0) + float(np.nansum(values))
    return {phase: total / rounds for phase, total in totals.items()} if rounds else {}


def score_norm(scores: FloatVector) -> Normalize:
    """Return a scale for scores. It is logarithmic if no score is negative and the scores vary widely."""
    scores = scores.clip(-DRAWABLE, DRAWABLE)
    positive = scores[scores > 1 / DRAWABLE]
    low, high = float(scores.min()), float(scores.max())
    if positive.size > 0.9 * scores.size and low >= 0 and high > 20 * positive.min():
        return LogNorm(float(positive.min()), high)
    return Normalize(low, high) if high > low else Normalize(low - 0.5, high + 0.5)
