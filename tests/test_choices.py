from __future__ import annotations

from importlib import metadata

import pytest

from flanders import ATTACKS, InputError, choices
from flanders.cli import main
from flanders.experiments.spec import parse_spec

OWN = """
from dataclasses import dataclass, field
from flanders.attacks import Attack

@dataclass(frozen=True)
class Boost(Attack):
    \"\"\"Send more of the same.\"\"\"

    factor: float = 10.0

    def craft(self, view, rng):
        return view.global_model + self.factor * (view.own - view.global_model)

number = 3

def fail():
    raise OSError("no \\x1b[2J such place")

@dataclass
class Failing:
    place: str = field(default_factory=fail)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a module with an attack under these names, as a package with entry points would."""
    (tmp_path / "my_attacks.py").write_text(OWN)
    (tmp_path / "my_broken.py").write_text("1 / 0")
    (tmp_path / "my_exit.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    choices.installed.cache_clear()

    def register(**names):
        entries = [metadata.EntryPoint(name, value, "flanders.attacks") for name, value in names.items()]
        monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == "flanders.attacks" else [])

    yield register
    choices.installed.cache_clear()


def test_an_attack_of_another_package_is_listed_and_runs_from_a_spec(install, tmp_path, capsys):
    install(boost="my_attacks:Boost")
    assert list(choices.registry("attacks")) == [*ATTACKS, "boost"]
    assert main(["list", "attacks"]) == 0
    assert "Send more of the same." in capsys.readouterr().out
    threat = {"attack": {"name": "boost", "factor": 3}, "fraction": 0.2}
    (run,) = parse_spec({"threat": threat, "federation": {"num_clients": 5, "rounds": 1}})
    assert run.canonical["threat"]["attack"] == {"name": "boost", "factor": 3.0}
    assert type(run.setting.threat.attack).__name__ == "Boost"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"lie": "my_attacks:Boost"}, "'lie' is already one of flanders' own attacks"),
        ({"boost": "my_attacks:Bost"}, "'boost', installed as my_attacks:Bost, cannot be loaded"),
        ({"boost": "my_attack:Boost"}, "'boost', installed as my_attack:Boost, cannot be loaded (ModuleNotFound"),
        ({"boost": "my_attacks:number"}, "must be a dataclass"),
        ({"boost": "my_broken:Boost"}, "cannot be loaded (ZeroDivisionError"),
        ({"boost": "my_exit:Boost"}, "cannot be loaded (SystemExit"),
        ({"boost": "my_attacks:Failing"}, "cannot be loaded (OSError: no \ufffd[2J such place"),
    ],
)
def test_a_broken_entry_of_another_package_is_skipped_named_and_stops_no_command(install, names, problem, capsys):
    install(**names, fine="my_attacks:Boost")
    assert [*choices.registry("attacks")] == [*ATTACKS, "fine"]
    assert main(["list", "attacks"]) == 0
    out = capsys.readouterr().out
    assert "Skipped entries of other packages:" in out
    assert problem in out
    assert parse_spec({"threat": {"attack": "fine", "fraction": 0.2}})


def test_a_spec_that_names_a_broken_entry_is_told_why(install):
    install(boost="my_attack:Boost")
    with pytest.raises(InputError, match=r"no attack named 'boost': 'boost', installed as my_attack:Boost, cannot"):
        parse_spec({"threat": {"attack": "boost", "fraction": 0.2}})
