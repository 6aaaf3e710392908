"""The option `--where`: what it says if it can choose no run."""

from __future__ import annotations

import pytest

from flanders.checks import InputError
from flanders.cli import main
from flanders.report.where import selected
from flanders.results.store import Store


@pytest.mark.parametrize("where", ["foo=1", "attack=lie"])
def test_a_condition_on_a_file_without_runs_is_answered_in_one_sentence(where, tmp_path, capsys):
    path = tmp_path / "empty.sqlite"
    Store(path).close()
    assert main(["plot", str(path), "--out", str(tmp_path / "figures"), "--where", where]) == 2
    said = f"--where {where} finds nothing, since this file has no runs: name a file with runs.\n"
    assert capsys.readouterr().err.endswith(said)
    assert not (tmp_path / "figures").exists()


def test_a_key_of_which_no_run_has_a_value_is_told():
    message = r"--where r=0.2 leaves no run, since no run in this file has a value of r: name another key\.$"
    with pytest.raises(InputError, match=message):
        selected([{"live": "a federation", "filter": {"name": "guard"}}], ["r=0.2"])
