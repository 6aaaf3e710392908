"""The documentation site: its generated pages are complete and right, and its check finds what is broken."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

import api_pages
import html_check
import navigation
import repository_pages
from catalog_pages import ABOUT, catalog_page, public_path
from chromium import MISSING, PATIENCE, launch
from flanders.choices import KINDS, registry
from flanders.cli.parser import make_parser
from flanders.experiments.spec import parse_spec
from flanders.simulation import Setting
from pages import FENCE, THREAT, run_python

ROOT = Path(__file__).parents[1]
IN_WORDS = {"guard", "camps", "fingerprint", "keep-all", "oracle"}
"""Filters that no single formula describes. Pages of their own do."""
EXPLAINED = [
    (kind, name)
    for kind in ("attacks", "data_poisons", "filters", "aggregators", "preaggregators")
    for name in registry(kind)
]


@pytest.mark.parametrize(("kind", "name"), EXPLAINED)
def test_every_attack_and_defence_has_a_formula_an_example_and_a_source(kind, name):
    text = inspect.getdoc(registry(kind)[name])
    missing = [what for what, mark in (("formula", "math:"), ("example", ">>> ")) if mark not in text]
    if name in IN_WORDS:
        missing = [what for what in missing if what != "formula"]
    elif "References\n---" not in text:
        missing.append("source")
    assert missing == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_has_a_section_and_a_spec_that_is_right(kind):
    assert kind in ABOUT, "say in docs/site/catalog_pages.py what this kind is"
    page = catalog_page(kind)
    specs = [tomllib.loads(code) for language, code in FENCE.findall(page) if language == "toml"]
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == list(registry(kind))
    assert len(specs) == len(registry(kind))
    for spec in specs:
        threat = {"fraction": 0.2, **spec.get("threat", {})} if "threat" in spec else THREAT
        assert parse_spec({**spec, "threat": threat}), spec


@pytest.mark.parametrize("kind", [kind for kind in KINDS if ABOUT[kind].imports])
def test_the_examples_of_a_page_run_after_its_first_lines(kind):
    namespace = {}
    exec(ABOUT[kind].imports, namespace)
    for name, entry in registry(kind).items():
        path = public_path(entry, ABOUT[kind].room)
        exec(f"from {path.rpartition('.')[0]} import {entry.__name__}", namespace)  # as the page says above it
        if ">>> " in (text := inspect.getdoc(entry)):
            run_python(text, dict(namespace), f"{kind}, {name}")


def test_a_click_on_a_heading_sorts_the_leaderboard_and_a_second_one_turns_the_order():
    head = "".join(f"<th>{name}</th>" for name in ("defence", "rank", "c", "d", "e", "f"))
    rows = (("median", "10.5 ± 1.0"), ("guard", "9.2 ± 0.5"), ("oracle", "-"))
    body = "".join(f"<tr><td>{name}</td><td>{rank}</td>{'<td>0</td>' * 4}</tr>" for name, rank in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    with sync_playwright() as playwright:
        browser = launch(playwright)
        if browser is None:
            pytest.skip(MISSING)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.set_content(f'<section id="the-leaderboard">{table}</section>')
        page.add_script_tag(path=ROOT / "docs" / "site" / "static" / "sortable.js")
        first, rank = page.locator("tbody td:first-child"), page.locator("th:nth-child(2)")
        expect(first).to_have_text(["median", "guard", "oracle"])
        page.click("button:has-text('rank')")
        expect(first).to_have_text(["guard", "median", "oracle"])
        expect(rank).to_have_attribute("aria-sort", "ascending")
        page.click("button:has-text('rank')")
        expect(first).to_have_text(["oracle", "median", "guard"])
        page.click("button:has-text('defence')")
        expect(first).to_have_text(["guard", "median", "oracle"])
        expect(page.locator("th:nth-child(2):not([aria-sort])")).to_have_count(1)
        browser.close()


def test_the_page_of_the_command_line_has_every_command_and_option():
    page = api_pages.command_line_page()
    for command in make_parser().commands:
        assert f"\n## {command.prog}\n" in page
        options = [name for action in command._actions for name in action.option_strings]
        assert all(name in page for name in options if name not in ("-h", "--help"))


def test_the_page_of_the_spec_has_every_key():
    page = api_pages.spec_page()
    setting = Setting()
    for part in vars(setting):
        assert re.search(rf"^## `\[?{part}\]?`$", page, re.MULTILINE)
    for part in ("data", "training", "federation", "threat", "server", "run"):
        assert all(f"| `{key}` |" in page for key in vars(getattr(setting, part))), part


def test_the_home_page_leads_to_every_page():
    home = (ROOT / "docs" / "index.md").read_text()
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"a-new-page"}
    text = navigation.completed(home, pages - {"index"}, lambda page: True)
    lists = "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL))
    listed = re.findall(r"^(?:.*<)?([\w/-]+)>?$", lists, re.MULTILINE)
    assert set(pages) - {"index"} <= set(listed)
    assert len(listed) == len(set(listed))
    for path in (ROOT / "docs" / "tutorials").glob("*.md"):
        assert f"tutorials/{path.stem}" in listed
    assert {f"reference/{kind}" for kind in KINDS} <= set(listed)
    assert {f"repository/{page.removesuffix('.md')}" for page in repository_pages.PAGES.values()} <= set(listed)


def test_pages_that_are_not_there_are_left_out():
    assert doctest.testmod(navigation).failed == 0


def test_links_out_of_the_folder_of_documentation_lead_to_pages_of_the_site():
    page = ROOT / "docs" / "tutorials" / "flower.md"
    text = (
        "[a](../../CONTRIBUTING.md#add-something) [b](../../examples/deployment) [c](../flower.md) [d](https://e.f)"
    )
    moved = repository_pages.moved_links(text, page, page)
    assert moved == (
        "[a](../repository/contributing.md#add-something) [b](../repository/deployment.md) [c](../flower.md) "
        "[d](https://e.f)"
    )
    assert repository_pages.moved_links("[e](../results/paper)", ROOT / "docs" / "x.md", page) == (
        "[e](../repository/paper-tables.md)"
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="other.html">', ""),
        ('<a href="other.html#here">', ""),
        ('<a href="https://example.org/">', ""),
        ('<a href="nowhere.html">', "leads to no file"),
        ('<a href="other.html#there">', "leads to no heading"),
        ('<script src="https://example.org/x.js"></script>', "from another machine"),
        ('<img src="//example.org/x.png">', "from another machine"),
        ('<img src="missing.png">', "leads to no file"),
        ('<link rel="stylesheet" href="style.css">', "from another machine"),
    ],
)
def test_the_check_of_a_site_finds_broken_links_and_files_from_elsewhere(tmp_path, body, problem):
    (tmp_path / "index.html").write_text(f"<html><body>{body}</body></html>")
    (tmp_path / "other.html").write_text('<h1 id="here">')
    if "style.css" in body:
        (tmp_path / "style.css").write_text("@import url(https://example.org/font.css);")
    problems = html_check.problems_of(tmp_path)
    assert len(problems) == (1 if problem else 0)
    assert problem in "".join(problems)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, built anew. A warning is an error."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("Sphinx is not installed; `make docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs/site", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_all_links_of_the_site_hold(site):
    assert html_check.problems_of(site) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_works_in_a_browser_from_a_folder_and_without_a_network(site, scheme):
    with sync_playwright() as playwright:
        browser = launch(playwright)
        if browser is None:
            pytest.skip(MISSING)
        context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme, offline=True)
        context.set_default_timeout(PATIENCE)
        page, asked, errors = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name in ("index", "deciding", "tutorials/flower", "reference/attacks", "detection", "leaderboard"):
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_function("document.documentElement.scrollWidth === 390")
        page.goto((site / "reference" / "attacks.html").as_uri())
        page.wait_for_selector("mjx-container")  # a formula, drawn
        page.goto((site / "search.html").as_uri() + "?q=krum")
        expect(page.locator("ul.search li a").first).to_be_visible()
        expect(page.locator("ul.search")).to_contain_text("Krum")
        browser.close()
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
