"""The report's charts as files for papers."""

from __future__ import annotations

import re
from pathlib import Path

from flanders.checks import InputError, check_choice
from flanders.files import writing
from flanders.report.data import read_results
from flanders.report.naming import Names
from flanders.results.labels import DEFENCE, section_of

FORMATS = ("pdf", "svg", "png")


def write_figures(results: Path, folder: Path, format: str = "pdf") -> list[Path]:
    """Draw a results file as figures one column wide, colour-blind-safe, with their fonts in them.

    `accuracy`, `precision_recall` and `time_by_phase` compare the defences of one setting, averaged over its
    seeds; `scores_heatmap` and `score_distributions` show one run of each defence that judges clients. Where the
    results hold several settings (attacks, data, ...), each has a folder of its own.

    Parameters
    ----------
    results
        The results file of `flanders run`.
    folder
        Where to write; made if it is not there.
    format
        `pdf`, `svg` or `png`.

    Returns
    -------
    list of Path
        The files written.
    """
    check_choice("write_figures", "format", format, FORMATS)
    try:
        from flanders.report import plots
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("matplotlib"):
            raise
        raise InputError(
            "Figures need matplotlib, which is not installed. Install it with: pip install 'flanders-fl[report]'."
        ) from error
    names = Names(read_results(Path(results)))
    settings = names.settings() or [[]]
    written: list[Path] = []
    with writing(Path(folder)):
        for group in settings:
            place = Path(folder)
            if len(settings) > 1:
                place /= _unique(_setting_name(names, group), written)
            place.mkdir(parents=True, exist_ok=True)
            for name, figure in plots.draw(names, group):
                written.append(place / f"{name}.{format}")
                plots.save(figure, written[-1])
    return written


def slug(text: str) -> str:
    """Return a name that any file system takes.

    Examples
    --------
    >>> slug("multi-krum · lie 80% · alpha 0.5")
    'multi-krum-lie-80-alpha-0.5'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "run"


def _setting_name(names: Names, group: list[int]) -> str:
    """Name a setting by its attack and whatever else varies between settings."""
    varying = [k for k in names.varying if section_of(k) not in DEFENCE and k != "attack.fraction"]
    flat = names.flat[group[0]]
    parts = [names.attack(group[0])]
    for key in varying:
        if key in flat and key not in ("federation.seed", "attack.name", "poison.name", "poison.fraction"):
            last = key.rpartition(".")[2]
            parts.append(str(flat[key]) if last == "name" else f"{last} {flat[key]}")
    return slug("-".join(parts))


def _unique(name: str, written: list[Path]) -> str:
    taken = {path.parent.name for path in written}
    return next(x for x in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if x not in taken)
