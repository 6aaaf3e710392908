"""The example app: in this process, and with `flwr run` on Flower's simulation runtime."""

from __future__ import annotations

import importlib
import sqlite3
import tomllib

import pytest

from flanders.aggregators import Median
from flanders.attacks import Gauss
from flanders.data import Digits, Dirichlet
from flanders.filters import Fingerprint
from flanders.models import Mlp2
from flanders.simulation import Simulation, Training
from flower.clients import nodes_running
from flower.deployment import APP, SimulationRuntime
from flower.federation import LocalGrid, app
from settings import make_setting

CONFIG = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def kept_by_round(results):
    """Return, for each round, the clients that were kept and those that were not."""
    connection = sqlite3.connect(results)
    try:
        query = "SELECT round, client, fate = 'kept' FROM client ORDER BY round, client"
        rows = connection.execute(query).fetchall()
    finally:
        connection.close()
    return {
        number: tuple({str(c) for n, c, k in rows if n == number and k == kept} for kept in (1, 0))
        for number in sorted({row[0] for row in rows})
    }


@pytest.fixture
def run_app(monkeypatch, tmp_path):
    """Run the app with changes to its config; return its nodes, and the accuracy after each round."""
    monkeypatch.syspath_prepend(str(APP))

    def run(**changes):
        config = CONFIG | {name.replace("_", "-"): value for name, value in changes.items()}
        server = importlib.import_module("shielded_digits.server_app")
        client = importlib.import_module("shielded_digits.client_app")
        accuracy, evaluate = {}, server.evaluate

        def spy(number, arrays):
            metrics = evaluate(number, arrays)
            accuracy[number] = metrics["accuracy"]
            return metrics

        nodes = nodes_running(client.app, config["min-nodes"], config)
        with monkeypatch.context() as patch:
            patch.setattr(server, "evaluate", spy)
            server.app(LocalGrid(nodes), app.Context(0, 0, {}, app.RecordDict(), config))
        return list(map(str, nodes)), accuracy

    return run


def test_the_poisoned_clients_are_dropped_and_the_protected_model_learns(run_app, tmp_path):
    results = tmp_path / "results.sqlite"
    nodes, protected = run_app(results=str(results))
    kept = kept_by_round(results)
    assert list(kept) == list(range(1, 11))
    assert all(kept[number] == (set(nodes[3:]), set(nodes[:3])) for number in range(1, 11))
    assert protected[10] > 0.85


def test_the_protected_run_gains_what_the_simulator_predicts(run_app):
    def simulated(**defence):
        accuracies = []
        for seed in range(3):
            setting = make_setting(
                dataset=Digits(),
                partition=Dirichlet(CONFIG["alpha"]),
                model=Mlp2(hidden=64),
                training=Training(
                    learning_rate=CONFIG["learning-rate"],
                    batch_size=CONFIG["batch-size"],
                    epochs=CONFIG["local-epochs"],
                ),
                num_clients=CONFIG["min-nodes"],
                rounds=CONFIG["num-server-rounds"],
                attack=Gauss(),
                fraction=CONFIG["malicious-fraction"],
                rotating=False,
                seed=seed,
                device="cpu",
                **defence,
            )
            accuracies.append(list(Simulation(setting).run())[-1].accuracy)
        return sum(accuracies) / 3

    predicted = simulated(filter=Fingerprint(), fallback=Median()) - simulated()
    gained = run_app()[1][10] - run_app(protected=False)[1][10]
    assert gained == pytest.approx(predicted, abs=0.15)


def test_a_server_that_starts_again_goes_on_after_the_last_round(run_app, tmp_path):
    state = str(tmp_path / "state")
    _, first = run_app(state_dir=state, num_server_rounds=2)
    _, second = run_app(state_dir=state, num_server_rounds=4)
    assert list(second) == [2, 3, 4]
    assert second[2] == first[2]


def test_without_attackers_plain_averaging_learns(run_app):
    _, accuracy = run_app(malicious_fraction=0.0, protected=False)
    assert accuracy[10] > 0.85


@pytest.mark.slow
def test_flwr_run_in_simulation_drops_the_poisoned_clients(tmp_path):
    results = tmp_path / "results.sqlite"
    runtime = SimulationRuntime(tmp_path / "flower")
    try:
        protected = runtime.run(results=str(results))
        protected.finish(400)
        bare = runtime.run(protected=False)
        bare.finish(400)
    finally:
        runtime.stop()
    kept = kept_by_round(results)
    attackers = kept[1][1]
    assert len(attackers) == 3
    assert all(kept[number][1] == attackers for number in range(1, 11))
    assert protected.accuracy > 0.85
    assert bare.accuracy < 0.4
