"""Writes tables as text, Markdown and LaTeX."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence

Rows = Sequence[Sequence[str]]
"""The texts of the cells of a table, row by row."""
Places = Collection[tuple[int, int]]
"""The positions of some cells: the row and the column of each cell, counted from 0."""


def markdown(title: str, header: Sequence[str], rows: Rows, legend: str, *, bold: Places = ()) -> str:
    """Return a table as Markdown, with a title above and a legend below."""
    marked = [[f"**{x}**" if (i, j) in bold else x for j, x in enumerate(row)] for i, row in enumerate(rows)]
    return "\n".join([f"### {title}", "", *markdown_lines(header, marked), "", legend, ""])


def markdown_lines(header: Sequence[str], rows: Rows) -> list[str]:
    """Return the lines of a Markdown table without title and legend."""

    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(values) + " |"

    return [line(header), line(["---"] * len(header)), *(line(row) for row in rows)]


def latex(title: str, header: Sequence[str], rows: Rows, legend: str, *, label: str = "", bold: Places = ()) -> str:
    """Return a table as LaTeX, with the title and the legend in its caption."""

    def line(values: Sequence[str], number: int) -> str:
        cells = [f"\\textbf{{{_escaped(x)}}}" if (number, j) in bold else _escaped(x) for j, x in enumerate(values)]
        return " & ".join(cells) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(title.removesuffix('.'))}. {_escaped(legend.replace('`', ''))}}}",
            *([rf"\label{{{label}}}"] if label else []),
            rf"\begin{{tabular}}{{{'l' * len(header)}}}",
            r"\toprule",
            line(header, -1),
            r"\midrule",
            *(line(row, i) for i, row in enumerate(rows)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def text_table(
    title: str, header: Sequence[str], rows: Rows, legend: str, fixed: int, width: int, bold: Places = ()
) -> str:
    """Return a table as plain text. Lines have at most `width` characters, if no single column needs more.

    If the table is too wide, it is cut into several tables, one below the other. Each of these tables begins with
    the first `fixed` columns. Long headings take several lines. `*` marks the cells in `bold`.
    """
    marked = [[f"{x}*" if (i, j) in bold else x for j, x in enumerate(row)] for i, row in enumerate(rows)]
    wide = [max(len(row[j]) for row in marked) for j in range(len(header))]
    heads = [[name] if j < fixed else _wrapped(name, max(wide[j], 12)) for j, name in enumerate(header)]
    widths = [max(wide[j], *map(len, head)) for j, head in enumerate(heads)]
    lines = [title, ""] if title else []
    for columns in _pages(widths, fixed, width):
        height = max(len(heads[j]) for j in columns)
        top = [[""] * (height - len(heads[j])) + heads[j] for j in columns]
        for cells in [*zip(*top, strict=True), *([row[j] for j in columns] for row in marked)]:
            padded = (cell.ljust(widths[j]) for cell, j in zip(cells, columns, strict=True))
            lines.append("  ".join(padded).rstrip())
        lines.append("")
    note = f"{legend.replace('`', '')}{' *: the best of its row.' if bold else ''}"
    return "\n".join([*lines, *textwrap.wrap(note, width), ""])


def _pages(widths: Sequence[int], fixed: int, width: int) -> list[list[int]]:
    """Cut a wide table into several tables, and return the columns of each table.

    Each table has the first `fixed` columns, and as many other columns as fit into `width` characters.
    """
    first = list(range(fixed))
    room = width - sum(widths[j] + 2 for j in first)
    pages: list[list[int]] = [[]]
    used = 0
    for j in range(fixed, len(widths)):
        if pages[-1] and used + widths[j] > room:
            pages.append([])
            used = 0
        pages[-1].append(j)
        used += widths[j] + 2
    return [first + page for page in pages]


def _wrapped(name: str, width: int) -> list[str]:
    """Return the lines of a heading.

    It is broken at spaces, hyphens, underscores and signs of equality. Longer parts are broken anywhere.

    Examples
    --------
    >>> _wrapped("guard (max_false_positive_rate=0.01)", 12)
    ['guard (max_', 'false_', 'positive_', 'rate=0.01)']
    """
    lines = [""]
    for part in re.findall(r"[^\s_=-]*(?:[\s_=-]|$)", name):
        for piece in (part[start : start + width] for start in range(0, len(part), width)):
            if len((lines[-1] + piece).rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return [line.rstrip() for line in lines]


def _escaped(text: str) -> str:
    r"""Return text in which the signs that have a meaning in LaTeX are escaped.

    Examples
    --------
    >>> print(_escaped('data={dataset="mnist"}, 50% of x_1 ± 2'))
    data=\{dataset="mnist"\}, 50\% of x\_1 $\pm$ 2
    """
    signs = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    return re.sub(r"[_%&#${}\\~^±]", lambda sign: signs.get(sign[0], rf"\{sign[0]}"), text)
