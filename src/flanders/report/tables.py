"""Writing tables as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence


def markdown(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], legend: str) -> str:
    """Return a table as Markdown, with a title above and a legend below."""
    return "\n".join([f"### {title}", "", *markdown_lines(header, rows), "", legend, ""])


def markdown_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table without title and legend."""

    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(values) + " |"

    return [line(header), line(["---"] * len(header)), *(line(row) for row in rows)]


def latex(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], legend: str) -> str:
    """Return a table as LaTeX, with the title and the legend in its caption."""

    def line(values: Sequence[str]) -> str:
        return " & ".join(map(_escaped, values)) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(title)}. {_escaped(legend.replace('`', ''))}}}",
            rf"\begin{{tabular}}{{{'l' * len(header)}}}",
            r"\toprule",
            line(header),
            r"\midrule",
            *(line(row) for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    r"""Return text with the signs escaped that LaTeX would take for commands.

    Examples
    --------
    >>> print(_escaped('data={dataset="mnist"}, 50% of x_1'))
    data=\{dataset="mnist"\}, 50\% of x\_1
    """
    return re.sub(r"([_%&#${}])", r"\\\1", text)
