"""Strategies with a `start` of their own, as Flower's example for Weights & Biases has one."""

from __future__ import annotations

import numpy as np

from flanders import DistanceToGlobal, KeepAll
from flanders.flower import FilteredStrategy
from flower.federation import app, flat, grid_of, model, strategies

START = model((6, 7), (7,))


def loud(message, honest):
    for name, array in honest["arrays"].items():
        honest["arrays"][name] = app.Array((-9 * array.numpy()).astype(np.float32))
    return app.Message(honest, reply_to=message)


class LoggingFedAvg(strategies.FedAvg):
    """Carries out the rounds itself, as Flower's guides teach it, and writes down the metrics of each."""

    def set_diary(self, diary):
        self.diary = diary

    def start(
        self,
        grid,
        initial_arrays,
        num_rounds=3,
        timeout=3600,
        train_config=None,
        evaluate_config=None,
        evaluate_fn=None,
    ):
        self.best = 0.0
        self.summary()
        result, arrays = strategies.Result(), initial_arrays
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, arrays, app.ConfigRecord(), grid)
            replies = grid.send_and_receive(messages=messages, timeout=timeout)
            found, metrics = self.aggregate_train(number, replies)
            if found is not None:
                result.arrays = arrays = found
            result.train_metrics_clientapp[number] = metrics
            self.diary.append((self.__class__.__name__, number, dict(metrics)))
            tested = evaluate_fn(number, arrays)
            result.evaluate_metrics_serverapp[number] = tested
            self._remember(tested["accuracy"])
        return result

    def _remember(self, accuracy):
        self.best = max(self.best, accuracy)


def accuracy(number, arrays):
    return app.MetricRecord({"accuracy": 0.1 * number})


def started(strategy, filter_, twists=None, rounds=3, **options):
    wrapped = FilteredStrategy(strategy, filter_, **options)
    return wrapped, wrapped.start(grid_of(6, twists), START, num_rounds=rounds, evaluate_fn=accuracy)


def test_a_start_of_the_strategys_own_runs_behind_the_filter(flower_log, tmp_path) -> None:
    strategy, diary = LoggingFedAvg(fraction_evaluate=0.0), []
    strategy.set_diary(diary)
    results = tmp_path / "live.sqlite"
    wrapped, result = started(strategy, DistanceToGlobal(keep=5), {2: loud}, results=results)
    assert [(name, number) for name, number, _ in diary] == [("LoggingFedAvg", n) for n in (1, 2, 3)]
    assert all(metrics["flanders-unused-nodes"] == [102] for _, _, metrics in diary)
    assert strategy.best == 0.1 * 3  # what it sets on itself is set
    assert wrapped.last_round.accuracy == 0.1 * 3
    assert "Filter: DistanceToGlobal(keep=5): keep the clients" in flower_log.text
    plain, _ = FilteredStrategy(strategies.FedAvg(fraction_evaluate=0.0), DistanceToGlobal(keep=5)), None
    expected = plain.start(grid_of(6, {2: loud}), START, num_rounds=3, evaluate_fn=accuracy)
    np.testing.assert_array_equal(flat(result.arrays), flat(expected.arrays))
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]


def test_a_start_that_ends_in_super_start_works_too() -> None:
    class Opening(strategies.FedAvg):
        opened = 0

        def start(self, *arguments, **options):
            self.opened += 1
            return super().start(*arguments, **options)

    strategy = Opening(fraction_evaluate=0.0)
    wrapped, result = started(strategy, DistanceToGlobal(keep=5), {2: loud}, rounds=2)
    assert strategy.opened == 1
    assert all(result.train_metrics_clientapp[n]["flanders-unused-nodes"] == [102] for n in (1, 2))
    assert wrapped.last_round.number == 2


def test_the_rounds_of_a_restart_are_counted_from_the_very_first(tmp_path) -> None:
    numbers = []
    for _ in range(2):
        strategy, diary = LoggingFedAvg(fraction_evaluate=0.0), []
        strategy.set_diary(diary)
        wrapped, result = started(strategy, KeepAll(), rounds=2 + len(numbers), state_dir=tmp_path / "state")
        numbers.append((wrapped.last_round.number, sorted(result.train_metrics_clientapp)))
    assert numbers == [(2, [1, 2]), (3, [3])]


def test_whatever_the_strategys_own_start_returns_is_returned() -> None:
    class Odd(strategies.FedAvg):
        def start(self, *arguments, **options):
            super().start(*arguments, **options)
            return "done"

    assert started(Odd(fraction_evaluate=0.0), KeepAll(), rounds=1)[1] == "done"
