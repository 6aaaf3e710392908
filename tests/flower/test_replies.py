from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

import numpy as np
import pytest

from flanders import DistanceToGlobal, Flanders, KeepAll
from flanders.checks import InputError
from flanders.flower import Ban, FilteredStrategy, WeightLimits
from flower.federation import app, content, flat, grid_of, model, play, strategies

START = model((6, 7), (7,))


def sends(change):
    """Return a twist that changes the honest content in place."""

    def twist(message, honest):
        changed = change(honest)
        return app.Message(honest if changed is None else changed, reply_to=message)

    return twist


def with_array(name, array):
    def change(honest):
        honest["arrays"][name] = array

    return sends(change)


def scaled(factor, dtype="float32"):
    def change(honest):
        for name, array in honest["arrays"].items():
            honest["arrays"][name] = app.Array((factor * array.numpy()).astype(dtype))

    return sends(change)


def metric(**values):
    def change(honest):
        honest["metrics"].update({key.replace("_", "-"): value for key, value in values.items()})

    return sends(change)


def without(kind):
    return sends(lambda honest: app.RecordDict({k: v for k, v in honest.items() if k != kind}))


def claims(shape, array):
    """Return an array that says it has another shape than it has."""
    return app.Array(dtype=array.dtype, shape=shape, stype=array.stype, data=array.data)


def wide_header():
    """Return bytes whose header promises far more numbers than there are."""
    data = app.Array(np.zeros((6, 7), dtype=np.float32)).data
    return data.replace(b"(6, 7)", b"(99999, 99999, 99)", 1)


FIRST = "layer0.weight"
good = np.zeros((6, 7), dtype=np.float32)
BAD = {
    "wrong keys": (sends(lambda h: content(model((6, 7), (7,), names=["a", "b"]))), "missing 'layer0.weight'"),
    "a key too many": (with_array("more", app.Array(good)), "unknown 'more'"),
    "wrong shape": (
        with_array(FIRST, app.Array(np.zeros((7, 6), dtype=np.float32))),
        r"shape (7, 6) instead of (6, 7)",
    ),
    "a shape that is a lie": (
        with_array(FIRST, claims((6, 7), app.Array(np.zeros(2, dtype=np.float32)))),
        "shape (2,)",
    ),
    "wrong dtype": (scaled(1, "complex64"), "type complex64"),
    "integers": (scaled(1, "int32"), "type int32"),
    "NaN": (with_array(FIRST, app.Array(np.full((6, 7), np.nan, dtype=np.float32))), "is not finite"),
    "infinity": (with_array(FIRST, app.Array(np.full((6, 7), np.inf, dtype=np.float32))), "is not finite"),
    "too large for float32": (with_array(FIRST, app.Array(np.full((6, 7), 1e300))), "outside the range of float32"),
    "ten times the numbers": (
        with_array(FIRST, app.Array(np.zeros((60, 700), dtype=np.float32))),
        "is too large: 168,128 bytes",
    ),
    "garbage": (with_array(FIRST, app.Array("float32", (6, 7), "numpy.ndarray", b"garbage")), "is not readable"),
    "a pickle": (
        with_array(FIRST, app.Array("float32", (6, 7), "numpy.ndarray", b"\x80\x04K\x01.")),
        "is not readable",
    ),
    "an unknown serialisation": (with_array(FIRST, app.Array("float32", (6, 7), "magic", b"")), "is not readable"),
    "a header that promises more": (
        with_array(FIRST, app.Array("float32", (6, 7), "numpy.ndarray", wide_header())),
        "is not readable",
    ),
    "no arrays": (without("arrays"), "0 ArrayRecords instead of one"),
    "no metrics": (without("metrics"), "0 MetricRecords instead of one"),
    "no number of examples": (
        sends(lambda h: content(h["arrays"], **{"num-examples": None})),
        "'num-examples' is missing",
    ),
    "no examples": (metric(num_examples=0), "'num-examples' is 0"),
    "minus ten examples": (metric(num_examples=-10), "'num-examples' is -10"),
    "a list of examples": (metric(num_examples=[1, 2]), "'num-examples' is [1, 2]"),
    "a metric that is not finite": (metric(num_examples=float("inf")), "'num-examples' is not finite"),
    "more examples than can be counted": (
        metric(num_examples=1e308),
        "is 1e+308, more than the 9.0072e+15 allowed",
    ),
    "an integer beyond all floats": (metric(train_loss=10**400), "'train-loss' is not finite"),
    "more metrics than anyone reads": (metric(more=[0.0] * 10_001), "more than 10,000 numbers in its metrics"),
    "two replies": (lambda m, h: [app.Message(h, reply_to=m), app.Message(h, reply_to=m)], "more than one reply"),
    "an error after a reply": (
        lambda m, h: [app.Message(h, reply_to=m), app.Message(app.Error(1, "x"), reply_to=m)],
        "more than one reply",
    ),
}


@pytest.mark.parametrize(("twist", "reason"), [pytest.param(*case, id=name) for name, case in BAD.items()])
def test_a_bad_reply_costs_its_sender_the_round_and_nobody_else(twist, reason, flower_log, tmp_path) -> None:
    """Its reason is in the log and in the results file, its node in the metrics."""
    results = tmp_path / "results.sqlite"
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), results=results)
    found = play(strategy, grid_of(5, {3: twist}), START, 2)
    told = [r.getMessage() for r in flower_log.records if r.getMessage().startswith("flanders: round 2")]
    without_it = grid_of(5)
    del without_it.nodes[103]
    expected = play(FilteredStrategy(strategies.FedAvg(), KeepAll()), without_it, START, 2)
    for (arrays, metrics), (others, _) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(flat(arrays), flat(others))
        assert metrics["flanders-refused"] == 1
        assert metrics["flanders-kept"] == 4
        assert metrics["flanders-unused-nodes"] == [103]
    assert len(told) == 1
    assert "refused 103 [" in told[0]
    assert reason in told[0]
    with sqlite3.connect(results) as db:
        rows = db.execute("SELECT client, fate, malicious FROM client WHERE round = 2").fetchall()
        ((why,),) = db.execute("SELECT reason FROM client WHERE round = 2 AND client = '103'").fetchall()
    assert rows == [(str(i), "refused" if i == 103 else "kept", None) for i in range(100, 105)]
    assert reason in why


def test_a_failing_and_a_silent_client_cost_nothing_but_themselves(flower_log) -> None:
    twists = {
        1: lambda message, honest: app.Message(app.Error(0, "out of\nmemory"), reply_to=message),
        2: lambda message, honest: None,
    }
    ((arrays, metrics),) = play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(4, twists), START, 1)
    assert metrics["flanders-silent"] == 2
    assert metrics["flanders-kept"] == 2
    assert np.isfinite(flat(arrays)).all()
    assert "silent 101 [error: out of memory], 102 [no reply]" in flower_log.text


def test_the_links_own_reply_for_a_dead_node_counts_for_that_node() -> None:
    def dead(message, honest):
        reply = app.Message(app.Error(5, "node unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    play(strategy, grid_of(3, {0: dead}), START, 1)
    fates = {int(c.client): c.fate for c in strategy.last_round.clients}
    assert fates == {100: "silent", 101: "kept", 102: "kept"}


@pytest.mark.parametrize("filter_", [KeepAll(), Flanders(keep=0.8), DistanceToGlobal(keep=2)], ids=repr)
def test_without_any_reply_the_round_ends_and_the_model_stays(filter_, flower_log) -> None:
    nobody = {i: lambda message, honest: None for i in range(3)}
    strategy = FilteredStrategy(strategies.FedAvg(), filter_)
    ((arrays, metrics),) = play(strategy, grid_of(3, nobody), START, 1)
    assert arrays is None
    assert metrics["flanders-silent"] == 3
    assert "no reply can be used: the global model stays" in flower_log.text
    (_, (again, _)) = play(strategy, grid_of(3), START, 2, first=2)
    assert again is not None


def test_a_ten_times_larger_step_is_a_matter_for_the_filter() -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=0.75))
    ((_, metrics),) = play(strategy, grid_of(4, {2: scaled(10)}), START, 1)
    assert metrics["flanders-unused-nodes"] == [102]
    assert metrics["flanders-dropped"] == 1
    assert metrics["flanders-refused"] == 0


def test_a_reply_to_no_message_of_the_round_is_ignored(flower_log) -> None:
    kept = []

    def late(message, honest):
        """Answer the message of the last round."""
        kept.append(message)
        return app.Message(honest, reply_to=kept[0])

    (_, (_, metrics)) = play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(3, {1: late}), START, 2)
    assert metrics["flanders-silent"] == 1
    assert metrics["flanders-kept"] == 2
    assert "ignored a reply from node 101 that answers no message of this round" in flower_log.text


def test_a_client_is_who_was_asked_not_who_it_says_it_is(flower_log) -> None:
    """Node 101 answers in the name of 102, whose own reply still counts."""

    def impostor(message, honest):
        forged = app.Message(honest, reply_to=message)
        forged.metadata.__dict__["_src_node_id"] = 102
        return forged

    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    play(strategy, grid_of(4, {1: impostor}), START, 1)
    fates = {int(c.client): c.fate for c in strategy.last_round.clients}
    assert fates == {100: "kept", 101: "silent", 102: "kept", 103: "kept"}
    assert "ignored a reply from node 102 that answers a message for node 101" in flower_log.text


def test_answering_another_nodes_message_does_not_cost_that_node_the_round() -> None:
    grid = grid_of(4)

    def meddler(message, honest):
        victims = [m for m in grid.sent if m.metadata.dst_node_id == 100]
        forged = app.Message(honest, reply_to=victims[-1])
        forged.metadata.__dict__["_src_node_id"] = 103
        return [forged, app.Message(honest, reply_to=message)]

    grid.nodes[103].twist = meddler
    strategy = FilteredStrategy(OrderedFedAvg(), KeepAll())
    play(strategy, grid, START, 1)
    assert [c.fate for c in strategy.last_round.clients] == ["kept"] * 4


def test_an_error_in_another_nodes_name_does_not_cost_that_node_the_round(flower_log) -> None:
    grid = grid_of(4)

    def meddler(message, honest):
        victims = [m for m in grid.sent if m.metadata.dst_node_id == 100]
        forged = app.Message(app.Error(0, "boom"), reply_to=victims[-1])
        forged.metadata.__dict__["_src_node_id"] = 103
        return [forged, app.Message(honest, reply_to=message)]

    grid.nodes[103].twist = meddler
    ((_, metrics),) = play(FilteredStrategy(OrderedFedAvg(), KeepAll()), grid, START, 1)
    assert metrics["flanders-kept"] == 4
    assert "ignored a reply from node 103 that answers a message for node 100" in flower_log.text


class OrderedFedAvg(strategies.FedAvg):
    """Asks nodes in order, so that a test knows who has been asked before."""

    def _construct_messages(self, record, node_ids, message_type):
        return super()._construct_messages(record, sorted(node_ids), message_type)


def test_claims_of_more_examples_than_allowed_are_refused() -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), limits=WeightLimits(max_examples=100))
    ((_, metrics),) = play(strategy, grid_of(4, {2: metric(num_examples=10**9)}), START, 1)
    assert metrics["flanders-refused"] == 1
    assert metrics["flanders-unused-nodes"] == [102]


def test_together_clients_cannot_claim_more_examples_than_can_be_counted() -> None:
    twists = {1: metric(num_examples=1e308), 2: metric(num_examples=1e308)}
    ((arrays, metrics),) = play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(5, twists), START, 1)
    assert arrays is not None
    assert metrics["flanders-unused-nodes"] == [101, 102]


def test_what_is_told_of_a_reply_is_short(flower_log) -> None:
    twists = {
        1: metric(num_examples=[0.5] * 10**5),
        2: metric(**{"k" * 10**5: float("nan")}),
        3: lambda message, honest: app.Message(app.Error(0, "x" * 10**5), reply_to=message),
    }
    play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(5, twists), START, 1)
    (line,) = [r.getMessage() for r in flower_log.records if r.getMessage().startswith("flanders: round 1")]
    assert len(line) < 600
    assert f"metric '{'k' * 60}' is not finite" in line


def test_in_a_round_that_the_filter_cannot_judge_the_model_stays(flower_log) -> None:
    class Picky(KeepAll):
        def select(self, scores):
            raise InputError("Too few.")

    ((arrays, metrics),) = play(FilteredStrategy(strategies.FedAvg(), Picky()), grid_of(4), START, 1)
    assert arrays is None
    assert metrics["flanders-kept"] == 0
    assert metrics["flanders-stayed"] == 1
    assert "the filter cannot judge this round (Too few.): the global model stays" in flower_log.text


def test_a_strict_wrapper_raises_what_the_filter_and_the_strategy_raise() -> None:
    class Picky(KeepAll):
        def select(self, scores):
            raise InputError("Too few.")

    with pytest.raises(InputError, match=r"Too few\."):
        play(strict(FilteredStrategy(strategies.FedAvg(), Picky())), grid_of(4), START, 1)
    with pytest.raises(ZeroDivisionError):
        play(strict(FilteredStrategy(Moody(), KeepAll())), grid_of(3), START, 3)


def test_a_strategy_that_never_works_is_the_users_to_mend() -> None:
    """Flower's QFedAvg wants the training loss under a name that these clients do not use."""
    strategy = FilteredStrategy(strategies.QFedAvg(client_learning_rate=0.1, train_loss_key="lost"), KeepAll())
    with pytest.raises(InputError, match=r"All 3 replies of round 1 are refused .*: metric 'lost' is missing\."):
        play(strategy, grid_of(3), START, 1)


def broken(records, key):
    raise KeyError("my-metric")


def test_a_fallback_that_works_does_not_hide_a_strategy_that_never_does() -> None:
    bad = strategies.FedAvg(train_metrics_aggr_fn=broken)
    strategy = FilteredStrategy(bad, Flanders(keep=0.8), fallback=strategies.FedMedian())
    play(strategy, grid_of(5), START, 1)
    with pytest.raises(KeyError, match="my-metric"):
        play(strategy, grid_of(5), START, 1, first=2)


def test_a_fallback_that_cannot_work_says_what_is_called_of_it() -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.8), fallback=strategies.FedAdam())
    with pytest.raises(InputError, match=r"`fallback` FedAdam failed .* Only its `aggregate_train` is called"):
        play(strategy, grid_of(5), START, 1)


class Moody(strategies.FedAvg):
    """Fails in the third round."""

    def aggregate_train(self, server_round, replies):
        if server_round == 3:
            raise ZeroDivisionError("division by zero")
        return super().aggregate_train(server_round, replies)

    def aggregate_evaluate(self, server_round, replies):
        if server_round == 3:
            raise ZeroDivisionError("division by zero")
        return super().aggregate_evaluate(server_round, replies)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_strategy_that_fails_later_costs_the_round_not_the_run(restarted, flower_log, tmp_path) -> None:
    def make():
        return FilteredStrategy(Moody(), KeepAll(), state_dir=tmp_path)

    strategy = make()
    strategy.start(grid_of(3), START, num_rounds=2)
    result = (make() if restarted else strategy).start(grid_of(3), START, num_rounds=4)
    assert list(result.evaluate_metrics_clientapp) == [4]
    assert "Moody failed (ZeroDivisionError: division by zero): the global model stays" in flower_log.text
    assert "flanders: Moody failed to evaluate" in flower_log.text


def test_an_evaluation_that_never_works_is_the_users_to_mend() -> None:
    strategy = FilteredStrategy(strategies.FedAvg(evaluate_metrics_aggr_fn=broken), KeepAll())
    with pytest.raises(KeyError, match="my-metric"):
        strategy.start(grid_of(3), START, num_rounds=1)


def test_a_reason_to_refuse_everybody_from_the_start_is_the_users_to_mend() -> None:
    forgetful = sends(lambda honest: content(honest["arrays"], **{"num-examples": None}))
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), ban=Ban(after=1, rounds=5))
    everybody = grid_of(3, dict.fromkeys(range(3), forgetful))
    with pytest.raises(InputError, match=r"All 3 replies of round 1 .*: metric 'num-examples' is missing\."):
        play(strategy, everybody, START, 1)
    assert strategy._books.memory.bans.offences == {}
    play(strategy, grid_of(3), START, 1)
    (found,) = play(strategy, everybody, START, 1, first=2)
    assert found[1]["flanders-refused"] == 3


def test_one_bad_reply_does_not_end_the_run_though_nobody_else_has_replied() -> None:
    twists = {0: metric(num_examples=0), 1: lambda message, honest: None}
    ((arrays, _),) = play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(2, twists), START, 1)
    assert arrays is None


def test_an_aggregate_that_is_not_finite_is_not_used(flower_log) -> None:
    class Overflowing(strategies.FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            arrays["layer1.weight"] = app.Array(np.full(7, np.inf, dtype=np.float32))
            return arrays, metrics

    ((arrays, _),) = play(FilteredStrategy(Overflowing(), KeepAll()), grid_of(3), START, 1)
    assert arrays is None
    assert "or too large for the types of the model: the global model stays" in flower_log.text


def test_bulyan_with_too_few_replies_keeps_the_model(flower_log) -> None:
    strategy = FilteredStrategy(strategies.Bulyan(num_malicious_nodes=1), DistanceToGlobal(keep=0.5))
    ((arrays, _),) = play(strategy, grid_of(8), START, 1)
    assert arrays is None
    assert "the strategy returned no model: the global model stays" in flower_log.text


def evaluating(node, reply):
    """Return a node that trains as it did and evaluates in another way."""
    return lambda message: (reply if message.metadata.message_type == "evaluate" else node)(message)


def with_metrics(**metrics):
    record = app.MetricRecord({key.replace("_", "-"): value for key, value in metrics.items()})
    return lambda message: app.Message(app.RecordDict({"metrics": record}), reply_to=message)


def test_a_bad_evaluation_does_not_end_the_run(flower_log) -> None:
    grid = grid_of(4)
    grid.nodes[101] = evaluating(grid.nodes[101], with_metrics(whatever=1))
    result = FilteredStrategy(strategies.FedAvg(), KeepAll()).start(grid, START, num_rounds=2)
    assert dict(result.evaluate_metrics_clientapp[2]) == {"eval_acc": 0.75, "eval_loss": 0.5}
    assert "evaluation of round 2: refused 101 [metric 'num-examples' is missing]" in flower_log.text


def test_an_evaluation_that_claims_more_examples_than_allowed_is_refused(flower_log) -> None:
    grid = grid_of(4)
    grid.nodes[101] = evaluating(grid.nodes[101], with_metrics(num_examples=10**9, eval_acc=0.0, eval_loss=9.0))
    result = FilteredStrategy(strategies.FedAvg(), KeepAll(), limits=WeightLimits(max_examples=100)).start(
        grid, START, num_rounds=1
    )
    assert dict(result.evaluate_metrics_clientapp[1]) == {"eval_acc": 0.75, "eval_loss": 0.5}
    assert (
        "evaluation of round 1: refused 101 [metric 'num-examples' is 1e+09, more than the 100" in flower_log.text
    )


def test_many_failed_evaluations_are_one_line_that_names_some(flower_log) -> None:
    grid = grid_of(30)
    grid.nodes = {id_: evaluating(node, lambda message: None) for id_, node in grid.nodes.items()}
    FilteredStrategy(strategies.FedAvg(), KeepAll()).start(grid, START, num_rounds=1)
    (line,) = [r.getMessage() for r in flower_log.records if "evaluation of" in r.getMessage()]
    assert line.count("[no reply]") == 20
    assert line.endswith(" and 10 more")


def test_all_numbers_in_the_result_are_json() -> None:
    result = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.5)).start(grid_of(4), START, num_rounds=2)
    json.dumps({number: dict(record) for number, record in result.train_metrics_clientapp.items()})


def strict(strategy):
    strategy.strict = True
    return strategy


def test_what_clients_send_as_text_does_not_control_the_terminal_of_the_log(flower_log) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\r\n\u202e\u200bround 1: kept 4 of 4 replies"

    def fail(message: Any, honest: Any) -> Any:
        return app.Message(app.Error(code=1, reason=nasty), reply_to=message)

    def rename(message: Any, honest: Any) -> Any:
        arrays = {nasty + name: array for name, array in honest["arrays"].items()}
        return app.Message(content(app.ArrayRecord(arrays)), reply_to=message)

    def measure(message: Any, honest: Any) -> Any:
        return app.Message(content(honest["arrays"], **{nasty: 1.0, "num-examples": -1}), reply_to=message)

    grid = grid_of(6, {1: fail, 2: rename, 3: measure})
    strategy = FilteredStrategy(strategies.FedAvg())
    play(strategy, grid, model((4, 3)), 2)
    assert "silent 101 [error: " in flower_log.text
    for record in flower_log.records:
        assert not set(record.getMessage()) & set("\x1b\x07\r\n\u202e\u200b"), record.getMessage()
    for client in strategy.last_round.clients:
        assert client.reason.isprintable()


def lines_run(count: int) -> int:
    """Return how many lines of this package run in a round in which all replies but two are refused."""

    def spoil(message: Any, honest: Any) -> Any:
        return app.Message(content(model((4, 4))), reply_to=message)

    grid = grid_of(count, dict.fromkeys(range(2, count), spoil))
    strategy = FilteredStrategy(strategies.FedAvg(), ban=Ban(after=2))
    arrays, lines = model((4, 3)), 0
    messages = strategy.configure_train(1, arrays, app.ConfigRecord(), grid)
    replies = grid.send_and_receive(messages)

    def count_lines(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: count_lines if "flanders" in frame.f_code.co_filename else None)
    try:
        strategy.aggregate_train(1, replies)
    finally:
        sys.settrace(before)
    return lines


def test_the_cost_of_refusals_grows_with_their_number_and_no_faster() -> None:
    few, many = lines_run(100), lines_run(400)
    assert many < 5 * few
