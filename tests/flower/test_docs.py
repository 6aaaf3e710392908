"""Every block of code in the guide to Flower runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from flanders.cli import main
from flanders.flower.identity import Asked
from flanders.flower.recording import RoundReport, Verdict
from flanders.record import Fate
from flower.federation import app, grid_of, model

GUIDE = Path(__file__).parents[2] / "docs" / "flower.md"


@pytest.fixture
def namespace(tmp_path, monkeypatch):
    """What the guide's reader has: a grid, a model, and a way to test it."""
    monkeypatch.chdir(tmp_path)
    start = model((6, 7), (7,))
    return {
        "grid": grid_of(8),
        "initial_arrays": start,
        "make_model": lambda: dict(start.items()),
        "evaluate": lambda number, arrays: app.MetricRecord({"accuracy": 0.5, "loss": 1.0}),
    }


def test_every_block_runs_as_it_stands(namespace, tmp_path, capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}, block {number + 1}", "exec"), namespace)
    context = app.Context(1, 1, {}, app.RecordDict(), {})
    namespace["app"](namespace["grid"], context)  # the ServerApp of the first block
    assert len(namespace["result"].train_metrics_clientapp) == 6
    assert namespace["sketched"].start(grid_of(8), namespace["initial_arrays"], num_rounds=2).arrays
    assert (tmp_path / "state" / "flanders.npz").exists()
    capsys.readouterr()
    assert main(["show", "results.sqlite"]) == 0
    assert capsys.readouterr().out.count("live federation") == 0
    assert main(["report", "results.sqlite"]) == 0


def test_the_guides_line_of_the_log_is_what_is_logged() -> None:
    why = "3.1 times its usual length (30.5 sd), not its own fingerprint (9.2 sd)"
    verdicts = [Verdict(Asked("", node, "", None), Fate.KEPT) for node in range(6)]
    verdicts += [
        Verdict(Asked("", 8412, "", None), Fate.DROPPED, why, 30.5, 1.0),
        Verdict(Asked("", 3390, "", None), Fate.REFUSED, "array 'fc.weight' is not finite"),
        Verdict(Asked("", 5507, "", None), Fate.BANNED, "until round 9"),
    ]
    assert f"    flanders: {RoundReport(7, tuple(verdicts)).line()}\n" in GUIDE.read_text()


def test_the_guide_names_the_metrics_that_there_are(namespace) -> None:
    from flwr.serverapp.strategy import FedAvg

    from flanders import Flanders
    from flanders.flower import FilteredStrategy

    strategy = FilteredStrategy(FedAvg(), Flanders(keep=0.8))
    result = strategy.start(namespace["grid"], namespace["initial_arrays"], num_rounds=2)
    text = GUIDE.read_text()
    for name in result.train_metrics_clientapp[2]:
        if name.startswith("flanders-"):
            assert name in text or f"`{name.removeprefix('flanders')}`" in text, name
    assert np.isfinite(result.train_metrics_clientapp[2]["flanders-threshold"])
