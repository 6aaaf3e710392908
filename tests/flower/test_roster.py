from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal, KeepAll
from flanders.flower import FilteredStrategy
from flanders.record import ClientRecord, Fate, RoundRecord
from flower.federation import Client, app, grid_of, model, strategies

START = model((6, 7))


def refused(message, honest):
    honest["arrays"]["layer0.weight"] = app.Array(np.full((6, 7), np.nan, dtype=np.float32))
    return app.Message(honest, reply_to=message)


def dropped(message, honest):
    for name, array in honest["arrays"].items():
        honest["arrays"][name] = app.Array((30 * array.numpy()).astype(np.float32))
    return app.Message(honest, reply_to=message)


class Forger(Client):
    """Says in its evaluation that the model is nearly perfect, on more examples than anybody has."""

    claims = 2**53

    def __call__(self, message):
        if message.metadata.message_type != "evaluate":
            return super().__call__(message)
        record = app.MetricRecord({"num-examples": self.claims, "eval_acc": 0.99, "eval_loss": 0.0})
        return app.Message(app.RecordDict({"metrics": record}), reply_to=message)


@pytest.mark.parametrize(
    "twist",
    [refused, dropped, lambda m, h: app.Message(app.Error(1, "x"), reply_to=m)],
    ids=["refused", "dropped", "silent"],
)
def test_clients_that_training_does_not_keep_do_not_forge_the_evaluation(twist) -> None:
    grid = grid_of(6)
    for i in (1, 2):
        grid.nodes[100 + i] = Forger(i, twist)
    result = FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=4)).start(grid, START, num_rounds=3)
    for number in (1, 2, 3):
        assert result.evaluate_metrics_clientapp[number]["eval_acc"] == pytest.approx(0.75)


def test_a_kept_client_cannot_buy_the_evaluation() -> None:
    grid = grid_of(9)
    grid.nodes[101] = Forger(1)
    result = FilteredStrategy(strategies.FedAvg(), KeepAll()).start(grid, START, num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["eval_acc"] < 0.75 + 0.3 * 0.24


def test_without_any_kept_client_those_count_that_were_never_judged() -> None:
    grid = grid_of(6)
    strategy = FilteredStrategy(strategies.FedAvg(fraction_train=0), KeepAll())
    messages = strategy.configure_evaluate(1, START, app.ConfigRecord(), grid)
    assert strategy.aggregate_evaluate(1, grid.send_and_receive(messages))["eval_acc"] == pytest.approx(0.75)


def test_the_roster_forgets_the_oldest_clients(monkeypatch) -> None:
    from flanders.flower import roster

    monkeypatch.setattr(roster, "MOST_REMEMBERED", 3)
    known = roster.Roster()
    for number in range(10):
        known = known.having_asked([(number, f"c{number}")])
        known = known.after_round(RoundRecord(number, (ClientRecord(f"c{number}", Fate.KEPT),)))
    assert list(known.nodes) == [7, 8, 9]
    assert known.known == {"c7", "c8", "c9"}
