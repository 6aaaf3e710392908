"""Writes the charts of the report as files for papers, for the command `flanders plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flanders.checks import check_choice
from flanders.extras import needing
from flanders.files import file_name, writing
from flanders.report.compared_runs import ComparedRuns
from flanders.report.crosstable import grid_means
from flanders.report.run_reading import MOST_ROWS, read_results
from flanders.report.where import selected
from flanders.results.spec_keys import SEED, last_part

FORMATS = ("pdf", "svg", "png")
GRID = "grid"
FIGURE_NAMES = (GRID, "accuracy", "scores_heatmap", "score_distributions", "precision_recall", "time_by_phase")
"""The names of all figures. `grid` shows all runs together. The other figures are drawn for each setting, which is
everything in a run except its defence and its seed."""


def write_figures(
    results: Path, folder: Path, format: str = "pdf", only: Sequence[str] = (), wheres: Sequence[str] = ()
) -> list[Path]:
    """Draw a results file as figures for papers.

    A figure is as wide as one column of a two-column page. Only `grid` may need both columns. The fonts are
    embedded, and the colour-blind can tell the colours apart.

    `grid` is a heat map of the final accuracies, with a row for each attack and a column for each defence.
    `accuracy`, `precision_recall` and `time_by_phase` compare the defences of one setting, averaged over its seeds.
    `scores_heatmap` and `score_distributions` show one run of each defence that scores clients.

    A setting is everything in a run except its defence and its seed: the attack, the data and so on. If the results
    have several settings, only `grid` is drawn by default. If `only` names other figures, each setting has a folder
    with these figures.

    Parameters
    ----------
    results
        The results file of `flanders run`.
    folder
        The folder to write to. It is made if it is missing.
    format
        `pdf`, `svg` or `png`.
    only
        The names of the figures to draw. Default: `grid` if there are several settings, else all other figures.
    wheres
        Conditions on the runs, e.g. `attack=lie`; see `flanders.report.where`.

    Returns
    -------
    list of Path
        The files written.
    """
    check_choice("write_figures", "format", format, FORMATS)
    for name in only:
        check_choice("write_figures", "only", name, FIGURE_NAMES)
    with needing("report"):
        from flanders.report import grid_plot, plots
    runs = read_results(Path(results), MOST_ROWS)
    compared = ComparedRuns([runs[i] for i in selected([run.spec for run in runs], wheres)] if wheres else runs)
    settings = compared.settings() or [[]]
    if not only:
        only = [GRID] if len(settings) > 1 else [name for name in FIGURE_NAMES if name != GRID]
    written: list[Path] = []
    with writing(Path(folder)):
        if GRID in only:
            written.append(Path(folder) / f"{GRID}.{format}")
            plots.save(grid_plot.draw_grid(grid_means(Path(results), wheres)), written[-1])
        for group in settings if set(only) - {GRID} else ():
            target = Path(folder)
            if len(settings) > 1:
                target /= _unique(_setting_name(compared, group), written)
            target.mkdir(parents=True, exist_ok=True)
            for name, figure in plots.draw_figures(compared, group, only):
                written.append(target / f"{name}.{format}")
                plots.save(figure, written[-1])
    return written


def _setting_name(compared: ComparedRuns, group: list[int]) -> str:
    """Return a name for a setting: its attack, and the other values in which settings differ."""
    parts = [compared.attack(group[0])]
    for key, value in compared.other_details(group[0]):
        if key != SEED:
            parts.append(str(value) if last_part(key) == "name" else f"{last_part(key)} {value}")
    return file_name("-".join(parts))


def _unique(name: str, written: list[Path]) -> str:
    """Return a name for a folder: `name`, followed by a number if a folder `name` was written before."""
    taken = {path.parent.name for path in written}
    return next(x for x in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if x not in taken)
