"""Writes two figures of the FLANDERS paper, drawn from our runs, and a figure of our values against the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flanders.files import writing
from flanders.paper import plots
from flanders.paper.comparison import Compared
from flanders.paper.reproduction import Reproduction
from flanders.paper.tables import TableSpec
from flanders.report.plots import save


def write_paper_figures(
    asked: Reproduction, results: Path, compared: Sequence[tuple[TableSpec, Sequence[Compared]]], folder: Path
) -> list[Path]:
    """Write the figures as SVG files, and return their paths. A figure without finished runs is left out.

    The figures `accuracy-over-time` and `tradeoff` are in the paper. The figure `agreement` is ours. It shows our
    values against the published values.
    """
    figures = {}
    if curves := asked.curves(results):
        figures["accuracy-over-time"] = plots.over_time(curves)
    tradeoff = [
        c for table, cells in compared if table.label == "fig:tradeoff" for c in cells if c.ours is not None
    ]
    if any(c.cell.metric == "seconds" for c in tradeoff):
        figures["tradeoff"] = plots.tradeoff(tradeoff)
    published = [c for _, cells in compared for c in cells if c.difference is not None]
    if published:
        figures["agreement"] = plots.agreement(published)
    paths = []
    with writing(folder):
        for name, figure in figures.items():
            paths.append(folder / f"{asked.variant.name}-{name}.svg")
            save(figure, paths[-1])
    return paths
