"""The pages of documentation: their code runs, their specs are valid, and their links lead somewhere."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path

import pytest

from flanders.experiments.spec import parse_spec

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for place in ("*.md", "docs/*.md", "benchmarks/*.md", "examples/*/*.md")
    for page in sorted(ROOT.glob(place))
]
THREAT = {"attack": "lie", "fraction": 0.2}
"""A spec that keeps `m-b` clients needs an attacker."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["callbacks.md", "core.md"])
def test_every_block_of_python_runs_as_it_stands(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks(page, "python")
    assert code
    for number, block in enumerate(code):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), {})


def test_the_example_of_the_guide_to_experiments_ends_where_it_says(capsys) -> None:
    (code,) = blocks("experiments.md", "python")
    exec(compile(code, "experiments.md", "exec"), {})
    accuracies = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    (with_filter, without) = re.search(
        r"ends at (0\.\d+)\. With .* ends at (0\.\d+)", page_text("experiments.md")
    ).groups()
    assert accuracies[-1] == pytest.approx(float(with_filter), abs=0.02)
    exec(compile(code.replace("Guard", "KeepAll"), "experiments.md", "exec"), {})
    assert float(capsys.readouterr().out.splitlines()[-1].split()[1]) == pytest.approx(float(without), abs=0.1)


def page_text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def test_every_block_of_toml_in_the_guide_to_experiments_is_a_spec() -> None:
    specs = [tomllib.loads(block) for block in blocks("experiments.md", "toml")]
    specs = [spec for spec in specs if "project" not in spec]  # one block belongs to a pyproject.toml
    assert len(specs) >= 3
    runs = [parse_spec({"threat": THREAT, **spec}) for spec in specs]
    assert len(runs[0]) == 12  # as the guide says


def test_the_numbers_of_malicious_clients_in_the_studies_are_right() -> None:
    found = doctest.testfile(str(ROOT / "docs" / "studies.md"), module_relative=False)
    assert found.attempted >= 3
    assert found.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(page) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, heading = target.partition("#")
        if "://" in target:
            continue
        file = page if not name else page.parent / name
        assert file.exists(), target
        if heading:
            assert heading in headings(file.read_text()), target


def headings(text: str) -> list[str]:
    """Return the names by which links know the headings of a page."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found]
