"""Draw the picture of the README, `demo.svg`, from the results of `make demo`.

make demo
pip install ".[report]"
python docs/figures/demo.py demo/results.sqlite
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from flanders.report.run_data import RunData
from flanders.report.run_reading import read_results
from style import BLUE, GREY, RED, STYLE, save

SPEC = Path(__file__).parents[2] / "examples" / "demo.toml"


def draw(runs: list[RunData]) -> Figure:
    """Draw the accuracy over the rounds, with and without an attack and a filter."""
    plain, attacked, protected = (_find(runs, *wanted) for wanted in ((False, False), (True, False), (True, True)))
    start, last = int(attacked.spec["threat"]["start"]), int(attacked.rounds[-1])
    malicious, clients = int(attacked.malicious[:, start - 1].sum()), len(attacked.clients)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        axes = figure.add_subplot()
        axes.axvspan(start - 0.5, last, color=RED, alpha=0.07, linewidth=0)
        axes.text(
            start - 0.3, 1.03, f"from round {start} on, {malicious} of {clients} clients send noise", color=RED
        )
        for run, colour, style, lift, label in (
            (plain, GREY, (0, (4, 2)), 0.035, "no attack"),
            (protected, BLUE, "-", -0.035, "attack, protected"),
            (attacked, RED, "-", 0.0, "attack, not protected"),
        ):
            axes.plot(run.rounds, run.accuracy, color=colour, linestyle=style, linewidth=2.2)
            place = (last + 0.3, float(run.accuracy[-1]) + lift)
            axes.text(*place, f"{label}: {run.accuracy[-1]:.2f}", color=colour, va="center")
        axes.set(xlim=(1, last), ylim=(0, 1.1), xlabel="round", ylabel="accuracy on the test set")
        axes.set_xticks([1, *range(5, last + 1, 5)])
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    return figure


def _find(runs: list[RunData], attacked: bool, protected: bool) -> RunData:
    """Return the run with or without an attack, and with or without a filter."""
    for run in runs:
        if bool(run.malicious.any()) is attacked and (run.spec["filter"]["name"] != "keep-all") is protected:
            return run
    raise SystemExit("The results lack a run of examples/demo.toml. Run `make demo` first.")


def main(results: Path, picture: Path) -> None:
    """Draw a results file, with the spec of the demo as the description of the picture."""
    save(draw(read_results(results)), picture, tomllib.loads(SPEC.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_suffix(".svg"))
