"""The README says what is true: its numbers are those of the measurements, and its commands and names exist."""

from __future__ import annotations

import csv
import html
import importlib.util
import json
import re
import shlex
import tomllib
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from flanders import AGGREGATORS, ATTACKS, FILTERS, PREAGGREGATORS
from flanders.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DEMO = ROOT / "examples" / "demo.toml"
PICTURE = "docs/figures/demo.svg"
DEFAULT_FILTER = next(iter(FILTERS))


@pytest.fixture(scope="module")
def measured():
    """The measurements of the default filter: (group, attack, share) -> filter -> one row for each seed."""
    cells = defaultdict(lambda: defaultdict(list))
    with (ROOT / "results" / "guard.csv").open() as file:
        for row in csv.DictReader(file):
            assert int(row["seed"]) >= 40  # held out
            name = row["attack"].removesuffix(" (strength 0.6)")
            cells[row["group"], name, float(row["fraction"]), row["rotating"]][row["filter"]].append(row)
    return cells


def accuracy(rows):
    return fmean(float(row["accuracy"]) for row in rows)


def oracles(cells):
    """The accuracy of the oracle by what it depends on: the group, the clients that attack, and the seed."""
    return {
        (key[0], key[2], key[3], row["seed"]): float(row["accuracy"])
        for key, found in cells.items()
        if key[0] != "small"
        for row in found["oracle"]
    }


def test_the_table_of_results_is_what_was_measured(measured):
    table = re.findall(
        r"^\| .*\(`([\w-]+)`\) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", README, re.MULTILINE
    )
    assert len(table) == 7
    for attack, *printed in table:
        cells = [
            measured[group, attack, share, "False"] for group, share in (("first-round", 0.2), ("examples", 0.8))
        ]
        assert all(cell[DEFAULT_FILTER] for cell in cells)
        found = [accuracy(cell[name]) for cell in cells for name in ("keep-all", DEFAULT_FILTER)]
        assert [float(number) for number in printed] == pytest.approx(found, abs=0.00501), attack


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ("first-round", r"the same clients in all rounds \| [^|]* \| none \| (\d+) of (\d+) cases"),
        ("examples", r"the same clients in all rounds \| [^|]* \| 100 \| (\d+) of (\d+) cases"),
        ("third-round", r"other clients in each round \| [^|]* \| none \| (\d+) of (\d+) cases"),
    ],
)
def test_the_sums_over_all_cases_are_what_was_measured(measured, group, sentence):
    best, near, cases = oracles(measured), 0, 0
    for (of, _, share, rotating), found in measured.items():
        rows = found[DEFAULT_FILTER]
        if of == group and rows:
            oracle = fmean(best[of, share, rotating, row["seed"]] for row in rows)
            near, cases = near + (accuracy(rows) >= oracle - 0.02), cases + 1
    printed = re.search(sentence, " ".join(README.split())).groups()
    assert [int(number) for number in printed] == [near, cases]


@pytest.mark.parametrize(
    ("kind", "registry"),
    [("attack", ATTACKS), ("filter", FILTERS), ("aggregator", AGGREGATORS), ("pre-aggregator", PREAGGREGATORS)],
)
def test_the_names_in_the_table_of_the_package_exist(kind, registry):
    (cells,) = re.findall(rf"^\| {kind} \| (.*) \|$", README, re.MULTILINE)
    named = re.findall(r"`([^`]+)`", cells)
    assert named
    assert set(named) <= set(registry)


def test_the_grid_has_as_many_runs_as_the_readme_says_and_all_commands_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (spec,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    Path("grid.toml").write_text(spec)
    assert main(["run", "grid.toml", "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == int(re.search(r"= (\d+) runs:", README)[1])
    (block,) = re.findall(r"```sh\n(flanders .*?)```", README, re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [command[:2] for command in commands] == [["flanders", c] for c in ("run", "table", "report")]
    fewer = [
        f"--set={value}" for value in ("federation.rounds=4", "federation.num_clients=8", "threat.fraction=0.2")
    ]
    for _, *arguments in commands:
        assert main([*arguments, *(fewer if arguments[0] == "run" else [])]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^\s*{attack} ", out, re.MULTILINE) for attack in ("gauss", "lie"))
    assert "<html" in Path("report.html").read_text()


def test_the_readme_counts_the_other_defences_of_the_leaderboard():
    file = ROOT / "src" / "flanders" / "leaderboard" / "defences.toml"
    defences = tomllib.loads(file.read_text())["defence"]
    others = [
        each for each in defences if not each.get("reference") and not each["name"].startswith(DEFAULT_FILTER)
    ]
    assert f"compares the filter with {len(others)} other defences" in " ".join(README.split())


@pytest.mark.parametrize(
    ("sentence", "registry", "counts"),
    [
        ("Twenty-three aggregators, two more as the code", AGGREGATORS, (23, 2)),
        ("and four pre-aggregators.", PREAGGREGATORS, (4, 0)),
        ("Thirty attacks on the updates, and three more as the code", ATTACKS, (30, 3)),
    ],
)
def test_the_changelog_counts_what_there_is(sentence, registry, counts):
    assert sentence in " ".join((ROOT / "CHANGELOG.md").read_text().split())
    as_published = sum(name.endswith("-reference") for name in registry)
    assert (len(registry) - as_published, as_published) == counts


def test_flanders_list_prints_every_name(capsys):
    assert main(["list"]) == 0
    words = capsys.readouterr().out.split()
    assert {*ATTACKS, *FILTERS, *AGGREGATORS, *PREAGGREGATORS} <= set(words)


def test_the_picture_is_of_the_demo_as_it_is():
    (described,) = re.findall(r"<dc:description>(.*?)</dc:description>", (ROOT / PICTURE).read_text())
    spec = tomllib.loads(DEMO.read_text())
    assert json.loads(html.unescape(described)) == spec, "draw it again: python docs/figures/demo.py"
    federation, threat = spec["federation"], spec["threat"]
    malicious = round(threat["fraction"] * federation["num_clients"])
    clients = f"{malicious} of the {federation['num_clients']} clients send noise"
    assert f"From round {threat['start']} on, {clients}." in README
    assert re.search(rf"!\[Accuracy over {federation['rounds']} rounds\. [^]]+\]\({PICTURE}\)", README)


def test_the_picture_can_be_drawn_again(tmp_path):
    demo = _module((ROOT / PICTURE).with_suffix(".py"))
    small = ["--set=federation.rounds=5", "--set=federation.num_clients=10", "--set=threat.fraction=0.7"]
    results = tmp_path / "results.sqlite"
    assert main(["run", str(DEMO), f"--out={results}", *small]) == 0
    demo.main(results, tmp_path / "demo.svg")
    assert (tmp_path / "demo.svg").read_text().count("<svg") == 1
    (axes,) = demo.draw(demo.read_results(results)).axes
    assert [text.get_text().partition(":")[0] for text in axes.texts] == [
        "from round 3 on, 7 of 10 clients send noise",
        "no attack",
        "attack, protected",
        "attack, not protected",
    ]
    assert [len(line.get_xdata()) for line in axes.lines] == [5, 5, 5]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    assert links
    missing = [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()]
    assert missing == []


def test_the_commands_and_extras_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"pip install \"\S*\[([\w-]+)\]\"", README)
    assert {"sim", "flower"} <= set(extras) <= set(project["optional-dependencies"])
    assert f'`pip install "{project["name"]}[sim]"`' in README  # once it is published
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in targets)


def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
