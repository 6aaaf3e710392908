"""The audit trail of a Flower federation: what entries hold, restarts, and a disk that is full."""

from __future__ import annotations

import errno
import json
import os
import shutil

import numpy as np
import pytest

from flanders.audit import AuditTrail, verify_trail
from flanders.checks import InputError
from flanders.cli import main
from flanders.flower import FilteredStrategy
from flanders.flower.round_audit import UNREADABLE, model_digest, reply_digest
from flower.federation import app, content, grid_of, model, strategies


def noise(message, honest):
    """Send noise instead of what was trained."""
    for array in honest["arrays"]:
        honest["arrays"][array] = app.Array(np.full(honest["arrays"][array].shape, 1e6, np.float32))
    return app.Message(honest, reply_to=message)


def nan(message, honest):
    for array in honest["arrays"]:
        honest["arrays"][array] = app.Array(np.full(honest["arrays"][array].shape, np.nan, np.float32))
    return app.Message(honest, reply_to=message)


def entries_of(path, kind="round"):
    return [entry for line in path.read_bytes().splitlines() if (entry := json.loads(line))["kind"] == kind]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


def federation(path, rounds, *, twists=None, **options):
    """Carry out rounds with an audit trail, and return the strategy and Flower's result."""
    strategy = FilteredStrategy(strategies.FedAvg(), audit=path, seed=0, **options)
    result = strategy.start(grid_of(8, twists), model((6, 7), (7,)), num_rounds=rounds)
    return strategy, result


def test_an_entry_holds_every_decision_and_digests_of_replies_and_models(path, flower_log):
    _, result = federation(path, 3, twists={0: noise, 1: nan, 2: lambda message, honest: None})
    assert main(["audit", "verify", str(path)]) == 0
    first, *_, last = entries_of(path)
    clients = {client["client"]: client for client in last["clients"]}
    assert [clients[str(node)]["fate"] for node in range(100, 104)] == ["dropped", "refused", "silent", "kept"]
    assert "not finite" in clients["101"]["reason"]
    assert clients["100"]["score"] > 0
    assert [len(client["replies"]) for client in last["clients"]] == [1, 1, 0, 1, 1, 1, 1, 1]
    assert clients["101"]["replies"] != clients["103"]["replies"]
    assert first["model_before"] == model_digest(model((6, 7), (7,)))
    assert last["model_after"] == model_digest(result.arrays)
    (start,) = entries_of(path, "start")
    assert start["settings"]["filter"]["name"] == "guard"
    assert str(verify_trail(path).head) in flower_log.text


def test_a_restart_continues_the_trail_and_the_state_knows_its_head(path, tmp_path):
    state = tmp_path / "state"
    federation(path, 3, state_dir=state)
    federation(path, 5, state_dir=state)
    check = verify_trail(path)
    assert (check.intact, check.rounds, len(entries_of(path, "start"))) == (True, 5, 2)
    assert main(["audit", "verify", str(path), "--state", str(state)]) == 0
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert main(["audit", "verify", str(path), "--state", str(state)]) == 1
    with pytest.raises(InputError, match="cut or rewritten"):
        federation(path, 6, state_dir=state)


def test_an_old_state_that_was_put_back_is_logged_and_stands_in_the_trail(path, tmp_path, flower_log):
    state = tmp_path / "state"
    federation(path, 2, state_dir=state)
    shutil.copytree(state, tmp_path / "old")
    federation(path, 5, state_dir=state, twists={0: nan})
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "old", state)
    federation(path, 5, state_dir=state)
    assert "replaced by an older one" in flower_log.text
    assert "went back from round 5 to round 2" in str(verify_trail(path).breaches[0])
    assert "refused" in path.read_text()  # what the old state does not know is still there


def test_a_kill_between_trail_and_state_loses_nothing(path, tmp_path, monkeypatch):
    state = tmp_path / "state"
    federation(path, 2, state_dir=state)
    monkeypatch.setattr(
        "flanders.flower.saved_memory.save_state", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        federation(path, 4, state_dir=state)
    monkeypatch.undo()
    federation(path, 4, state_dir=state)
    check = verify_trail(path)
    assert check.intact
    assert [note[:7] for note in check.notes] == ["round 3"]
    assert [entry["round"] for entry in entries_of(path)] == [1, 2, 3, 3, 4]
    one, again = entries_of(path)[2:4]
    assert one["clients"] == again["clients"]  # the repeated round comes to the same decisions


def test_a_full_disk_costs_the_entry_and_not_the_round(path, monkeypatch, flower_log):
    strategy = FilteredStrategy(strategies.FedAvg(), audit=path)
    real, full = os.fsync, []

    def fsync(handle):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)

    def fill(number, arrays):
        full[:] = [1] if number == 1 else []
        return app.MetricRecord({"accuracy": 0.5})

    result = strategy.start(grid_of(8), model((6, 7)), num_rounds=4, evaluate_fn=fill)
    assert len(result.train_metrics_clientapp) == 4
    assert "round 2 is not in the audit trail" in flower_log.text
    check = verify_trail(path)
    assert check.intact
    assert check.notes == ["rounds without an entry, since the entry could not be written: 2"]


def test_a_trail_of_the_users_own_settings_is_taken(tmp_path):
    trail = AuditTrail(tmp_path / "a.jsonl", max_bytes=10_000, max_files=2)
    federation(trail, 20)
    assert sorted(file.name.partition(".")[0] for file in tmp_path.iterdir()) == ["a", "a"]
    assert verify_trail(tmp_path / "a.jsonl").intact


def test_replies_are_digested_as_sent_also_when_they_lie_on_disk(path, tmp_path):
    federation(path, 2)
    federation(tmp_path / "sketched.jsonl", 2, sketch=64)
    whole, sketched = (
        [client["replies"] for client in entries_of(each)[0]["clients"]]
        for each in (path, tmp_path / "sketched.jsonl")
    )
    assert whole == sketched


def test_two_digests_are_equal_only_if_everything_sent_is_equal():
    start = model((2, 3))
    assert reply_digest(content(start)) == reply_digest(content(start.copy()))
    others = [
        content(model((2, 3), seed=1)),
        content(model((3, 2))),
        content(model((2, 3), names=["other"])),
        content(start, **{"num-examples": 11}),
        app.RecordDict({"arrays": start}),
    ]
    digests = {reply_digest(each) for each in [content(start), *others]}
    assert len(digests) == 6
    broken = app.ArrayRecord({"w": app.Array(np.zeros(2))})
    broken["w"].data = None
    assert reply_digest(app.RecordDict({"arrays": broken})) != UNREADABLE  # None is written down as such
    broken["w"].shape = 3
    assert reply_digest(app.RecordDict({"arrays": broken})) == UNREADABLE


@pytest.mark.parametrize("audit", ["", 3, b"x"])
def test_a_trail_that_is_no_path_is_refused_at_once(audit):
    with pytest.raises(InputError, match="`audit` parameter of FilteredStrategy must be a path"):
        FilteredStrategy(strategies.FedAvg(), audit=audit)


def test_without_a_trail_nothing_is_digested(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr("flanders.flower.round_audit.reply_digest", fail)
    monkeypatch.setattr("flanders.flower.round_audit.model_digest", fail)
    FilteredStrategy(strategies.FedAvg()).start(grid_of(4), model((6, 7)), num_rounds=2)
