from __future__ import annotations

import re

import numpy as np
import pytest

from flanders import FILTERS, DistanceToGlobal, Flanders, FlandersReference, KeepAll, Sketch, save_state
from flanders.checks import InputError
from flanders.flower import Ban, FilteredStrategy
from flanders.flower.saved_memory import FILE
from flower.federation import LocalGrid, app, content, flat, grid_of, model, play, strategies

START = model((6, 7), (7,))


def keyed(count, **options):
    """Return a federation whose nodes have public keys."""
    return grid_of(count, keys={100 + i: bytes([i]) * 40 for i in range(count)}, **options)


class Stop(Exception):
    pass


class Dying(LocalGrid):
    """A grid whose ServerApp dies before a round."""

    round_of_death = 4

    def push_messages(self, messages):
        messages = list(messages)
        if any(m.content["config"]["server-round"] == self.round_of_death for m in messages):
            raise Stop
        return super().push_messages(messages)


def fedavg():
    return strategies.FedAvg(fraction_evaluate=0.0)


FILTERS_UNDER_TEST = [
    Flanders(keep=0.7),
    Flanders(threshold=0.5, order=1, window=3),
    Flanders(keep=0.7, look=Sketch(32, repeats=2)),
    FlandersReference(keep=0.7, sample=20),
    FILTERS.make("fldetector", keep=0.7),
    FILTERS.make("persistence", keep=0.7),
    FILTERS.make("dnc", num_malicious=0.2, sample=20),
]


@pytest.mark.parametrize("filter_", FILTERS_UNDER_TEST, ids=repr)
@pytest.mark.parametrize("sketch", [None, 64])
def test_a_restarted_serverapp_goes_on_as_if_it_had_never_stopped(filter_, sketch, tmp_path) -> None:
    def make(folder):
        return FilteredStrategy(
            fedavg(), filter_, state_dir=tmp_path / folder, sketch=sketch, seed=3, ban=Ban(2, 2)
        )

    expected = make("whole").start(grid_of(10), START, num_rounds=6)
    grid = grid_of(10, kind=Dying)
    with pytest.raises(Stop):
        make("cut").start(grid, START, num_rounds=6)
    grid.round_of_death = 0
    result = make("cut").start(grid, model((6, 7), (7,), seed=5), num_rounds=6)
    np.testing.assert_array_equal(flat(result.arrays), flat(expected.arrays))
    assert list(result.train_metrics_clientapp) == [4, 5, 6]
    for number in (4, 5, 6):
        found, before = result.train_metrics_clientapp[number], expected.train_metrics_clientapp[number]
        assert repr(dict(found)) == repr(dict(before))  # NaN included


def test_clients_and_evaluation_hear_of_the_rounds_done_before(tmp_path) -> None:
    def make():
        return FilteredStrategy(strategies.FedAvg(), KeepAll(), state_dir=tmp_path)

    make().start(grid_of(3), START, num_rounds=2)
    evaluated, grid = [], grid_of(3)
    result = make().start(grid, START, num_rounds=3, evaluate_fn=lambda n, arrays: evaluated.append(n))
    assert evaluated == [2, 3]
    assert list(grid.asked["train"]) == [3]
    assert list(result.evaluate_metrics_clientapp) == [3]


@pytest.mark.parametrize("kept", [True, False])
def test_a_second_start_of_the_same_object_goes_on_where_the_first_ended(kept, tmp_path, flower_log) -> None:
    def make(folder):
        return FilteredStrategy(fedavg(), Flanders(keep=0.7), state_dir=tmp_path / folder if kept else None, seed=3)

    expected = make("whole").start(grid_of(6), START, num_rounds=5)
    grid, other = grid_of(6), model((6, 7), (7,), seed=5)
    if kept:
        make("cut").start(grid, START, num_rounds=1)
    strategy = make("cut")
    first = strategy.start(grid, START, num_rounds=3)
    first.arrays.clear()  # the caller's to do with as it likes
    result = strategy.start(grid, other, num_rounds=5)
    np.testing.assert_array_equal(flat(result.arrays), flat(expected.arrays))
    assert list(result.train_metrics_clientapp) == [4, 5]
    assert "going on after round 3 of 5" in flower_log.text
    assert "None" not in " ".join(r.getMessage() for r in flower_log.records if "going on" in r.getMessage())


@pytest.mark.parametrize("kept", [True, False])
def test_a_start_with_nothing_left_to_do_says_so(kept, tmp_path, flower_log) -> None:
    strategy = FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path if kept else None)
    first = strategy.start(grid_of(3), START, num_rounds=2)
    again = strategy.start(grid_of(3), START, num_rounds=2)
    np.testing.assert_array_equal(flat(again.arrays), flat(first.arrays))
    where = f"in {tmp_path / FILE}. Name another `state_dir`, or raise" if kept else "done. Raise"
    assert f"flanders: nothing left to do: all 2 rounds are {where} `num_rounds`." in flower_log.text


def test_when_all_rounds_are_done_the_saved_model_is_the_result(tmp_path) -> None:
    def make():
        return FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path)

    first = make().start(grid_of(3), START, num_rounds=2)
    grid = grid_of(3)
    again = make().start(grid, START, num_rounds=2)
    assert grid.sent == []
    np.testing.assert_array_equal(flat(again.arrays), flat(first.arrays))


def test_types_survive_a_restart(tmp_path) -> None:
    start = model((4, 5), names=["w"])
    start["n"] = app.Array(np.asarray(2, dtype=np.int64))
    FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path).start(grid_of(3), start, num_rounds=1)
    strategy = FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path)
    result = strategy.start(grid_of(3), start, num_rounds=2)
    assert result.arrays["w"].dtype == "float32"
    assert result.train_metrics_clientapp[2]["flanders-kept"] == 3  # an average of integers is taken for one still


def test_two_serverapps_cannot_be_at_work_in_one_folder(tmp_path) -> None:
    def intrude(message, honest):
        with pytest.raises(InputError, match="Another ServerApp is at work in `state_dir`"):
            FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path).start(grid_of(3), START, num_rounds=9)
        return app.Message(honest, reply_to=message)

    result = FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path).start(grid_of(3, {1: intrude}), START)
    assert [m["flanders-kept"] for m in result.train_metrics_clientapp.values()] == [3, 3, 3]
    FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path).start(grid_of(3), START, num_rounds=4)


def rounds_in(folder):
    return FilteredStrategy(strategies.FedAvg(), KeepAll(), state_dir=folder)._books.memory.rounds


def test_two_strategies_made_for_one_folder_do_not_roll_each_others_rounds_back(tmp_path) -> None:
    """Both are made before either starts. The second goes on after the rounds of the first."""
    first, second = (FilteredStrategy(strategies.FedAvg(), KeepAll(), state_dir=tmp_path) for _ in range(2))
    result = first.start(grid_of(4), START, num_rounds=3)
    again = second.start(grid_of(4), START, num_rounds=3)
    assert rounds_in(tmp_path) == 3
    np.testing.assert_array_equal(flat(again.arrays), flat(result.arrays))
    assert list(second.start(grid_of(4), START, num_rounds=5).train_metrics_clientapp) == [4, 5]
    assert list(first.start(grid_of(4), START, num_rounds=6).train_metrics_clientapp) == [6]


def test_without_a_lock_saved_rounds_are_not_overwritten_either(tmp_path) -> None:
    """Whoever calls the methods of the strategy one by one does not hold the lock."""
    first, second = (FilteredStrategy(strategies.FedAvg(), KeepAll(), state_dir=tmp_path) for _ in range(2))
    play(first, grid_of(4), START, 3)
    with pytest.raises(InputError, match=r"Another ServerApp has saved its rounds in .* End it\."):
        play(second, grid_of(4), START, 1)
    assert rounds_in(tmp_path) == 3


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_corrupted_state_is_a_clear_error(content, tmp_path) -> None:
    FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path).start(grid_of(3), START, num_rounds=1)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(InputError, match=r"flanders\.npz is not a readable state file"):
        FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path)


@pytest.mark.parametrize("foreign", [{"a": 1}, [np.arange(3)], None])
def test_a_foreign_state_is_a_clear_error(foreign, tmp_path) -> None:
    save_state(tmp_path / FILE, foreign)
    with pytest.raises(
        InputError,
        match=r"was not saved by this version of FilteredStrategy\. To start afresh, name another `state_dir`",
    ):
        FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path)


def test_the_state_of_another_filter_or_sketch_is_a_clear_error(tmp_path) -> None:
    FilteredStrategy(fedavg(), Flanders(keep=0.7), state_dir=tmp_path).start(grid_of(3), START, num_rounds=1)
    for other in (KeepAll(), Flanders(keep=0.8)):
        made_by = re.escape(
            f"{tmp_path / FILE}: This memory was made by {Flanders(keep=0.7)}, but the filter is {other}"
        )
        with pytest.raises(InputError, match=rf"{made_by}\. .*To start afresh, name another `state_dir`\."):
            FilteredStrategy(fedavg(), other, state_dir=tmp_path)
    with pytest.raises(InputError, match="was saved with sketch=None, but this strategy has sketch=64"):
        FilteredStrategy(fedavg(), Flanders(keep=0.7), state_dir=tmp_path, sketch=64)


def test_the_state_of_another_model_is_a_clear_error(tmp_path) -> None:
    FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path).start(grid_of(3), START, num_rounds=1)
    strategy = FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path)
    for shapes, difference in (
        (((5, 5),), "missing 'layer1.weight'"),
        (((6, 8), (7,)), r"\(6, 8\) instead of \(6, 7\)"),
    ):
        with pytest.raises(InputError, match=rf"The global model has other arrays .*{difference}\), which"):
            strategy.start(grid_of(3), model(*shapes), num_rounds=2)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"`state_dir` .* cannot be made: Not a directory"):
        FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path / "file" / "state")


def test_a_full_disk_costs_the_restart_not_the_run(tmp_path, monkeypatch, flower_log) -> None:
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flanders.flower.saved_memory.save_state", full)
    result = FilteredStrategy(fedavg(), KeepAll(), state_dir=tmp_path).start(grid_of(3), START, num_rounds=2)
    assert len(result.train_metrics_clientapp) == 2
    assert "No space left on device): a restart would go back to an earlier round" in flower_log.text


def introductions(log):
    return [r.getMessage() for r in log.records if " is client key-" in r.getMessage()]


def test_nodes_are_known_by_their_keys_when_their_ids_change(tmp_path, flower_log) -> None:
    """The filter's history follows the key: after a restart with other node ids it judges the same clients."""

    def rekeyed(offset):
        grid = keyed(6)
        grid.nodes = {id_ + offset: node for id_, node in grid.nodes.items()}
        grid.keys = {id_ + offset: key for id_, key in grid.keys.items()}
        return grid

    filter_ = FILTERS.make("persistence", keep=0.5)
    FilteredStrategy(fedavg(), filter_, state_dir=tmp_path).start(rekeyed(0), START, num_rounds=2)
    strategy = FilteredStrategy(fedavg(), filter_, state_dir=tmp_path)
    strategy.start(rekeyed(1000), START, num_rounds=3)
    assert len(strategy.defense.state.models) == 6  # nobody is taken for somebody new
    assert all(client.startswith("key-") for client in strategy.defense.state.models)
    assert [line.startswith("flanders: node 110") for line in introductions(flower_log)] == [False] * 6 + [True] * 6


def loud(message, honest):
    for name, array in honest["arrays"].items():
        honest["arrays"][name] = app.Array((50 * array.numpy()).astype(np.float32))
    return app.Message(honest, reply_to=message)


def test_who_is_dropped_too_often_is_left_out_and_comes_back_on_parole(tmp_path, flower_log) -> None:
    grid = grid_of(4, {1: loud})
    strategy = FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=0.75), ban=Ban(after=2, rounds=3))
    result = strategy.start(grid, START, num_rounds=8)
    present = [101 in grid.asked["train"][number] for number in range(1, 9)]
    assert present == [True, True, False, False, False, True, False, False]  # on parole one offence is enough
    banned = [result.train_metrics_clientapp[number]["flanders-banned"] for number in range(1, 9)]
    assert banned == [0, 0, 1, 1, 1, 0, 1, 1]
    assert "banned 101 [until round 5]" in flower_log.text
    evaluated = [number for number, nodes in grid.asked["evaluate"].items() if 101 in nodes]
    assert evaluated == [1]  # nor does it evaluate, from the round that gets it banned


def test_a_restart_does_not_shorten_a_ban(tmp_path) -> None:
    def make():
        return FilteredStrategy(
            fedavg(), DistanceToGlobal(keep=0.75), ban=Ban(after=2, rounds=3), state_dir=tmp_path
        )

    grid = grid_of(4, {1: loud})
    make().start(grid, START, num_rounds=3)
    make().start(grid, START, num_rounds=6)
    present = [101 in grid.asked["train"][number] for number in range(1, 7)]
    assert present == [True, True, False, False, False, True]


def test_bad_replies_are_offences_and_failures_are_not() -> None:
    def nan(message, honest):
        honest["arrays"]["layer1.weight"] = app.Array(np.full(7, np.nan, dtype=np.float32))
        return app.Message(honest, reply_to=message)

    twists = {1: nan, 2: lambda m, h: app.Message(app.Error(0, "busy"), reply_to=m), 3: lambda m, h: None}
    grid = grid_of(5, twists)
    FilteredStrategy(fedavg(), KeepAll(), ban=Ban(after=1, rounds=9)).start(grid, START, num_rounds=2)
    assert sorted(grid.asked["train"][2]) == [100, 102, 103, 104]


def test_a_filter_that_keeps_nobody_gets_nobody_banned() -> None:
    class Strict(KeepAll):
        def select(self, scores):
            return np.empty(0, dtype=np.int64)

    grid = grid_of(3)
    FilteredStrategy(fedavg(), Strict(), ban=Ban(after=1, rounds=9)).start(grid, START, num_rounds=2)
    assert sorted(grid.asked["train"][2]) == [100, 101, 102]


def test_rounds_in_which_a_client_is_kept_take_offences_back() -> None:
    def moody(message, honest):
        if message.content["config"]["server-round"] % 2:
            return loud(message, honest)
        return app.Message(content(message.content["arrays"]), reply_to=message)

    grid = grid_of(4, {1: moody})
    strategy = FilteredStrategy(fedavg(), DistanceToGlobal(keep=0.75), ban=Ban(after=2, rounds=9))
    result = strategy.start(grid, START, num_rounds=6)
    dropped = [101 in result.train_metrics_clientapp[n]["flanders-unused-nodes"] for n in range(1, 7)]
    assert dropped == [True, False, True, False, True, False]
    assert all(101 in nodes for nodes in grid.asked["train"].values())


@pytest.mark.parametrize("wrong", [{"after": 0}, {"rounds": 0}, {"after": 1.5}])
def test_a_ban_needs_whole_numbers(wrong) -> None:
    with pytest.raises(InputError, match="parameter of Ban must be a whole number of at least 1"):
        Ban(**wrong)
