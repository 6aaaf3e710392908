"""Draw the picture of the README, `demo.svg`, from the results of `make demo`.

make demo
pip install ".[report]"
python docs/figures/demo.py demo/results.sqlite
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from flanders.report.run_data import RunData
from flanders.report.run_reading import read_results

SPEC = Path(__file__).parents[2] / "examples" / "demo.toml"
BLUE, RED, GREY = "#1f88d0", "#e0531f", "#808080"
"""Colours of medium brightness: they can be read on a white page and on a dark one."""
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "svg.fonttype": "path",
    "svg.hashsalt": "flanders",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


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
    """Draw a results file as an SVG file with a transparent background. The same results give the same bytes.

    The spec of the demo is written into the file, so that a test can tell whether the picture is of another demo.
    """
    spec = json.dumps(tomllib.loads(SPEC.read_text()))
    with mpl.rc_context(STYLE):
        draw(read_results(results)).savefig(picture, transparent=True, metadata={"Date": None, "Description": spec})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_suffix(".svg"))
