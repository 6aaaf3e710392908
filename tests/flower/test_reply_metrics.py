from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal, Guard, KeepAll, MultiKrum
from flanders.flower import AggregatorStrategy, FilteredStrategy
from flower.federation import app, flat, grid_of, model, play, strategies

START = model((6, 7), (7,))


def twisting(change):
    """Return a twist that changes the records of the honest content in place."""

    def twist(message, honest):
        change(honest)
        return app.Message(honest, reply_to=message)

    return twist


def adds(**metrics):
    return twisting(lambda honest: honest["metrics"].update(metrics))


def lacks(key):
    return twisting(lambda honest: honest["metrics"].pop(key))


def renames(old, new):
    def change(honest):
        honest[new] = honest.pop(old)

    return twisting(change)


def swaps_names(honest):
    arrays, metrics = honest.pop("arrays"), honest.pop("metrics")
    honest["arrays"], honest["metrics"] = metrics, arrays


FORMS = {
    "one more metric": adds(extra=1.0),
    "one metric less": lacks("train_loss"),
    "a list in place of a number": adds(train_loss=[0.5, 0.5]),
    "other names of metrics": renames("metrics", "mine"),
    "other names of arrays": renames("arrays", "mine"),
    "names the other way round": twisting(swaps_names),
    "a record of settings too many": twisting(lambda honest: honest.update({"config": app.ConfigRecord({"a": 1})})),
    "a thousand metrics": adds(**{f"m{i}": 0.5 for i in range(1000)}),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("attackers", [1, 6, 9])
@pytest.mark.parametrize("make", [strategies.FedAvg, lambda: strategies.QFedAvg(client_learning_rate=0.1)])
def test_no_number_of_clients_decides_which_form_of_metrics_is_right(name, attackers, make) -> None:
    """The honest clients are kept whatever form the others agree on, and the strategy can use all replies."""
    strategy = FilteredStrategy(make(), KeepAll())
    grid = grid_of(10, dict.fromkeys(range(attackers), FORMS[name]))
    for arrays, metrics in play(strategy, grid, START, 2):
        kept = {c.client for c in strategy.last_round.clients if c.kept}
        assert kept >= {str(100 + i) for i in range(attackers, 10)}
        assert arrays is not None
        assert attackers == 9 or metrics.get("train_loss", 0.5) == pytest.approx(0.5)


def test_half_of_the_clients_cannot_switch_the_filter_off_with_one_more_metric() -> None:
    """Six of eleven send it together with poison. The filter sees the honest clients all the same."""

    def poison(message, honest):
        honest["metrics"]["extra"] = 1.0
        for key, array in honest["arrays"].items():
            honest["arrays"][key] = app.Array((1000 * array.numpy()).astype(np.float32))
        return app.Message(honest, reply_to=message)

    strategy = FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=5))
    results = play(strategy, grid_of(11, dict.fromkeys(range(6), poison)), START, 3)
    for arrays, metrics in results:
        assert sorted(metrics["flanders-unused-nodes"]) == [100, 101, 102, 103, 104, 105]
        assert np.abs(flat(arrays)).max() < 10


def test_a_metric_that_some_replies_lack_is_averaged_over_the_others(flower_log) -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    ((_, metrics),) = play(strategy, grid_of(5, {0: lacks("train_loss"), 1: adds(train_loss=0.9)}), START, 1)
    assert metrics["train_loss"] == pytest.approx((0.5 * (10 + 12 + 13 + 14) + 0.9 * 11) / 60)
    assert "not all replies have the same metrics" in flower_log.text


def test_a_metric_of_a_single_client_is_left_out() -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    ((_, metrics),) = play(strategy, grid_of(5, {0: adds(extra=7.0)}), START, 1)
    assert "extra" not in metrics
    assert metrics["train_loss"] == pytest.approx(0.5)


def test_rounds_that_keep_nobody_raise_an_alarm(flower_log) -> None:
    class Nobody(KeepAll):
        def select(self, scores):
            return np.arange(0)

    play(FilteredStrategy(strategies.FedAvg(), Nobody()), grid_of(4), START, 3)
    assert flower_log.text.count("nobody was kept for 3 rounds in a row") == 1
    assert [r.levelname for r in flower_log.records if "in a row" in r.getMessage()] == ["WARNING"]


@pytest.mark.parametrize("filter_", [Guard(), None], ids=["guard", "default"])
def test_metrics_of_any_form_do_not_change_what_the_filter_decides(filter_) -> None:
    odd = play(
        FilteredStrategy(strategies.FedAvg(), filter_),
        grid_of(8, {1: adds(x=1.0), 2: lacks("train_loss")}),
        START,
        3,
    )
    plain = play(FilteredStrategy(strategies.FedAvg(), filter_), grid_of(8), START, 3)
    for (arrays, _), (others, _) in zip(odd, plain, strict=True):
        np.testing.assert_array_equal(flat(arrays), flat(others))


def test_records_of_other_names_do_not_spoil_the_evaluation() -> None:
    def renamed(message):
        record = app.MetricRecord({"num-examples": 10, "eval_acc": 0.75, "eval_loss": 0.5})
        return app.Message(app.RecordDict({"mine": record}), reply_to=message)

    grid = grid_of(4)
    honest = grid.nodes[101]
    grid.nodes[101] = lambda m: (renamed if m.metadata.message_type == "evaluate" else honest)(m)
    result = FilteredStrategy(strategies.FedAvg(), KeepAll()).start(grid, START, num_rounds=2)
    assert result.evaluate_metrics_clientapp[2]["eval_acc"] == pytest.approx(0.75)


def test_clients_cannot_end_the_run_by_leaving_too_few_replies_for_the_strategy() -> None:
    """The strategy fails in the very first round, but not because of a mistake of the user."""
    strategy = FilteredStrategy(AggregatorStrategy(MultiKrum(num_malicious=1)), KeepAll())
    bad = dict.fromkeys(range(3), lacks("num-examples"))
    ((found, _),) = play(strategy, grid_of(6, bad), START, 1)
    assert found is None
    assert play(strategy, grid_of(6), START, 1, first=2)[0][0] is not None
