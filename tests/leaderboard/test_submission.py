"""A defence in a package outside this repository enters the leaderboard by its author's commands alone."""

from __future__ import annotations

import csv
import io
import itertools
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from flanders import Aggregator, choices
from flanders.checks import InputError
from flanders.cli import main
from flanders.leaderboard.board_rows import read_rows
from flanders.leaderboard.entrants import Entrant, own_entrants
from flanders.leaderboard.submission import check_entrant, check_submitted_rows, packages_of

SOURCE = Path(__file__).parents[2] / "src"
MODULE = '''
"""The average of the shorter half of the updates."""

from dataclasses import dataclass

import numpy as np

from flanders import Aggregator
from flanders.linalg.products import mean, squared_norms


@dataclass(frozen=True)
class ShorterHalf(Aggregator):
    """Average the updates that are no longer than the median update."""

    def aggregate(self, round_, rng):
        """Return the mean of the shorter half."""
        squares = squared_norms(round_.updates, round_.global_model)
        return mean(round_.updates, (squares <= np.median(squares)).astype(float))
'''
DEFENCES = '[[defence]]\nname = "shorter-half"\npaper = "An example"\nuntold = { aggregator = "shorter-half" }\n'
QUICK = ("--where", "case=none,sign-flip/0.2/1/fixed,sign-flip/0.4/1/fixed")


@pytest.fixture
def _forgotten():
    """Lets the packages that a test has installed be looked up, and forgets them after it."""
    choices.installed.cache_clear()
    yield
    choices.installed.cache_clear()


def wheel_of(folder: Path) -> Path:
    """Pack the module as a wheel with an entry point, as the tools of its author would."""
    path, info = folder / "shorter_half-1.2-py3-none-any.whl", "shorter_half-1.2.dist-info"
    parts = {
        "shorter_half.py": MODULE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: shorter-half\nVersion: 1.2\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[flanders.aggregators]\nshorter-half = shorter_half:ShorterHalf\n",
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
        file.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*parts, f"{info}/RECORD"]))
    return path


@pytest.mark.usefixtures("_forgotten")
def test_an_author_adds_a_row_with_commands_alone(tmp_path, monkeypatch, capsys):
    home, site = tmp_path / "my-package", tmp_path / "site-packages"
    home.mkdir()
    install = [
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        str(site),
        str(wheel_of(tmp_path)),
    ]
    subprocess.run([sys.executable, "-m", *install], check=True, timeout=600)
    (home / "shorter-half.toml").write_text(DEFENCES)

    def flanders(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("COLUMNS", "116")
    checked = flanders("leaderboard", "submit", "shorter-half.toml", "--check")
    assert "shorter-half: its parts are in shorter-half 1.2." in checked
    assert "it runs with every share of malicious clients" in checked
    flanders("leaderboard", "run", "digits", "--defences", "shorter-half.toml", *QUICK, "--out", "mine.sqlite")
    made = ("--results", "mine.sqlite", "--out", "shorter-half.csv")
    assert "shorter-half.csv: 9 rows." in flanders("leaderboard", "submit", "shorter-half.toml", *made)
    again = flanders("leaderboard", "submit", "shorter-half.toml", "--check", "--rows", "shorter-half.csv")
    assert "9 rows are well formed" in again
    assert "3 of its runs were run again. Each accuracy was within 0.02 of the one in the file." in again
    where = ("--rows", "shorter-half.csv", "--where", "case=sign-flip/0.2/1/fixed,sign-flip/0.4/1/fixed")
    table = flanders("leaderboard", "table", "digits", *where, "--format", "csv")

    lines = {line["defence"]: line for line in csv.DictReader(io.StringIO(table))}
    rows = read_rows(home / "shorter-half.csv")
    assert {"fedavg", "guard", "shorter-half"} <= set(lines)
    worst = [
        min(r.accuracy for r in rows if r.cell.seed == seed and r.cell.case.attack != "none")
        for seed in (40, 41, 42)
    ]
    assert float(lines["shorter-half"]["worst"]) == pytest.approx(np.mean(worst), abs=1e-4)
    assert float(lines["shorter-half"]["rank"]) >= 1
    assert {row.package for row in rows} == {"shorter-half 1.2"}


@dataclass(frozen=True)
class Forgetful(Aggregator):
    """Take the first update."""

    def aggregate(self, round_, rng):
        return round_.updates[0]


COUNT = itertools.count()


@dataclass(frozen=True)
class Unrepeatable(Aggregator):
    """Add a number that is different in every call."""

    def aggregate(self, round_, rng):
        return round_.updates[0] + next(COUNT)


@dataclass(frozen=True)
class Grabbing(Aggregator):
    """Change the updates."""

    def aggregate(self, round_, rng):
        round_.updates[:] = 0.0
        return round_.updates[0]


@dataclass(frozen=True)
class Empty(Aggregator):
    """Make a model that is no model."""

    def aggregate(self, round_, rng):
        return round_.updates[0] * np.nan


@pytest.fixture
def _registered(monkeypatch, _forgotten):
    """Registers the aggregators above, as a package with entry points would."""
    classes = (Forgetful, Unrepeatable, Grabbing, Empty)
    entries = [
        metadata.EntryPoint(cls.__name__.lower(), f"bad:{cls.__name__}", "flanders.aggregators") for cls in classes
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == "flanders.aggregators" else [])
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: globals()[self.attr])


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("forgetful", "depends on the order of the clients"),
        ("unrepeatable", "makes different models from the same updates"),
        ("grabbing", "changes the updates that it is given"),
        ("empty", "makes no model from finite, honest updates"),
    ],
)
def test_a_defence_that_breaks_the_rules_is_refused(name, problem):
    with pytest.raises(InputError, match=problem):
        list(check_entrant(Entrant("mine", False, {"aggregator": name})))


def test_the_defences_of_this_package_pass_their_own_check():
    for name in ("guard", "bucketing-median"):
        (entrant,) = [each for each in own_entrants() if each.name == name]
        *_, last = check_entrant(entrant)
        assert "363 runs on digits will take about" in last


def test_defences_of_this_package_are_of_this_package():
    assert {found.split()[0] for found in packages_of(own_entrants()).values()} == {"flanders-fl"}


def test_rows_that_do_not_repeat_are_refused(tmp_path):
    file = SOURCE / "flanders" / "leaderboard" / "rows" / "digits.csv"
    rows = [row for row in read_rows(file) if row.cell.defence == "fedavg"]
    honest = list(check_submitted_rows(file, rows, own_entrants(), again=1))
    assert honest[1].startswith(f"{file}: 1 of its runs")
    with pytest.raises(InputError, match=r"says that the accuracy of fedavg in .* Here it is 0\.\d+"):
        list(check_submitted_rows(file, [replace(row, accuracy=0.999) for row in rows], own_entrants(), again=1))
    with pytest.raises(InputError, match="has rows of 'fedavg', which the file of defences does not have"):
        list(check_submitted_rows(file, rows, own_entrants()[1:]))
