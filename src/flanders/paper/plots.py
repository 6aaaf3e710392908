"""Functions that draw the figures of the FLANDERS paper from our values.

A cell is one number of a table or figure of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flanders.paper.comparison import DETECTION, TOLERANCES, Compared
from flanders.paper.reproduction import Curve
from flanders.report.plots import COLUMN, DASHES, GREY, SERIES, STYLE

SIDES = {"flanders": "FedAvg with FLANDERS", "none": "FedAvg alone"}
"""The filters of the figure "accuracy over time", and the titles of their panels."""
MARKERS = {"0.2": "o", "0.6": "s"}
"""The shares of malicious clients in the figure "tradeoff", and the marker of each share."""


def over_time(curves: Sequence[Curve]) -> Figure:
    """Draw the accuracy in each round, with the filter (left) and without it (right).

    Lines are means over the seeds. Bands reach from the lowest to the highest accuracy of any seed.
    """
    attacks = [a for a in dict.fromkeys(curve.cell.attack for curve in curves) if a != "none"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2 * COLUMN, 2.4), layout="constrained")
        axes: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
        for ax, (filter_, title) in zip(axes, SIDES.items(), strict=True):
            for curve in (c for c in curves if c.cell.filter == filter_):
                name = curve.cell.attack
                honest = name == "none"
                place = -1 if honest else attacks.index(name)
                color, dash = (GREY, "--") if honest else (SERIES[place % len(SERIES)], DASHES[place % len(DASHES)])
                values = np.array(curve.rounds, dtype=float)
                rounds = np.arange(1, len(values) + 1)
                ax.plot(rounds, values.mean(1), color=color, ls=dash, label="no attack" if honest else name)
                ax.fill_between(rounds, values.min(1), values.max(1), color=color, alpha=0.15, lw=0)
            ax.set_title(title)
            ax.set_xlabel("Round")
            ax.set_ylim(0, 1)
            ax.grid(axis="y")
        axes[0].set_ylabel("Accuracy")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=5, handlelength=2.4)
    return figure


def tradeoff(cells: Sequence[Compared]) -> Figure:
    """Draw the best accuracy against the duration of a whole run, with a panel for each dataset."""
    datasets = list(dict.fromkeys(c.cell.dataset for c in cells if c.cell.metric == "seconds"))
    strategies = list(dict.fromkeys((c.cell.aggregator, c.cell.filter) for c in cells))
    by_cell = {c.cell.key: c for c in cells}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN * max(1.5, len(datasets)), 2.4), layout="constrained")
        axes = figure.subplots(1, len(datasets), squeeze=False)[0]
        for ax, dataset in zip(axes, datasets, strict=True):
            for color, (aggregator, filter_) in zip(SERIES, strategies, strict=False):
                for ratio, marker in MARKERS.items():
                    key = (dataset, "agr-min-max", ratio, aggregator, filter_)
                    time, best = by_cell.get((*key, "seconds")), by_cell.get((*key, "accuracy"))
                    if time is None or best is None or time.ours is None or best.ours is None:
                        continue
                    strategy = aggregator if filter_ == "none" else f"{filter_} + {aggregator}"
                    ax.plot(time.ours, best.ours, marker, color=color, label=f"{strategy}, r = {ratio}")
            ax.set_title(dataset)
            ax.set_xlabel("Seconds for the whole run")
            ax.set_xlim(0, 1.08 * ax.get_xlim()[1])
            ax.set_ylim(0, 1)
            ax.grid()
        axes[0].set_ylabel("Best accuracy")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, handlelength=1)
    return figure


def agreement(cells: Sequence[Compared]) -> Figure:
    """Draw our values against the paper's values, with a point for each cell.

    Points inside the band agree with the paper. A point outside it may agree with the values of the authors' later
    re-run of their code, or may be a cell with a larger tolerance (`OPT_MINORITY_TOLERANCE`).
    """
    colors = dict(zip(dict.fromkeys(c.cell.filter for c in cells), SERIES, strict=False))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2 * COLUMN, 3.1), layout="constrained")
        sides = (("precision and recall", DETECTION), ("accuracy", ("accuracy",)))
        for ax, (title, metrics) in zip(figure.subplots(1, 2), sides, strict=True):
            band = TOLERANCES[metrics[0]]
            ax.fill_between([0, 1], [-band, 1 - band], [band, 1 + band], color=GREY, alpha=0.15, lw=0)
            ax.plot([0, 1], [0, 1], color=GREY, lw=0.6)
            shown = [c for c in cells if c.cell.measure in metrics]
            for filter_, color in colors.items():
                points = [(c.paper, c.ours) for c in shown if c.cell.filter == filter_ and c.paper is not None]
                if points:
                    label = "no filter" if filter_ == "none" else filter_
                    ax.plot(*zip(*points, strict=True), "o", ms=2.5, color=color, alpha=0.6, label=label)
            ax.set_title(title)
            ax.set_xlabel("Published")
            ax.set_xlim(-0.03, 1.03)
            ax.set_ylim(-0.03, 1.03)
            ax.set_aspect("equal")
            if shown:
                ax.legend(loc="lower right")
        figure.axes[0].set_ylabel("Ours")
    return figure
