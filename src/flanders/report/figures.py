"""The report's charts as files for papers."""

from __future__ import annotations

from pathlib import Path

from flanders.checks import check_choice
from flanders.extras import needing
from flanders.files import file_name, writing
from flanders.report.compared_runs import ComparedRuns
from flanders.report.run_reading import MOST_ROWS, read_results
from flanders.results.spec_keys import SEED, last_part

FORMATS = ("pdf", "svg", "png")


def write_figures(results: Path, folder: Path, format: str = "pdf") -> list[Path]:
    """Draw a results file as figures for papers: one column wide, safe for the colour-blind, fonts embedded.

    `accuracy`, `precision_recall` and `time_by_phase` compare the defences of one setting, averaged over its
    seeds. `scores_heatmap` and `score_distributions` show one run of each defence that judges clients. If the
    results hold several settings (attacks, data, ...), each gets a folder of its own.

    Parameters
    ----------
    results
        The results file of `flanders run`.
    folder
        Where to write. It is made if it is missing.
    format
        `pdf`, `svg` or `png`.

    Returns
    -------
    list of Path
        The files written.
    """
    check_choice("write_figures", "format", format, FORMATS)
    with needing("report"):
        from flanders.report import plots
    compared = ComparedRuns(read_results(Path(results), MOST_ROWS))
    settings = compared.settings() or [[]]
    written: list[Path] = []
    with writing(Path(folder)):
        for group in settings:
            place = Path(folder)
            if len(settings) > 1:
                place /= _unique(_setting_name(compared, group), written)
            place.mkdir(parents=True, exist_ok=True)
            for name, figure in plots.draw_figures(compared, group):
                written.append(place / f"{name}.{format}")
                plots.save(figure, written[-1])
    return written


def _setting_name(compared: ComparedRuns, group: list[int]) -> str:
    """Name a setting by its attack and the other keys in which settings differ."""
    parts = [compared.attack(group[0])]
    for key, value in compared.other_details(group[0]):
        if key != SEED:
            parts.append(str(value) if last_part(key) == "name" else f"{last_part(key)} {value}")
    return file_name("-".join(parts))


def _unique(name: str, written: list[Path]) -> str:
    taken = {path.parent.name for path in written}
    return next(x for x in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if x not in taken)
