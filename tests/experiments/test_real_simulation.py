"""The runner with the real simulator: the same promises, with training in them."""

from __future__ import annotations

import random
import signal
import sqlite3
import time

import pytest
import torch

from experiments.conftest import command, decisions, finish
from flanders.experiments.engine import Datasets, start, versions
from flanders.experiments.experiment import Experiment
from flanders.experiments.runner import work
from flanders.experiments.spec import parse_spec, read_specs
from flanders.results.schema import ResultsError
from flanders.results.store import Store
from flanders.results.summary import read_summaries
from flanders.simulation import Federation, Setting, Simulation, summary

MAIN = ("-m", "flanders")
SPEC = """
[federation]
num_clients = 20
clients_per_round = 18
rounds = 4
[threat]
attack = "agr-min-max"
fraction = 0.4
start = 2
[filter]
name = [{ name = "flanders", keep = "m-b" }, "fldetector"]
[aggregator]
name = "geometric-median"
preaggregators = "bucketing"
[fallback]
name = "median"
[run]
device = "cpu"
"""


@pytest.fixture
def uninterrupted(spec, tmp_path):
    spec.write_text(SPEC)
    path = tmp_path / "uninterrupted.sqlite"
    with Store(path) as store:
        ids = store.add([run.spec for run in read_specs([spec])], versions())
    work(path, ids, Datasets(), lambda event: None, lambda: False)
    assert {s.status for s in read_summaries(path)} == {"done"}
    return decisions(path)


def rounds_saved(path):
    try:
        return sum(s.rounds for s in read_summaries(path))
    except ResultsError:  # not there yet
        return -1


def test_a_training_that_is_killed_ends_with_the_same_bytes_though_other_threads_resume_it(
    uninterrupted, spec, results
):
    process = command("run", spec, "--out", results, script=MAIN)
    deadline = time.monotonic() + 300
    while rounds_saved(results) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    code, _, err = finish(process)
    assert code in (0, -signal.SIGKILL), err
    assert rounds_saved(results) >= 2
    with Store(results) as store:
        ids = [run.id for run, status in store.unfinished() if status == "running"]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        work(results, ids, Datasets(), lambda event: None, lambda: False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    with Store(results) as store:
        ids = [run.id for run, _ in store.unfinished()]
    work(results, ids, Datasets(), lambda event: None, lambda: False)
    assert decisions(results) == uninterrupted


@pytest.mark.slow
def test_a_training_that_is_killed_many_times_ends_with_the_same_bytes(uninterrupted, spec, results):
    rng, killed = random.Random(0), 0
    for _ in range(40):
        process = command("run", spec, "--out", results, script=MAIN)
        time.sleep(rng.uniform(0.5, 6.0))
        process.kill()
        killed += finish(process)[0] == -signal.SIGKILL
    assert killed > 2
    assert finish(command("resume", results, script=MAIN))[0] == 0
    assert decisions(results) == uninterrupted


def test_what_is_stored_is_what_the_simulator_measures(tmp_path):
    text = {
        "federation": {"num_clients": 6, "rounds": 3},
        "threat": {"attack": "gauss", "data_poison": "backdoor", "fraction": 0.5},
        "filter": {"name": "distance-to-global", "keep": "m-b"},
        "run": {"device": "cpu"},
    }
    (run,) = parse_spec(text)
    records = list(Simulation(run.setting).run())
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        ids = store.add([run.spec], versions())
    work(path, ids, Datasets(), lambda event: None, lambda: False)
    (found,), expected = read_summaries(path), summary(records)
    assert (found.best, found.final) == (expected["best_accuracy"], expected["final_accuracy"])
    assert (found.precision, found.recall) == (expected["precision"], expected["recall"])
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT accuracy, loss, attack_success, threshold FROM round ORDER BY number"
    ).fetchall()
    connection.close()
    assert rows == [(r.accuracy, r.loss, r.attack_success, r.threshold) for r in records]


@pytest.mark.parametrize("poison", ["label-flip", "backdoor", "dba"])
def test_poisons_of_data_can_be_named(poison):
    (run,) = parse_spec({"threat": {"data_poison": poison, "fraction": 0.2}, "run": {"device": "cpu"}})
    assert run.setting.threat.attack is None
    assert run.setting.num_malicious == 20


def test_defaults_of_a_spec_are_those_of_a_setting():
    (run,) = parse_spec({})
    assert run.setting == Setting(federation=Federation(clients_per_round=100))
    assert run.id == Experiment(Setting()).id


def test_a_dataset_in_memory_is_shared_by_simulations():
    datasets = Datasets()
    first, second = parse_spec({"federation": {"seed": [0, 1], "num_clients": 3}, "run": {"device": "cpu"}})
    assert datasets.of(first) is datasets.of(second)
    assert start(first, datasets).round_number == 0
