"""Draws the figure `grid` of the command `flanders plot`.

It is a heat map of accuracies, with a row for each attack and a column for each defence.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flanders.report.crosstable import Grid
from flanders.report.plots import COLUMN, NothingToDraw, new_figure

PAGE = 7.0
"""The width of both columns of a two-column page together, in inches."""
LETTER = 0.062
"""About the width of one letter in the names of rows and columns, in inches."""
CELL = 0.34
"""The smallest width of a cell in which a number can be read, in inches."""
MOST = 40
"""The heat map has at most this many rows, and at most this many columns. More would not fit on a page."""


def draw_grid(grid: Grid | None) -> Figure:
    """Draw the mean accuracies in `grid`, with a number in each cell.

    If the figure does not fit into one column of a two-column page, it takes both columns. If `grid` is None, the
    figure says that no run is finished.
    """
    if grid is None:
        return new_figure(1.5, _no_run)
    names, rows = grid.columns[:MOST], grid.rows[:MOST]
    left = LETTER * max(map(len, rows)) + 0.1
    width = COLUMN if left + CELL * len(names) <= COLUMN else PAGE
    longest = max(map(len, names))
    slanted = LETTER * (longest + 1) > (width - left) / len(names)
    head = 0.71 * LETTER * longest + 0.1 if slanted else 0.2
    return new_figure(0.35 + head + 0.22 * len(rows), lambda ax: _fill(ax, grid, slanted=slanted), width)


def _no_run(ax: Axes) -> None:
    raise NothingToDraw("No finished run yet.")


def _fill(ax: Axes, grid: Grid, *, slanted: bool) -> None:
    means = np.array(grid.means)[:MOST, :MOST]
    colors = mpl.colormaps["viridis"].with_extremes(bad="#e4e4e4")
    ax.imshow(np.ma.masked_invalid(means), aspect="auto", cmap=colors, vmin=0, vmax=1)
    for (i, j), value in np.ndenumerate(means):
        known = bool(np.isfinite(value))
        color = "black" if not known or value > 0.6 else "white"  # black on the light part of the scale
        ax.text(j, i, f"{value:.2f}" if known else "–", ha="center", va="center", color=color, fontsize=7)
    ax.set_yticks(range(means.shape[0]), grid.rows[:MOST])
    ax.xaxis.tick_top()
    ax.set_xticks(range(means.shape[1]), grid.columns[:MOST])
    if slanted:
        for label in ax.get_xticklabels():
            label.set(rotation=45, ha="left", rotation_mode="anchor")
    ax.spines[:].set_visible(False)
    ax.set_xticks(np.arange(means.shape[1] - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(means.shape[0] - 1) + 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1)
    ax.tick_params(which="both", length=0)
    hidden = len(grid.rows) - means.shape[0], len(grid.columns) - means.shape[1]
    rest = f" ({hidden[0]} rows and {hidden[1]} columns are not shown)" if any(hidden) else ""
    ax.set_xlabel(f"Accuracy after the last round, mean over seeds{rest}")
