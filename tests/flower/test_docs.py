"""Every block of code in the guide to Flower runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from flanders.cli import main
from flanders.hosts.round_line import line_of
from flanders.record import ClientRecord, Fate, RoundRecord
from flower.federation import app, grid_of, model
from pages import run_page

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "flower.md"


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


@pytest.mark.parametrize("page", ["docs/tutorials/flower.md", "examples/flower-app/README.md"])
def test_a_page_runs_from_top_to_bottom(page, namespace):
    run_page(ROOT / page, namespace)
    if "app" in namespace:  # the ServerApp
        namespace["app"](namespace["grid"], app.Context(1, 1, {}, app.RecordDict(), {}))
        assert main(["show", "results.sqlite"]) == 0
    assert namespace["strategy"].start(grid_of(8), namespace["initial_arrays"], num_rounds=2).arrays


def test_every_block_runs_as_it_stands(namespace, tmp_path, capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}, block {number + 1}", "exec"), namespace)
    context = app.Context(1, 1, {}, app.RecordDict(), {})
    namespace["app"](namespace["grid"], context)  # the ServerApp of the first block
    assert len(namespace["result"].train_metrics_clientapp) == 6
    for name in ("robust", "alone", "sketched"):
        assert namespace[name].start(grid_of(8), namespace["initial_arrays"], num_rounds=3).arrays, name
    assert (tmp_path / "state" / "flanders.npz").exists()
    capsys.readouterr()
    assert main(["show", "results.sqlite"]) == 0
    assert capsys.readouterr().out.count("live federation") == 0
    assert main(["report", "results.sqlite"]) == 0


def test_every_block_about_the_audit_trail_runs_as_it_stands(namespace, tmp_path) -> None:
    for block in re.findall(r"```python\n(.*?)```", (GUIDE.parent / "audit.md").read_text(), re.DOTALL):
        exec(compile(block, "audit.md", "exec"), namespace)
        namespace["strategy"].start(namespace["grid"], namespace["initial_arrays"], num_rounds=2)
    assert main(["audit", "verify", "audit.jsonl", "--state", "state"]) == 0


def test_the_guides_line_of_the_log_is_what_is_logged() -> None:
    why = "3.1 times its usual length (30.5 sd), not its own fingerprint (9.2 sd)"
    clients = [ClientRecord(node, Fate.KEPT) for node in range(6)]
    clients += [
        ClientRecord(8412, Fate.DROPPED, 30.5, 1.0, why),
        ClientRecord(3390, Fate.REFUSED, reason="array 'fc.weight' is not finite"),
        ClientRecord(5507, Fate.BANNED, reason="until round 9"),
    ]
    assert f"\nflanders: {line_of(RoundRecord(7, tuple(clients)))}\n" in GUIDE.read_text()


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
