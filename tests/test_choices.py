from __future__ import annotations

from importlib import metadata

import pytest

from flanders import ATTACKS, InputError, choices
from flanders.cli import main
from flanders.experiments.spec import parse_spec

OWN = """
from dataclasses import dataclass
from flanders.attacks import Attack

@dataclass(frozen=True)
class Boost(Attack):
    \"\"\"Send more of the same.\"\"\"

    factor: float = 10.0

    def craft(self, view, rng):
        return view.global_model + self.factor * (view.own - view.global_model)

number = 3
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a module with an attack under these names, as a package with entry points would."""
    (tmp_path / "my_attacks.py").write_text(OWN)
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
        ({"boost": "my_attack:Boost"}, "'boost', installed as my_attack:Boost, cannot be loaded: No module"),
        ({"boost": "my_attacks:number"}, "must be a dataclass"),
    ],
)
def test_what_is_wrong_with_an_installed_attack_is_told(install, names, problem):
    install(**names)
    with pytest.raises(InputError, match=problem):
        choices.registry("attacks")
