"""The example with low-rank adapters of a transformer, in this process."""

from __future__ import annotations

import importlib
import tomllib

import pytest
import torch

from flower.clients import nodes_running
from flower.deployment import APP
from flower.federation import LocalGrid, app

LORA = APP.parent / "lora-app"
CONFIG = tomllib.loads((LORA / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


@pytest.fixture
def run_app(monkeypatch, flower_log):
    """Run the app with changes to its config; return the accuracy after each round, and what was dropped."""
    monkeypatch.syspath_prepend(str(LORA))

    def run(**changes):
        config = CONFIG | {name.replace("_", "-"): value for name, value in changes.items()}
        server = importlib.import_module("poisoned_adapters.server_app")
        client = importlib.import_module("poisoned_adapters.client_app")
        accuracy, evaluate = {}, server.evaluate

        def spy(number, arrays, name):
            metrics = evaluate(number, arrays, name)
            accuracy.setdefault(number, metrics["accuracy"])
            return metrics

        nodes = nodes_running(client.app, config["min-nodes"], config)
        flower_log.clear()
        with monkeypatch.context() as patch:
            patch.setattr(server, "evaluate", spy)
            server.app(LocalGrid(nodes), app.Context(0, 0, {}, app.RecordDict(), config))
        lines = [r.getMessage() for r in flower_log.records if r.getMessage().startswith("flanders: round")]
        return list(map(str, nodes)), accuracy, lines

    return run


def test_only_adapters_are_sent_and_the_attackers_are_dropped(run_app) -> None:
    nodes, _, lines = run_app(num_server_rounds=2, reviews=60, local_epochs=1)
    assert len(lines) == 2
    for line in lines:
        assert "kept 7 of 10 replies" in line
        assert all(f"{node} [" in line for node in nodes[:3])


def test_the_frozen_part_is_the_same_everywhere_and_is_not_sent(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(LORA))
    task = importlib.import_module("poisoned_adapters.task")
    first, second = task.make_model(), task.make_model()
    sent = task.adapters(first)
    assert sum(value.numel() for value in sent.values()) == 16_514
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not [name for name in sent if "frozen" in name or "norm" in name]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT still calls what transformers 5 renames
def test_the_adapters_of_peft_go_the_same_way(run_app, monkeypatch) -> None:
    pytest.importorskip("peft", reason="PEFT is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.syspath_prepend(str(LORA))
    task = importlib.import_module("poisoned_adapters.task")
    sent = task.adapters(task.make_model("peft"))
    assert sum(value.numel() for value in sent.values()) == 1_032_770
    nodes, _, lines = run_app(model="peft", num_server_rounds=1, reviews=20, local_epochs=1)
    assert all(f"{node} [" in line for node in nodes[:3] for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_filter_saves_the_adapters(run_app, seed) -> None:
    _, protected, _ = run_app(seed=seed)
    _, bare, _ = run_app(seed=seed, protected=False)
    print(f"seed {seed}: protected {protected[10]:.3f}, bare {bare[10]:.3f}")
    assert protected[10] > 0.9 > 0.75 > bare[10]
