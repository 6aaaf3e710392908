"""A SuperLink and three SuperNodes on this machine, one of them malicious, set up by the example scripts."""

from __future__ import annotations

import os
import signal
import sqlite3

import pytest

from flower.deployment import Federation, is_running, wait_for

pytestmark = pytest.mark.slow

CONFIG = {"min_nodes": 2, "malicious_fraction": 0.3}  # node 0 attacks
PATIENCE = 300
"""Seconds for what takes less than a minute on an idle machine."""


@pytest.fixture(params=["insecure", "secure"])
def federation(request, tmp_path):
    found = Federation(tmp_path / "federation", secure=request.param == "secure")
    try:
        if request.param == "secure":
            found.script("certificates.sh")
            found.script("keys.sh", 3)
        found.script("superlink.sh", *found.flag)
        if request.param == "secure":
            found.script("register.sh")
        yield found
    finally:
        found.stop()


def test_an_attacker_is_dropped_whoever_dies_on_the_way(federation, tmp_path):
    config = {
        **CONFIG,
        "num_server_rounds": 6,
        "state_dir": str(tmp_path / "state"),
        "results": str(tmp_path / "results.sqlite"),
    }
    attacker, *_ = [federation.start_node(index, 3) for index in range(3)]

    first = federation.run(**config)
    first.wait_for("flanders: round 2", PATIENCE)
    server = federation.server_app()
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: not is_running(server), 10)
    first.stop()
    done = max(first.dropped)
    assert first.dropped == {number: [attacker] for number in range(1, done + 1)}

    second = federation.run(**config)
    second.wait_for(f"flanders: going on after round {done} of 6", PATIENCE)
    second.wait_for(f"flanders: round {done + 1}", PATIENCE)
    second.wait_for(rf"\[ROUND 2/{6 - done}\][\s\S]*configure_train: Sampled 3 nodes", PATIENCE)
    federation.kill("node-2")  # an honest one, while it is being asked
    second.finish(2 * PATIENCE)
    # It judges from its first round on, for the history was kept; the dead node costs nobody the run.
    assert second.dropped == {number: [attacker] for number in range(done + 1, 7)}
    assert "silent" in second.text
    assert second.accuracy > 0.6

    connection = sqlite3.connect(config["results"])
    rounds = connection.execute("SELECT number, accuracy > 0 FROM round ORDER BY number").fetchall()
    assert rounds == [(number, 1) for number in range(1, 7)]
    connection.close()


@pytest.mark.parametrize("federation", ["secure"], indirect=True)
def test_a_key_that_is_not_registered_is_refused(federation):
    strangers = Federation(federation.folder / "strangers", secure=True)
    strangers.script("keys.sh", 1)
    key = strangers.folder / "keys" / "node-0"
    federation.start_node(0, 3)
    federation.script("supernode.sh", 1, 3, KEY=str(key))
    stranger = federation.pid("node-1")
    wait_for(lambda: not is_running(stranger), 60, told=lambda: federation.log("node-1"))
    assert "Failed to activate SuperNode" in federation.log("node-1")
    assert len(federation.online()) == 1


@pytest.mark.parametrize("federation", ["secure"], indirect=True)
def test_a_node_that_starts_again_with_its_key_is_the_same_client(federation):
    before = federation.start_node(0, 3)
    os.kill(federation.pid("node-0"), signal.SIGTERM)
    wait_for(lambda: not federation.online(), PATIENCE)
    assert federation.start_node(0, 3) == before
