from __future__ import annotations

import pytest

from benchmarks import training


def test_every_model_is_measured_on_a_cpu(capsys):
    assert training.main(["--device", "cpu", "--models", "cnn6", "--clients", "2", "--examples", "40"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["model", "way"]
    assert row.startswith("cnn6")
    assert row.split()[-2:] == ["True", "0.0e+00"]


def test_an_unknown_model_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        training.main(["--models", "cnn5"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "argument --models: invalid choice: 'cnn5'" in said
    assert "mobilenet" in said
