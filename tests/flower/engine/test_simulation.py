"""`flanders run --engine flower`: the simulator's rounds with clients on Flower."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sqlite3
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from experiments.conftest import command, finish
from flanders.aggregators import Bucketing, CenteredClipping, Median, MultiKrum
from flanders.attacks import AgrMinMax, Gauss, Lie, OnOff, SignFlip
from flanders.checks import InputError
from flanders.cli import main
from flanders.experiments.spec import parse_spec
from flanders.filters import Flanders, FLDetector, Guard, Oracle
from flanders.flower.engine import FlowerSimulation
from flanders.flower.engine.runtime import SWITCHES, Link, stop_reports
from flanders.models import BatchNorm2d, ModelSpec, SmallCnn
from flanders.results.spec_keys import FLOWER, SIMULATOR
from flanders.results.summary import read_summaries
from flanders.simulation import A3fl, Backdoor, LabelFlip, Simulation
from flower.clients import nodes_running
from flower.federation import LocalGrid
from peers import flower
from settings import changed, make_setting

MAIN = ("-m", "flanders")
SPEC = """
[federation]
num_clients = 6
rounds = {rounds}
[threat]
attack = "agr-min-max"
fraction = 0.3
start = 2
[run]
device = "cpu"
chunk = 1
"""


def test_a_poison_that_learns_is_refused_before_anything_starts():
    setting = make_setting(num_clients=4, rounds=1, data_poison=A3fl(), fraction=0.5)
    with pytest.raises(InputError, match=r"A3fl.* learns in every round, .*--engine simulator"):
        FlowerSimulation(setting)


class Backwards(LocalGrid):
    """Replies come in the reverse of the order they were asked for in."""

    def pull_messages(self, message_ids):
        return super().pull_messages(reversed(list(message_ids)))


@pytest.fixture
def runtime():
    """A runtime without Ray; partitions that are put into `runtime.broken` fail from then on."""
    broken = set()

    @contextlib.contextmanager
    def start(client_app, num_nodes, gpus):
        start.times += 1
        yield Link(Backwards(nodes_running(client_app, num_nodes, broken=broken)), lambda: None)

    start.broken, start.times = broken, 0
    return start


def same_decisions(a, b, rtol=0.0):
    assert [r.number for r in a] == [r.number for r in b]
    for ours, theirs in zip(a, b, strict=True):
        for name in ("accuracy", "loss", "attack_success", "ids", "kept", "malicious", "note"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
        assert [c.fate for c in ours.clients] == [c.fate for c in theirs.clients]
        for name in ("scores", "probabilities", "threshold"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol, 0.0, err_msg=name)


@dataclass(frozen=True)
class Normed(ModelSpec):
    """A model with buffers."""

    def make(self, input_shape, num_classes):
        layers = (
            nn.Conv2d(input_shape[0], 4, 3),
            BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(num_classes),
        )
        module = nn.Sequential(*layers)
        module(torch.zeros(2, *input_shape))  # settles the size of the last layer
        return module


SETTINGS = {
    "an omniscient attack on a third of the clients": make_setting(
        num_clients=9,
        clients_per_round=7,
        rounds=4,
        attack=AgrMinMax(),
        fraction=0.3,
        start=2,
        filter=Flanders(keep=5),
        fallback=Median(),
    ),
    "a blind attack and a filter with gradients": make_setting(
        num_clients=6, rounds=3, attack=Lie(), fraction=0.4, omniscient=False, filter=FLDetector()
    ),
    "poisoned data": make_setting(
        num_clients=5, rounds=2, data_poison=LabelFlip(), fraction=0.4, rotating=False, attack=Gauss(0.1)
    ),
    "a backdoor in a convolutional model": make_setting(
        num_clients=4, rounds=2, data_poison=Backdoor(), fraction=0.5, model=SmallCnn(), start=2
    ),
    "batch normalisation": make_setting(num_clients=4, rounds=2, model=Normed()),
    "an informed aggregator and an oracle": make_setting(
        num_clients=8,
        rounds=3,
        attack=Gauss(),
        fraction=0.25,
        filter=Oracle(),
        aggregator=MultiKrum(1),
        informed=True,
    ),
    "the default filter and clients with new names": make_setting(
        num_clients=8,
        rounds=4,
        attack=Gauss(),
        fraction=0.25,
        start=3,
        filter=Guard(),
        sybils=True,
        aggregator=Bucketing(2) | Median(),
    ),
    "an attack that rests": make_setting(
        num_clients=6,
        rounds=3,
        attack=OnOff(on=1, off=1, base=SignFlip()),
        fraction=0.3,
        sybils=True,
        aggregator=CenteredClipping(),
    ),
}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_decisions_are_those_of_the_simulator_bit_for_bit(name, runtime):
    setting = changed(SETTINGS[name], device="cpu", chunk=1)
    simulated, on_flower = Simulation(setting), FlowerSimulation(setting, runtime=runtime)
    # FLDetector adds float32 vectors up in the library that it is given, PyTorch there and NumPy here.
    rtol = 1e-5 if isinstance(setting.filter, FLDetector) else 0.0
    same_decisions(list(simulated.run()), list(on_flower.run()), rtol)
    assert torch.equal(simulated.model, on_flower.model)
    assert all(torch.equal(b, on_flower.buffers[name]) for name, b in simulated.buffers.items())


def test_clients_trained_one_by_one_differ_from_those_trained_together_by_rounding_alone(runtime):
    setting = make_setting(num_clients=8, rounds=3, device="cpu")
    simulated, on_flower = Simulation(setting), FlowerSimulation(setting, runtime=runtime)
    list(simulated.run()), list(on_flower.run())
    torch.testing.assert_close(simulated.model, on_flower.model, rtol=0, atol=1e-6)


def test_a_run_goes_on_from_a_saved_state_on_new_nodes(runtime):
    setting = changed(next(iter(SETTINGS.values())), device="cpu", chunk=1)
    whole = list(Simulation(setting).run())
    first = FlowerSimulation(setting, runtime=runtime)
    with contextlib.closing(first.run()) as rounds:
        begun = [next(rounds), next(rounds)]
    second = FlowerSimulation(setting, runtime=runtime)
    second.load_state_dict(first.state_dict())
    same_decisions([*begun, *second.run()], whole)
    assert runtime.times == 2


def test_a_node_that_fails_fails_the_run_with_its_reason(runtime):
    simulation = FlowerSimulation(make_setting(num_clients=4, rounds=3, device="cpu"), runtime=runtime)
    rounds = simulation.run()
    next(rounds)
    runtime.broken.add(2)
    with pytest.raises(RuntimeError, match="failed: out of memory"):
        next(rounds)


def test_a_round_outside_of_run_is_refused():
    with pytest.raises(InputError, match=r"carried out by `run\(\)`"):
        FlowerSimulation(make_setting(num_clients=2, rounds=1, device="cpu")).step()


def test_a_runtime_that_dies_ends_the_run_instead_of_hanging(runtime):
    @contextlib.contextmanager
    def dying(client_app, num_nodes, gpus):
        with runtime(client_app, num_nodes, gpus) as link:
            link.grid.pull_messages = lambda ids: []

            def check():
                raise RuntimeError("Flower's simulation runtime ended")

            yield Link(link.grid, check)

    with pytest.raises(RuntimeError, match="runtime ended"):
        list(FlowerSimulation(make_setting(num_clients=2, rounds=1, device="cpu"), runtime=dying).run())


def test_flower_and_ray_report_nothing_unless_the_user_wants_them_to(monkeypatch):
    telemetry = flower("supercore.telemetry")
    monkeypatch.setattr(telemetry, "FLWR_TELEMETRY_ENABLED", "1")
    for name in SWITCHES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    stop_reports()
    assert telemetry.FLWR_TELEMETRY_ENABLED == "0"
    assert all(os.environ[name] == value for name, value in SWITCHES.items())
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    stop_reports()
    assert telemetry.FLWR_TELEMETRY_ENABLED == "1"


def test_an_aggregator_that_fails_fails_the_run_as_it_does_in_the_simulator(runtime):
    setting = make_setting(num_clients=4, rounds=2, aggregator=MultiKrum(3), device="cpu")
    for simulation in (Simulation(setting), FlowerSimulation(setting, runtime=runtime)):
        with pytest.raises(InputError, match="needs more than"):
            list(simulation.run())


def test_a_state_of_the_simulator_is_refused(runtime):
    setting = make_setting(num_clients=2, rounds=2, device="cpu")
    with pytest.raises(InputError, match=r"This state does not fit this simulation. .* Format 'flower-1'"):
        FlowerSimulation(setting, runtime=runtime).load_state_dict(Simulation(setting).state_dict())


def test_a_run_on_flower_has_an_id_of_its_own_and_the_simulators_stays():
    (run,) = parse_spec({"federation": {"rounds": 3}})
    on_flower = run.spec.on(FLOWER)
    assert (run.engine, on_flower.engine) == (SIMULATOR, FLOWER)
    assert "engine" not in run.canonical
    assert on_flower.id != run.id
    assert on_flower.on(SIMULATOR) == run.spec.on(SIMULATOR) == run.spec


def test_without_flower_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    (tmp_path / "spec.toml").write_text(SPEC.format(rounds=2))

    for name in [name for name in sys.modules if name.startswith("flanders.flower")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert (
        main(["run", str(tmp_path / "spec.toml"), "--engine", "flower", "--out", str(tmp_path / "r.sqlite")]) == 2
    )
    assert "pip install 'flanders-fl[flower-sim]'" in capsys.readouterr().err
    assert not (tmp_path / "r.sqlite").exists()


def test_without_ray_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    (tmp_path / "spec.toml").write_text(SPEC.format(rounds=2))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest)
    )
    assert (
        main(["run", str(tmp_path / "spec.toml"), "--engine", "flower", "--out", str(tmp_path / "r.sqlite")]) == 2
    )
    assert "needs Ray" in capsys.readouterr().err
    assert not (tmp_path / "r.sqlite").exists()


def test_runs_on_flower_are_not_shared_among_processes(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC.format(rounds=2))
    results = str(tmp_path / "r.sqlite")
    assert main(["run", str(tmp_path / "spec.toml"), "--engine", "flower", "--jobs", "2", "--out", results]) == 2
    assert "Omit the option" in capsys.readouterr().err


def on_both_engines(path):
    """Return the rounds and clients of the runs on the simulator and on Flower, in this order."""
    connection = sqlite3.connect(path)
    try:
        engines = {"engine" in spec: run for run, spec in connection.execute("SELECT id, spec FROM run")}
        queries = (
            "SELECT number, accuracy, loss, threshold, note FROM round WHERE run = ? ORDER BY number",
            "SELECT round, client, malicious, fate, score FROM client WHERE run = ? ORDER BY round, client",
        )
        return [[connection.execute(query, (engines[e],)).fetchall() for query in queries] for e in (False, True)]
    finally:
        connection.close()


@pytest.fixture
def offline(monkeypatch):
    for name, value in SWITCHES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def on_ray(offline, tmp_path):
    """Runs the command on both engines; returns what came of them."""
    spec, results = tmp_path / "spec.toml", tmp_path / "results.sqlite"

    def compare(rounds, first):
        spec.write_text(SPEC.format(rounds=rounds))
        first(spec, results)
        assert finish(command("run", spec, "--out", results, script=MAIN))[0] == 0
        simulated, on_flower = on_both_engines(results)
        assert len(simulated[0]) == rounds
        return simulated, on_flower

    return compare


def test_a_spec_on_ray_ends_with_the_simulators_bytes_and_flower_is_quiet(on_ray, capsys):
    def run(spec, results):
        code, out, err = finish(command("run", spec, "--engine", "flower", "--out", results, script=MAIN))
        assert code == 0, err
        (line,) = err.splitlines()  # how the run ended
        assert ": done, accuracy" in line
        assert len(out.splitlines()) == 3  # the table, and where the results are
        assert main(["show", str(results), read_summaries(results)[0].id]) == 0
        assert '"engine": "flower"' in capsys.readouterr().out

    simulated, on_flower = on_ray(3, run)
    assert simulated == on_flower


@pytest.mark.slow
def test_a_run_on_ray_that_is_killed_and_resumed_ends_with_the_simulators_bytes(on_ray):
    def run(spec, results):
        process = command("run", spec, "--engine", "flower", "--out", results, script=MAIN)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(InputError):
                if any(s.rounds >= 2 for s in read_summaries(results)):
                    break
            time.sleep(0.02)
        process.kill()
        code, _, err = finish(process)
        assert code == -signal.SIGKILL, err
        code, _, err = finish(command("resume", results, script=MAIN))
        assert code == 0, err
        assert "continues after round" in err

    simulated, on_flower = on_ray(40, run)
    assert simulated == on_flower
