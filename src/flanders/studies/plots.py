"""Functions that draw the figures of the studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flanders.arrays import FloatVector
from flanders.report.plots import BLUE, COLUMN, DASHES, GREY, SERIES, STYLE, VERMILLION
from flanders.studies.grid_studies import GridStudy
from flanders.studies.grids import CONTROLS
from flanders.studies.predictability import Series
from flanders.studies.rows import Row

GRID = 256
"""The number of points at which a density is computed. With this number the curve is smooth."""


def along_axis(study: GridStudy, rows: Sequence[Row]) -> Figure:
    """Draw how well the filters find malicious clients, and the final accuracy. Each attack has a column of panels.

    A study varies one or two keys of the spec, which describes its runs. The values of these keys are the points on
    the x axis. The upper panels have the recall, or the area under the ROC curve in the study `fldetector`. Each
    share of malicious clients has its own colour. If there is only one share at each point, each filter has its own
    colour instead. The filter `flanders` is compared with the simple filters in `CONTROLS`. If a study varies only
    parameters of `flanders`, each simple filter is a horizontal line. Vertical bars reach from the lowest to the
    highest result of the seeds.
    """
    detection = "auc" if study.name == "fldetector" else "recall"
    attacks = list(dict.fromkeys(row.attack for row in rows))
    points = list(dict.fromkeys(row.point for row in rows if row.point))
    styles = _line_styles(rows)
    with mpl.rc_context(STYLE):
        size = max(6.6, 1.0 + 1.3 * len(attacks)), 4.2 if _long(points) else 3.6
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(2, len(attacks), squeeze=False, sharex=True, sharey="row")
        for column, attack in enumerate(attacks):
            under_attack = [row for row in rows if row.attack == attack]
            for ax, metric in zip(axes[:, column], (detection, "accuracy"), strict=True):
                _lines(ax, under_attack, points, metric, styles)
            axes[0, column].set_title(attack)
            axes[1, column].set_xticks(range(len(points)), points, rotation=90 if _long(points) else 0)
        # In all studies but `fldetector`, filters drop as many clients as are malicious: recall equals precision.
        axes[0, 0].set_ylabel("AUC of the scores" if detection == "auc" else "Recall (= precision)")
        axes[1, 0].set_ylabel("Final accuracy")
        figure.supxlabel(study.label, fontsize=8)
        handles: dict[str, Artist] = {}
        for ax in axes.flat:
            ax.set_ylim(-0.03, 1.03)
            ax.grid(axis="y")
            drawn, labels = ax.get_legend_handles_labels()
            handles.update(zip(labels, drawn, strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, handlelength=2.4)
    return figure


@dataclass(frozen=True)
class _LineStyle:
    """How the rows of one filter and one share of malicious clients are drawn."""

    label: str
    color: str
    dashes: str | tuple[int, tuple[int, ...]]
    marker: str
    shift: float
    """How far the markers are moved to the side, so that filters do not hide each other."""


def _line_styles(rows: Sequence[Row]) -> dict[tuple[str, float], _LineStyle]:
    filters, fractions = (sorted({getattr(row, key) for row in rows}) for key in ("filter", "fraction"))
    shares: dict[str, set[float]] = {}
    for row in rows:
        shares.setdefault(row.point, set()).add(row.fraction)
    by_filter = all(len(share) == 1 for share in shares.values())
    dashes = {"keep-all": (0, (1, 2)), "distance-to-global": DASHES[1], "persistence": DASHES[2]}
    styles = {}
    for place, name in enumerate(filters):
        for fraction in fractions:
            label = name if by_filter else f"{name}, r = {fraction:g}"
            color = SERIES[(place if by_filter else fractions.index(fraction)) % len(SERIES)]
            shift = 0.15 * (place - (len(filters) - 1) / 2) if by_filter else 0.0
            marker = "_" if name in CONTROLS else "o"
            styles[name, fraction] = _LineStyle(label, color, dashes.get(name, "-"), marker, shift)
    return styles


def _lines(
    ax: Axes,
    rows: Sequence[Row],
    points: Sequence[str],
    metric: str,
    styles: Mapping[tuple[str, float], _LineStyle],
) -> None:
    place = {point: x for x, point in enumerate(points)}
    for (name, fraction), style in styles.items():
        mine = [row for row in rows if (row.filter, row.fraction) == (name, fraction)]
        if metric != "accuracy" and name == "keep-all":
            continue  # keep-all drops no client, and all its scores are equal
        for row in mine:
            if not row.point:
                level = getattr(row, metric)
                ax.axhline(level, color=style.color, linestyle=style.dashes, linewidth=0.8, label=style.label)
        along = [row for row in mine if row.point]
        if along:
            x = [place[row.point] + style.shift for row in along]
            joined = style.dashes if _is_scale(points) else "none"
            options: dict[str, Any] = {"linestyle": joined, "marker": style.marker, "ms": 3.5, "label": style.label}
            ax.plot(x, [getattr(row, metric) for row in along], color=style.color, **options)
            low, high = ([getattr(row, f"{metric}_{end}") for row in along] for end in ("low", "high"))
            ax.vlines(x, low, high, color=style.color, linewidth=0.7)


def _is_scale(points: Sequence[str]) -> bool:
    """Whether all points are numbers, or "all" for all parameters. Only such points are joined by a line."""
    return all(point == "all" or point.replace(".", "", 1).isdigit() for point in points)


def _long(points: Sequence[str]) -> bool:
    """Whether the labels of the points are too long to stand beside each other."""
    return sum(map(len, points)) > 18


def densities(series: Mapping[str, Series], key: tuple[str, str, str]) -> Figure:
    """Draw how the mutual information between consecutive rounds of a client is distributed.

    There is a panel for each attack. It has a curve for an honest client and a curve for a malicious client.
    `series` has the estimates for each attack. `key` says which estimates to draw; see `Key` in
    `flanders.studies.predictability`.
    """
    columns = min(4, len(series))
    lines = -(-len(series) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.1 * COLUMN * columns / 4, 0.7 + 1.35 * lines), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False)
        for ax in axes.flat[len(series) :]:
            ax.set_axis_off()
        for ax, (attack, estimates) in zip(axes.flat, series.items(), strict=False):
            groups = zip(("honest", "malicious"), estimates[key], (BLUE, VERMILLION), ("-", DASHES[1]), strict=True)
            for label, values, color, style in groups:
                x, y = density(values)
                ax.plot(x, y, color=color, linestyle=style, label=label)
                ax.fill_between(x, y, color=color, alpha=0.15, linewidth=0)
                ax.axvline(float(values.mean()), color=color, linestyle=style, linewidth=0.7)
            ax.set_title(attack)
            ax.set_yticks([])
            ax.set_ylim(bottom=0)
            ax.spines["left"].set_color(GREY)
        figure.supxlabel("Mutual information of consecutive rounds (nats); vertical lines are means", fontsize=8)
        figure.supylabel("Density", fontsize=8)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


def density(values: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Return a Gaussian kernel density estimate with Silverman's bandwidth, scaled to a peak of 1.

    Two densities in a panel may have very different spreads. With the same height, both can be seen.
    """
    low, high = np.quantile(values, [0.25, 0.75])
    spread = min(float(values.std()), float(high - low) / 1.349) or float(values.std())
    # If all values are nearly equal, Silverman's bandwidth would be too small to draw.
    width = max(0.9 * spread * values.size**-0.2, 1e-3 * max(1.0, float(np.abs(values).max())))
    x = np.linspace(values.min() - 3 * width, values.max() + 3 * width, GRID)
    y = np.exp(-(((x[:, None] - values[None, :]) / width) ** 2) / 2).sum(axis=1)
    return x, y / y.max()
