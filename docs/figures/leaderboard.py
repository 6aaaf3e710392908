"""Write the tables of the leaderboard into its page, and draw its picture, from the rows of the package.

python docs/figures/leaderboard.py
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flanders.leaderboard.board_rows import MeasuredRun
from flanders.leaderboard.protocol import CORE, MAJORITY, MINORITY, read_protocol
from flanders.leaderboard.standings import Standings, standings_of
from flanders.leaderboard.tabling import cases_with, published_rows, rendered, shares_of
from style import BLUE, GREY, RED, STYLE, save

HERE = Path(__file__).parent
PAGE = HERE.parent / "leaderboard.md"
START, END = "<!-- tables: python docs/figures/leaderboard.py -->", "<!-- end of tables -->"
NUMBERED = 12
"""How many places have a number in the picture. More numbers would lie on top of each other."""
NAMES = {"digits": "Digits", "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}


def tables(rows: list[MeasuredRun]) -> str:
    """Return all tables as Markdown. A dataset without rows has none."""
    protocol, parts = read_protocol(), []
    for dataset in protocol.datasets:
        for shares in (MINORITY, MAJORITY):
            cases = cases_with(protocol, CORE, shares)
            ran = {row.cell.case for row in rows if row.cell.dataset == dataset}
            if ran & set(cases):
                table = standings_of(rows, dataset, cases)
                parts.append(rendered(table, f"{NAMES[dataset]}: {shares_of(table.cases)}", "markdown", legend=""))
    return "\n".join(parts)


def with_tables(page: str, text: str) -> str:
    """Return the page with these tables in the place of its own."""
    return re.sub(f"{START}.*?{END}", lambda _: f"{START}\n\n{text}\n{END}", page, flags=re.DOTALL)


def draw(table: Standings) -> Figure:
    """Draw the worst accuracy and the worst case of each defence against its honest cost."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 5), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, measure, title in zip(
            panels, ("accuracy", "worst"), ("worst accuracy", "worst case"), strict=True
        ):
            _points(axes, table, measure)
            axes.set(title=title, xlabel="honest cost", ylim=(-0.04, 1))
            axes.grid(color=GREY, alpha=0.2)
    return figure


def _points(axes: Axes, table: Standings, measure: str) -> None:
    """Draw a point for each defence, the first ones with their places. Places at the same point share a label."""
    labels: dict[tuple[float, float], list[str]] = {}
    points: dict[str, tuple[float, float]] = {}
    for place, line in enumerate(line for line in table.lines if line.rank is not None):
        x, y = line.cost.value, getattr(line, measure).value
        axes.plot(x, y, "o", color=BLUE if place < NUMBERED else GREY, markersize=6, alpha=0.7)
        if place >= NUMBERED:
            continue
        near = next((at for at in labels if abs(at[0] - x) < 0.012 and abs(at[1] - y) < 0.03), (x, y))
        labels.setdefault(near, []).append(str(place + 1))
        points[str(place + 1)] = (x, y)
    for places in labels.values():
        rightmost = max(points[place] for place in places)
        axes.annotate(", ".join(places), rightmost, (5, 4), textcoords="offset points", fontsize=9)
    for line in table.lines:
        if line.rank is None:
            at = line.cost.value, getattr(line, measure).value
            axes.plot(*at, "x", color=RED, markersize=9)
            axes.annotate(line.name, at, (5, -12), textcoords="offset points", fontsize=10)


def main(folder: Path = HERE, page: Path = PAGE) -> None:
    """Write the page and the picture."""
    rows, protocol = published_rows(), read_protocol()
    page.write_text(with_tables(page.read_text(), tables(rows)))
    table = standings_of(rows, "digits", cases_with(protocol, CORE, MINORITY))
    save(draw(table), folder / "leaderboard.svg", [line.title for line in table.lines])


if __name__ == "__main__":
    main()
