from __future__ import annotations

import json
import struct

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
    for data in entries(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if record.WhichOneof("record_type") == "history":
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            history.append(items)
    return config, history


def entries(data, block=32768):
    """Return the entries of a log in LevelDB's format: blocks, in which each piece has a header of seven bytes."""
    at, found, entry = 7, [], b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        entry += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole entry, or the last piece of one
            found.append(entry)
            entry = b""
    return found


def test_settings_and_rounds_are_written_offline(tmp_path) -> None:
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
