"""The pages of documentation: every block of code runs, and every link leads somewhere."""

from __future__ import annotations

import logging
import re
import tomllib
from pathlib import Path

import pytest

from flanders.cli import main
from flanders.experiments.spec import parse_spec
from pages import FENCE, LANGUAGES, run_page

ROOT = Path(__file__).parents[1]
GENERATED = ("reference", "repository")
PAGES = [
    page
    for place in ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*/*.md")
    for page in sorted(ROOT.glob(place))
    if page.relative_to(ROOT).parts[1:2] not in [(folder,) for folder in GENERATED]
]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
ELSEWHERE = {"README.md", "CONTRIBUTING.md"}
"""Pages with tests of their own: doctests and tests/test_readme.py, tests/test_contributing.py."""
ROOMS = "".join(path.read_text() for path in (ROOT / "tests").glob("*/test_docs.py"))
"""The tests of pages that need more than a page, e.g. a federation of Flower."""


def runs_here(name):
    file = Path(name).name
    return name not in ELSEWHERE and f'"{name}"' not in ROOMS and (file == "README.md" or f'"{file}"' not in ROOMS)


@pytest.mark.parametrize("name", NAMES)
def test_every_block_of_code_has_a_language_that_the_tests_know(name):
    text = (ROOT / name).read_text()
    languages = {language for language, _ in FENCE.findall(text)}
    others = {"docs/index.md": {"{toctree}"}, "CONTRIBUTING.md": {""}}  # the tree of the source has no language
    assert languages <= LANGUAGES | others.get(name, set())


@pytest.mark.parametrize("name", [name for name in NAMES if runs_here(name)])
def test_a_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / name, {})


def test_the_example_of_the_guide_to_experiments_ends_where_it_says(capsys):
    page = (ROOT / "docs" / "experiments.md").read_text()
    (code,) = [code for language, code in FENCE.findall(page) if language == "python"]
    with_filter, without = re.search(r"ends at (0\.\d+)\. With .* ends at (0\.\d+)", page).groups()
    for text, expected, near in ((code, with_filter, 0.02), (code.replace("Guard", "KeepAll"), without, 0.1)):
        exec(compile(text, "experiments.md", "exec"), {})
        last = capsys.readouterr().out.splitlines()[-1]
        assert float(last.split()[1]) == pytest.approx(float(expected), abs=near)


def test_the_spec_of_the_guide_to_experiments_has_as_many_runs_as_it_says():
    page = (ROOT / "docs" / "experiments.md").read_text()
    first = next(code for language, code in FENCE.findall(page) if language == "toml")
    assert f"list the {len(parse_spec(tomllib.loads(first)))} runs of this grid" in page


@pytest.mark.slow
def test_the_tables_of_the_tutorials_are_what_their_commands_print(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tutorials" / "experiments.md").read_text()
    spec = next(code for language, code in FENCE.findall(page) if language == "toml")
    Path("grid.toml").write_text(spec)
    assert main(["run", "grid.toml", "--jobs", "2"]) == 0
    capsys.readouterr()
    assert main(["table", "results.sqlite", "--format", "markdown"]) == 0
    printed, shown = numbers(capsys.readouterr().out), numbers(page)
    assert len(shown) == 3
    for attack, values in shown.items():
        assert printed[attack] == pytest.approx(values, abs=0.05), attack


def numbers(text: str) -> dict[str, list[float]]:
    """Return the means in each row of a table of results."""
    rows = re.findall(r"^\| ([\w-]+) \| [\d.]+ \| (.*) \|$", text, re.MULTILINE)
    return {attack: [float(cell.split()[0]) for cell in cells.split(" | ")] for attack, cells in rows}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(name):
    page = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        file, _, heading = target.partition("#")
        if "://" in target:
            continue
        place = page if not file else page.parent / file
        if name == "docs/index.md" and file.split("/")[0] in GENERATED:
            continue  # `make docs` writes this page and checks the link
        assert place.exists(), target
        if heading:
            assert heading in headings(place.read_text()), target


def headings(text: str) -> list[str]:
    """Return the names by which links know the headings of a page."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found]


@pytest.fixture(autouse=True)
def _quiet():
    """Pages log what an attack makes the filter say."""
    logging.getLogger("flanders").setLevel(logging.ERROR)
    yield
    logging.getLogger("flanders").setLevel(logging.NOTSET)
