"""The list of pages beside the text: what `docs/index.md` names, and every page that it does not name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
HOME = "index"
OTHERS = "{other pages}"
"""Stands in `index.md` for the pages that it does not name."""


def complete_navigation(app: Any, docname: str, source: list[str]) -> None:
    """Fill in the home page's list of other pages, and leave out pages that are not there (yet)."""
    if docname == HOME:
        pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob("*.md")}
        source[0] = completed(source[0], pages - {HOME}, lambda page: (DOCS / f"{page}.md").exists())


def completed(text: str, pages: set[str], exists: Any) -> str:
    r"""Return the home page with complete lists.

    >>> text = "```{toctree}\n:caption: Use\n\nThe app <flower>\nsecurity\n{other pages}\n```\n"
    >>> print(completed(text, {"flower", "watch"}, {"flower", "watch"}.__contains__))
    ```{toctree}
    :caption: Use
    <BLANKLINE>
    The app <flower>
    watch
    ```
    <BLANKLINE>
    """
    named = {_page(line) for block in _blocks(text) for line in block.splitlines()}
    others = "\n".join(sorted(pages - named))

    def filled(match: re.Match[str]) -> str:
        lines = [line for line in match[2].replace(OTHERS, others).splitlines() if line]
        return match[1] + "\n".join(line for line in lines if exists(_page(line))) + "\n```"

    return re.sub(r"(```\{toctree\}\n(?::[^\n]*\n)*\n)(.*?)```", filled, text, flags=re.DOTALL)


def _blocks(text: str) -> list[str]:
    return re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)


def _page(line: str) -> str:
    """Return the page that a line of a list names, with or without a title of its own."""
    titled = re.fullmatch(r".*<(.*)>", line)
    return titled[1] if titled else line
