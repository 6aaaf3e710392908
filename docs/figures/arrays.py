"""Draw the picture of `docs/tutorials/arrays.md`, from the code of that page.

pip install ".[report]"
python docs/figures/arrays.py
"""

from __future__ import annotations

import doctest
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from style import BLUE, RED, STYLE, save

PAGE = Path(__file__).parents[1] / "tutorials" / "arrays.md"
START = 6
"""The first round with an attack."""


def run_page() -> dict[str, Any]:
    """Run the page up to the comparison with plain averaging, and return its variables."""
    found: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(PAGE.read_text()):
        if example.source.startswith("print(f"):
            break
        exec(compile(example.source, PAGE.name, "single"), found)
    return found


def draw(found: dict[str, Any]) -> Figure:
    """Draw the errors with and without the defence."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        axes = figure.add_subplot()
        last = len(found["errors"])
        axes.axvspan(START - 0.5, last, color=RED, alpha=0.07, linewidth=0)
        axes.text(START - 0.3, 1.03, "from round 6 on, 7 of 12 clients attack", color=RED)
        for errors, colour, label in (
            (found["errors"], BLUE, "protected"),
            (found["plain_errors"], RED, "not protected"),
        ):
            axes.plot(range(1, last + 1), errors, color=colour, linewidth=2.2)
            axes.text(last + 0.3, errors[-1], f"{label}: {errors[-1]:.2f}", color=colour, va="center")
        axes.set(xlim=(1, last), ylim=(0, 1.12), xlabel="round", ylabel="distance to the true model")
        axes.set_xticks([1, 5, 10, 15, 20])
    return figure


def main(folder: Path) -> None:
    """Draw the picture into a folder."""
    save(draw(run_page()), folder / "tutorial-arrays.svg", "docs/tutorials/arrays.md")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
