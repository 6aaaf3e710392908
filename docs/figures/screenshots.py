"""Take the pictures of the report in the tutorials.

make browser
flanders run grid.toml --out results.sqlite       # the spec of docs/tutorials/experiments.md
python docs/figures/screenshots.py results.sqlite docs/figures/tutorial-report.png

The other picture, `tutorial-flower.png`, is of the results file of docs/tutorials/flower.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from flanders.cli import main as flanders

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from chromium import MISSING, launch

WIDTH, HEIGHT = 1100, 720
"""As wide as a page of the site can show without shrinking the letters too much."""


def take(results: Path, picture: Path) -> None:
    """Write the report of a results file and take a picture of how it opens."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        if flanders(["report", str(results), "--html", str(page_file)]) != 0:
            raise SystemExit(1)
        browser = launch(playwright)
        if browser is None:
            raise SystemExit(MISSING)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.5)
        page.goto(page_file.as_uri())
        page.wait_for_timeout(1000)
        page.screenshot(path=str(picture))
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
