"""The look of the pictures: colours that can be read on a white page and on a dark one, no background."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

BLUE, RED, GREY = "#1f88d0", "#e0531f", "#808080"
"""Blue is for honest or protected, red is for malicious or unprotected. All have medium brightness."""
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 13,
    "svg.fonttype": "path",
    "svg.hashsalt": "flanders",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlesize": 13,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def save(figure: Figure, picture: Path, description: object) -> None:
    """Write an SVG file with a transparent background. The same figure gives the same bytes.

    The description says what was run, so that a test can tell whether the picture is of something else.
    """
    with mpl.rc_context(STYLE):
        told = json.dumps(description)
        figure.savefig(picture, transparent=True, metadata={"Date": None, "Description": told})
