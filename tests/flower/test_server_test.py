"""The server's own test and its own step, as filters and aggregators of a Flower federation get them."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord

from flanders import FLTrust, InputError, KeepAll, Scores
from flanders.flower import AggregatorStrategy, FilteredStrategy
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.server_test import ServerTest, losses_in
from flower.federation import flat, grid_of, model, play, strategies


class Asking(KeepAll):
    """Keep everyone, and ask the server's test what it makes of the clients' mean."""

    def score(self, state, round_) -> Scores:
        asked.append(None if round_.evaluate is None else round_.evaluate(round_.updates.mean(axis=0)))
        return super().score(state, round_)


asked: list[object] = []


def arrays(value: float) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full((2, 3), value, np.float32)), "n": Array(np.array([7]))})


def test_losses_may_be_one_number_or_one_for_each_example() -> None:
    assert losses_in(MetricRecord({"loss": 2.0})).tolist() == [2.0]
    assert losses_in(MetricRecord({"accuracy": 0.5, "test_losses": [1.0, 3.0]})).tolist() == [1.0, 3.0]
    assert losses_in(MetricRecord({"accuracy": 0.5})) is None
    assert losses_in(None) is None


def test_a_flat_model_is_tested_with_the_other_arrays_of_the_global_model() -> None:
    seen = []

    def evaluate_fn(number, record):
        seen.append((number, {name: array.numpy().tolist() for name, array in record.items()}))
        return MetricRecord({"loss": float(record["w"].numpy().sum())})

    test, before = ServerTest(evaluate_fn, done=4), arrays(0.0)
    model = ModelArrays.of(before)
    assert test.of_models(5, model, before) is None  # nothing has shown yet that the test has losses
    test(0, before)
    assert test.of_models(5, model, before)(np.ones(6, np.float32)).tolist() == [6.0]
    assert seen == [(4, {"w": [[0.0] * 3] * 2, "n": [7]}), (5, {"w": [[1.0] * 3] * 2, "n": [7]})]


def test_a_test_that_fails_on_a_model_finds_it_infinitely_bad() -> None:
    def evaluate_fn(number, record):
        if number:
            raise ZeroDivisionError("a client's doing")
        return MetricRecord({"loss": 1.0})

    test, before = ServerTest(evaluate_fn), arrays(0.0)
    test(0, before)
    assert test.of_models(1, ModelArrays.of(before), before)(np.ones(6, np.float32)) == np.inf


def test_a_test_that_fails_after_the_first_round_does_not_end_the_run() -> None:
    def evaluate_fn(number, record):
        if number == failing:
            raise OverflowError("math range error")
        return MetricRecord({"loss": 1.0})

    for failing in (1, 2, 3):
        result = FilteredStrategy(strategies.FedAvg()).start(
            grid_of(4), model((6, 7)), num_rounds=3, evaluate_fn=evaluate_fn
        )
        assert sorted(result.evaluate_metrics_serverapp) == sorted({0, 1, 2, 3} - {failing})
        assert len(result.train_metrics_clientapp) == 3


def test_a_test_that_never_worked_ends_the_run() -> None:
    def evaluate_fn(number, record):
        raise OverflowError("math range error")

    with pytest.raises(OverflowError, match="math range error"):
        FilteredStrategy(strategies.FedAvg()).start(
            grid_of(4), model((6, 7)), num_rounds=3, evaluate_fn=evaluate_fn
        )


def test_fltrust_needs_a_step_of_the_server() -> None:
    with pytest.raises(
        InputError, match=r"FLTrust\(\) needs a model that the server trains itself. Pass `train_fn`"
    ):
        AggregatorStrategy(FLTrust())
    with pytest.raises(InputError, match="`train_fn` parameter of AggregatorStrategy must be a function"):
        AggregatorStrategy(FLTrust(), train_fn=3)
    other = AggregatorStrategy(FLTrust(), train_fn=lambda number, record: ArrayRecord({}))
    with pytest.raises(InputError, match="`train_fn` of AggregatorStrategy returned a model with other arrays"):
        other.server_step(1, ModelArrays.of(arrays(0.0)), arrays(0.0))


def test_the_filter_can_ask_the_evaluate_fn_of_start_if_that_has_a_loss() -> None:
    def evaluate_fn(number, record):
        return MetricRecord({"loss": float(np.abs(flat(record)).sum())})

    for function, answered in (
        (evaluate_fn, True),
        (lambda *_: MetricRecord({"accuracy": 1.0}), False),
        (None, False),
    ):
        asked.clear()
        strategy = FilteredStrategy(strategies.FedAvg(), Asking())
        strategy.start(grid_of(4), model((6, 7)), num_rounds=2, evaluate_fn=function)
        assert len(asked) == 2
        assert all((answer is not None) == answered for answer in asked)


def test_a_later_start_without_an_evaluate_fn_does_not_use_the_earlier_one() -> None:
    asked.clear()
    strategy = FilteredStrategy(strategies.FedAvg(), Asking())
    strategy.start(grid_of(4), model((6, 7)), num_rounds=1, evaluate_fn=lambda *_: MetricRecord({"loss": 1.0}))
    strategy.start(grid_of(4), model((6, 7)), num_rounds=2)
    assert [answer is not None for answer in asked] == [True, False]


def test_a_server_test_of_the_users_own_is_used_if_start_gets_no_evaluate_fn() -> None:
    class Own(ServerTest):
        def of_models(self, number, model, arrays):
            return lambda vector: 7.0

    asked.clear()
    strategy = FilteredStrategy(strategies.FedAvg(), Asking())
    strategy.server_test = Own()
    strategy.start(grid_of(4), model((6, 7)), num_rounds=1)
    strategy.start(grid_of(4), model((6, 7)), num_rounds=2, evaluate_fn=lambda *_: MetricRecord({"loss": 1.0}))
    strategy.start(grid_of(4), model((6, 7)), num_rounds=3)
    assert asked == [7.0, 1.0, 7.0]


def test_fltrust_follows_the_step_that_the_server_trains() -> None:
    start = model((6, 7))

    def train_fn(number, record):
        return ArrayRecord({name: Array(array.numpy() + np.float32(1.0)) for name, array in record.items()})

    strategy = AggregatorStrategy(FLTrust(), train_fn=train_fn)
    ((after, _),) = play(strategy, grid_of(6), start, 1)
    step = flat(after) - flat(start)
    assert 0 < np.linalg.norm(step) <= np.sqrt(step.size) * (1 + 1e-5)  # no longer than the server's own step
