"""Check a built site: every link leads to a page and a heading, and nothing is loaded from another machine.

python docs/site/html_check.py site
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
"""What a browser fetches without being asked, and the attribute that says from where."""


@dataclass
class Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down one element."""
        found = {key: value or "" for key, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") in ("stylesheet", "preload", "icon", "shortcut icon"):
            self.loaded.append(found["href"])
        if LOADED.get(tag) in found:
            self.loaded.append(found[LOADED[tag]])


def problems_of(site: Path) -> list[str]:
    """Return a sentence for everything that is wrong with a site."""
    site = site.resolve()
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"There is no page in {site}."]
    problems = []
    for path, page in pages.items():
        name = path.relative_to(site)
        problems += [f"{name}: {why}" for link in page.links if (why := _broken(link, path, site, pages))]
        for source in page.loaded:
            if urlsplit(source).netloc:
                problems.append(f"{name}: loads {source} from another machine")
            elif why := _broken(source, path, site, pages):
                problems.append(f"{name}: {why}")
    for path in sorted(site.rglob("*.css")):
        for source in re.findall(r"(?:url\(|@import )[\"']?(https?:)?//[^)\"']+", path.read_text()):
            problems.append(f"{path.relative_to(site)}: loads {source} from another machine")
    return problems


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text())
    return page


def _broken(link: str, path: Path, site: Path, pages: dict[Path, Page]) -> str:
    """Return why a link leads nowhere, or nothing."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.exists():
        return f"the link {link} leads to no file of the site"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return f"the link {link} leads to no heading of its page"
    return ""


def main(site: Path) -> int:
    """Print all problems of a site."""
    problems = problems_of(site)
    for problem in problems:
        print(problem, file=sys.stderr)
    count = len(list(site.rglob("*.html")))
    print(f"{count} pages, {len(problems)} broken links or files from elsewhere.")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
