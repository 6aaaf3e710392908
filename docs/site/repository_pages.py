"""Pages from files outside `docs/`, such as CONTRIBUTING.md, and links to such files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "examples/flower-app/README.md": "flower-app.md",
    "examples/deployment/README.md": "deployment.md",
    "examples/nvflare/README.md": "nvflare-example.md",
    "examples/lora-app/README.md": "lora-app.md",
    "benchmarks/README.md": "benchmark-scripts.md",
}
"""Files of the repository, and the pages that show them. A file that is not there has no page."""
GENERATED = {
    "src/flanders/attacks": "attacks.md",
    "src/flanders/filters": "filters.md",
    "src/flanders/aggregators": "aggregators.md",
    "src/flanders/data": "datasets.md",
    "src/flanders/models": "models.md",
    "src/flanders/flower": "api-flanders-flower.md",
    "src/flanders/simulation": "api-flanders-simulation.md",
    "src/flanders/cli": "command-line.md",
}
"""Folders of the source, and the generated pages about what is in them."""
LINK = re.compile(r"(?<=\]\()(?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?(?=\))")


def write_repository_pages(folder: Path) -> None:
    """Write a page for each file, and one for the tables of the paper."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, page in PAGES.items():
        if (ROOT / source).exists():
            (folder / page).write_text(moved_links((ROOT / source).read_text(), ROOT / source, folder / page))
    (folder / "paper-tables.md").write_text(paper_tables())


def paper_tables() -> str:
    """Return the page of all tables of the reproduction."""
    lines = [
        "# All tables of the reproduction",
        "",
        "A cell has our mean over the seeds and, in square brackets, the lowest and the highest seed. Behind the "
        "semicolon are the published value and, in brackets, how far ours is from it. A cell that the paper does "
        "not have shows our value alone. [The paper, re-run](../reproduction.md) explains the two variants.",
        "",
    ]
    for variant, title in (("reference", "The published code"), ("textbook", "The paper's text")):
        lines += [f"## {title}: `{variant}`", ""]
        for path in sorted((ROOT / "results" / "paper").glob(f"{variant}-*.md")):
            text = path.read_text().strip()
            lines += [re.sub(r"^#{1,2} ", "### ", text, flags=re.MULTILINE), ""]
    return "\n".join(lines)


def localise_links(app: Any, docname: str, source: list[str]) -> None:
    """Turn links of a page to files outside `docs/` into links to the pages that show them."""
    page = DOCS / f"{docname}.md"
    if not docname.startswith("repository/"):
        source[0] = moved_links(source[0], page, page)


def moved_links(text: str, source: Path, page: Path) -> str:
    """Return the text of a page with links that hold at its new place.

    A link to a file that no page shows becomes a download.
    """

    def moved(match: re.Match[str]) -> str:
        target = (source.parent / match[1]).resolve()
        return os.path.relpath(page_of(target), page.parent) + (match[2] or "")

    return LINK.sub(moved, text)


def page_of(target: Path) -> Path:
    """Return the page that shows a file or a folder, or the file itself."""
    name = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else ""
    if name in GENERATED:
        return DOCS / "reference" / GENERATED[name]
    if target.is_dir():
        name = f"{name}/README.md"
    if name == "results/paper/README.md" or (name.startswith("results/paper/") and name.endswith(".md")):
        return DOCS / "repository" / "paper-tables.md"
    if name == "README.md":
        return DOCS / "index.md"
    if name in PAGES:
        return DOCS / "repository" / PAGES[name]
    return target
