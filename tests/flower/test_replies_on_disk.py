from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal, Flanders, KeepAll
from flanders.flower import Ban, FilteredStrategy, replies_on_disk
from flanders.flower.replies_on_disk import RepliesOnDisk
from flanders.flower.stored_arrays import FileArray
from flower.federation import LocalGrid, app, flat, grid_of, model, play, strategies

START = model((6, 7), (7,))


def loud(message, honest):
    for name, array in honest["arrays"].items():
        honest["arrays"][name] = app.Array((-9 * array.numpy()).astype(np.float32))
    return app.Message(honest, reply_to=message)


def messages(grid, nodes):
    content = app.RecordDict({"arrays": START, "config": app.ConfigRecord({"server-round": 1})})
    return [app.Message(content, dst_node_id=node, message_type="train") for node in nodes]


def test_replies_on_disk_are_what_the_clients_sent(tmp_path) -> None:
    stored = RepliesOnDisk(grid_of(3), tmp_path).send_and_receive(messages(None, [100, 101, 102]))
    plain = grid_of(3).send_and_receive(messages(None, [100, 101, 102]))
    assert len(list(tmp_path.glob("*/*"))) == 3
    for a, b in zip(stored, plain, strict=True):
        for name, array in a.content["arrays"].items():
            assert isinstance(array, FileArray)
            assert array.data == b.content["arrays"][name].data
            np.testing.assert_array_equal(array.numpy(), b.content["arrays"][name].numpy())


def test_the_files_of_a_round_go_with_the_next_one(tmp_path) -> None:
    grid = RepliesOnDisk(grid_of(3), tmp_path)
    for _ in range(3):
        grid.send_and_receive(messages(None, [100, 101]))
        assert len(list(tmp_path.glob("*/*"))) == 2
    grid.clear()
    assert list(tmp_path.iterdir()) == []


def test_the_time_limit_holds_and_what_has_come_is_returned(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(replies_on_disk, "WAIT", 0.01)
    grid = RepliesOnDisk(grid_of(3, {1: lambda message, honest: None}), tmp_path)
    replies = grid.send_and_receive(messages(None, [100, 101, 102]), timeout=0.05)
    assert sorted(reply.metadata.src_node_id for reply in replies) == [100, 102]


def test_one_reply_is_fetched_at_a_time() -> None:
    fetched = []

    class Watched(LocalGrid):
        def pull_messages(self, message_ids):
            found = super().pull_messages(message_ids)
            fetched.append(len(found))
            return found

    RepliesOnDisk(grid_of(4, kind=Watched)).send_and_receive(messages(None, [100, 101, 102, 103]))
    assert fetched == [1, 1, 1, 1]


@pytest.mark.parametrize("inner", [strategies.FedAvg, strategies.FedMedian, strategies.FedAdam, strategies.FedAvgM])
def test_in_sketch_mode_too_the_aggregate_is_the_bare_strategys_of_the_kept_replies(inner, tmp_path) -> None:
    def make(**options):
        filtered = FilteredStrategy(inner(fraction_evaluate=0.0), DistanceToGlobal(keep=0.75), **options)
        return filtered.start(grid_of(8, {3: loud, 5: loud}), START, num_rounds=3)

    whole, sketched = make(), make(sketch=4096, seed=1, state_dir=tmp_path)
    np.testing.assert_array_equal(flat(sketched.arrays), flat(whole.arrays))
    for number in (1, 2, 3):
        nodes = [r.train_metrics_clientapp[number]["flanders-unused-nodes"] for r in (whole, sketched)]
        assert sorted(nodes[0]) == sorted(nodes[1]) == [103, 105]
    assert [path.name for path in tmp_path.iterdir()] == ["flanders.npz"]


def test_what_a_killed_serverapp_has_left_goes_when_the_next_one_starts(tmp_path) -> None:
    (tmp_path / "replies-left").mkdir()
    (tmp_path / "replies-left" / "0").write_bytes(b"left")
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), sketch=64, state_dir=tmp_path)
    strategy.start(grid_of(3), START, num_rounds=1)
    assert [path.name for path in tmp_path.iterdir()] == ["flanders.npz"]


def test_krum_returns_a_replys_own_arrays_which_outlive_the_files(tmp_path) -> None:
    strategy = FilteredStrategy(strategies.Krum(fraction_evaluate=0.0), KeepAll(), sketch=64, state_dir=tmp_path)
    result = strategy.start(grid_of(5), START, num_rounds=2)
    assert not any(isinstance(array, FileArray) for array in result.arrays.values())
    assert np.isfinite(flat(result.arrays)).all()


def test_a_bad_reply_on_disk_costs_its_sender_the_round(flower_log) -> None:
    def junk(message, honest):
        honest["arrays"]["layer1.weight"] = app.Array("float32", (7,), "numpy.ndarray", b"junk")
        return app.Message(honest, reply_to=message)

    def foreign(message, honest):
        honest["arrays"]["layer1.weight"] = app.Array("float32", (7,), "magic", b"junk")
        return app.Message(honest, reply_to=message)

    def far_too_long(message, honest):
        honest["arrays"]["layer1.weight"] = app.Array(np.zeros(10**6, dtype=np.float32))
        return app.Message(honest, reply_to=message)

    strategy = FilteredStrategy(strategies.FedAvg(fraction_evaluate=0.0), Flanders(keep=0.8), sketch=64)

    def failing(message, honest):
        return app.Message(app.Error(0, "x"), reply_to=message)

    grid = grid_of(6, {1: junk, 2: foreign, 3: far_too_long, 4: failing})
    result = strategy.start(grid, START, num_rounds=1)
    assert result.train_metrics_clientapp[1]["flanders-fates"] == [0, 2, 2, 2, 3, 0]
    assert "103 [array 'layer1.weight' is too large: 4,000,128 bytes]" in flower_log.text


def oversized(message, honest):
    """Send a thousand times as many bytes as the model has, under a name that the model does not have."""
    honest["arrays"]["more"] = app.Array(np.zeros(50_000, dtype=np.float32))
    return app.Message(honest, reply_to=message)


def in_two_records(message, honest):
    honest["more"] = app.ArrayRecord({"x": app.Array(np.zeros(50_000, dtype=np.float32))})
    return app.Message(honest, reply_to=message)


@pytest.mark.parametrize("twist", [oversized, in_two_records])
def test_an_oversized_reply_is_refused_before_it_is_written(twist, tmp_path, monkeypatch) -> None:
    """The disk has room for all honest replies, but not for this one."""
    space = FullDisk(10_000)
    monkeypatch.setattr(replies_on_disk, "open", space.open, raising=False)
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), sketch=64, state_dir=tmp_path)
    result = strategy.start(grid_of(5, {0: twist}), START, num_rounds=2)
    assert result.train_metrics_clientapp[2]["flanders-fates"] == [2, 0, 0, 0, 0]
    assert space.used < 10_000


class FullDisk:
    """Files on a disk with room for some bytes."""

    def __init__(self, room):
        self.room, self.used = room, 0

    def open(self, path, mode):
        file, disk = open(path, mode), self  # noqa: SIM115

        class File:
            def __enter__(self):
                return self

            def __exit__(self, *exception):
                file.close()

            def tell(self):
                return file.tell()

            def write(self, data):
                if disk.used + len(data) > disk.room:
                    raise OSError(28, "No space left on device")
                disk.used += len(data)
                return file.write(data)

        return File()


def test_a_full_disk_costs_the_replies_that_do_not_fit_and_not_the_round(tmp_path, monkeypatch, flower_log) -> None:
    """A client whose reply the server has lost is not blamed for it."""
    monkeypatch.setattr(replies_on_disk, "open", FullDisk(1300).open, raising=False)
    strategy = FilteredStrategy(
        strategies.FedAvg(fraction_evaluate=0), KeepAll(), sketch=64, state_dir=tmp_path, ban=Ban(1, 9)
    )
    result = strategy.start(grid_of(5), START, num_rounds=1)
    fates = result.train_metrics_clientapp[1]["flanders-fates"]
    assert fates.count(0) == 2
    assert fates.count(3) == 3
    assert "[the server cannot store it (No space left on device)]" in flower_log.text
    assert strategy._books.memory.bans.until == {}


def test_without_a_folder_for_replies_the_model_stays_and_the_run_goes_on(tmp_path, monkeypatch) -> None:
    def no_room(**options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replies_on_disk.tempfile, "mkdtemp", no_room)
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), sketch=64, state_dir=tmp_path)
    result = strategy.start(grid_of(5), START, num_rounds=1)
    assert result.train_metrics_clientapp[1]["flanders-silent"] == 5
    np.testing.assert_array_equal(flat(result.arrays), flat(START))


def test_in_whole_mode_replies_are_left_without_arrays() -> None:
    """Flower holds on to the replies of a round until those of the next have come."""
    kept = []

    class Watched(LocalGrid):
        def pull_messages(self, message_ids):
            kept.extend(found := super().pull_messages(message_ids))
            return found

    play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(3, kind=Watched), START, 1)
    assert [len(reply.content["arrays"]) for reply in kept] == [0, 0, 0]
