from __future__ import annotations

import json
import struct
import time

import pytest

from flanders import InputError
from flanders.callbacks import RunInfo, WandB
from round_records import round_record

wandb = pytest.importorskip("wandb", reason="wandb is not installed")
wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason="wandb is not installed")


def written(folder):
    """Return the config and the history that W&B has written to a folder without a network."""
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    config, history = {}, []
    for kind, record in finished(file):
        if kind == "run":
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if kind == "history":
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            history.append(items)
    return config, history


def finished(file):
    """Return the records of a run with their kinds, once the last one is there: W&B writes in another process."""
    end = time.monotonic() + 300
    while True:
        records = [wandb_internal_pb2.Record.FromString(data) for data in entries(file.read_bytes())]
        found = [(record.WhichOneof("record_type"), record) for record in records]
        if any(kind == "exit" for kind, _ in found):
            return found
        assert time.monotonic() < end
        time.sleep(0.01)


def entries(data, block=32768):
    """Return the entries of a log in LevelDB's format: blocks, in which each piece has a header of seven bytes."""
    at, found, entry = 7, [], b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        if at + 7 + size > len(data):  # it is being written
            break
        entry += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole entry, or the last piece of one
            found.append(entry)
            entry = b""
    return found


def test_settings_and_rounds_are_written_offline(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_X_SERVICE_WAIT", "300")  # seconds in which its own process has to start
    callback = WandB("mine", mode="offline", folder=tmp_path)
    callback.on_start(RunInfo("guard under attack", "abc123", {"filter.name": "guard"}))
    for number, accuracy in enumerate((0.5, 0.75), start=1):
        callback.on_round(round_record(number, [0, 1], kept=[1, 0], accuracy=accuracy))
    callback.on_end()
    config, history = written(tmp_path)
    assert config["filter.name"] == "guard"
    assert [(point["_step"], point["accuracy"]) for point in history] == [(1, 0.5), (2, 0.75)]
    assert history[0]["clients/dropped"] == 1
    assert wandb.run is None


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InputError, match="The `mode` parameter of WandB must be one of 'online', 'offline'"):
        WandB(mode="off")
