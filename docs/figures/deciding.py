"""Draw the pictures of `docs/deciding.md`, from simulated federations on handwritten digits.

pip install ".[sim,report]"
python docs/figures/deciding.py
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from flanders.arrays import FloatMatrix, FloatVector
from flanders.attacks import Gauss, Lie, NoisyClones, OwnPull
from flanders.data import Dirichlet
from flanders.filters import Fingerprint, Flanders, Guard
from flanders.simulation import Data, Federation, Setting, Threat, Training
from rounds import Seen, simulate
from style import BLUE, GREY, RED, STYLE, save

SETTING = Setting(
    data=Data(partition=Dirichlet(1.0)),
    training=Training(learning_rate=3e-3, batch_size=16, epochs=2),
    federation=Federation(num_clients=40, rounds=4),
)
"""What all pictures have in common: 40 clients with uneven shares of the digits."""
MALICIOUS = 12
FRACTION = MALICIOUS / 40
SHADES = LinearSegmentedColormap.from_list("shades", [(*to_rgb(BLUE), 0.0), (*to_rgb(BLUE), 1.0)])
"""From the colour of the page to blue."""


def unit(rows: FloatMatrix) -> FloatMatrix:
    """Return the rows with length one."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def draw_copies() -> Figure:
    """Draw how alike every two clients are, with and without clients that send noisy copies of one update."""
    attack = Threat(NoisyClones(noise=0.3), fraction=FRACTION, start=1, rotating=False)
    seen = simulate(replace(SETTING, threat=attack, federation=replace(SETTING.federation, rounds=1)))[0]
    order = np.argsort(~seen.malicious, kind="stable")
    alike = unit(seen.steps)[order] @ unit(seen.steps)[order].T
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(alike, vmin=0, vmax=1, cmap=SHADES)
        axes.axhline(MALICIOUS - 0.5, color=RED, linewidth=1)
        axes.axvline(MALICIOUS - 0.5, color=RED, linewidth=1)
        middles = [MALICIOUS / 2 - 0.5, (MALICIOUS + len(order)) / 2 - 0.5]
        axes.set_xticks(middles, [f"{MALICIOUS} malicious", f"{len(order) - MALICIOUS} honest"])
        axes.set_yticks(middles, ["malicious", "honest"], rotation=90, va="center")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axes, label="cosine of two steps")
        bar.outline.set_visible(False)
    return figure


def draw_camps() -> Figure:
    """Draw the direction of the steps in the last layer, under an attack that turns it, and without attack."""
    threat = Threat(OwnPull(), fraction=FRACTION, start=3, rotating=False)
    rounds = simulate(replace(SETTING, threat=threat, filter=Guard()))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 2.9), layout="constrained")
        for axes, seen, title in zip(
            figure.subplots(1, 2, sharex=True, sharey=True),
            (rounds[1], rounds[2]),
            ("round 2: one group", "round 3: two camps"),
            strict=True,
        ):
            steps = unit(seen.steps[:, -seen.last_layer :])
            middle = unit(steps.mean(axis=0)[None])[0]
            _dots(axes, steps @ middle, seen, title)
            axes.set_xlabel("cosine with the mean step")
    return figure


def draw_fingerprint() -> Figure:
    """Draw how like their senders' earlier steps the steps are, under an attack that no client has trained."""
    threat = Threat(Lie(), fraction=FRACTION, start=4, rotating=False)
    rounds = simulate(replace(SETTING, threat=threat, filter=Fingerprint()))
    marks = unit(sum(seen.steps - seen.steps.mean(axis=0) for seen in rounds[:3]))
    seen = rounds[3]
    honest = seen.steps[~seen.malicious].mean(axis=0)
    cosines = unit(seen.steps - honest) @ marks.T
    own = np.diag(cosines)
    other = np.where(np.eye(len(own), dtype=bool), -np.inf, cosines).max(axis=1)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.axline((0, 0), slope=1, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
        for who, colour, label in ((~seen.malicious, BLUE, "honest"), (seen.malicious, RED, "malicious")):
            axes.scatter(other[who], own[who], color=colour, s=28, label=label)
            dropped = who & ~seen.kept
            axes.scatter(other[dropped], own[dropped], s=90, facecolors="none", edgecolors=colour)
        axes.set(
            xlabel="cosine with the nearest mark of another client",
            ylabel="cosine with its own mark",
            xlim=(0, 1),
            ylim=(-0.2, 1),
        )
        axes.legend(frameon=False, labelcolor="linecolor", loc="lower right")
    return figure


def draw_forecast() -> Figure:
    """Draw the distances to the forecast of `Flanders` under a loud and under a quiet attack."""
    runs = []
    for attack in (Gauss(sigma=0.5), Lie()):
        threat = Threat(attack, fraction=FRACTION, start=4, rotating=False)
        runs.append(simulate(replace(SETTING, threat=threat, filter=Flanders(keep=40 - MALICIOUS)))[3])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 2.9), layout="constrained")
        for axes, seen, title in zip(
            figure.subplots(1, 2, sharey=True), runs, ("a loud attack: noise", "a quiet attack: lie"), strict=True
        ):
            distances = np.sqrt([client.score for client in seen.record.clients])
            _dots(axes, distances, seen, title)
            axes.axvline(distances[seen.kept].max(), color=GREY, linewidth=1, linestyle=(0, (4, 2)))
            axes.set_xscale("log" if distances.max() > 8 * distances.min() else "linear")
            axes.set_xlabel("distance to the forecast")
    return figure


def _dots(axes: Axes, values: FloatVector, seen: Seen, title: str) -> None:
    """Draw one dot a client, on two lines. A circle around a dot says that the filter has dropped the client."""
    heights = np.random.default_rng(0).uniform(-0.22, 0.22, len(values))
    for who, colour, line in ((~seen.malicious, BLUE, 1), (seen.malicious, RED, 0)):
        axes.scatter(values[who], line + heights[who], color=colour, s=22, alpha=0.85)
        dropped = who & ~seen.kept
        axes.scatter(values[dropped], line + heights[dropped], s=80, facecolors="none", edgecolors=colour)
    axes.set(title=title, ylim=(-0.6, 1.6))
    axes.set_yticks([0, 1], ["malicious", "honest"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


PICTURES = {
    "deciding-copies": draw_copies,
    "deciding-camps": draw_camps,
    "deciding-fingerprint": draw_fingerprint,
    "deciding-forecast": draw_forecast,
}


def main(folder: Path) -> None:
    """Draw all pictures into a folder."""
    for name, draw in PICTURES.items():
        save(draw(), folder / f"{name}.svg", str(SETTING))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
