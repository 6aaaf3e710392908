from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal, Flanders, Guard, KeepAll
from flanders.checks import InputError
from flanders.flower import FilteredStrategy
from flower.federation import app, content, flat, grid_of, model, play, strategies
from peers import flower

SAMPLING = {"min_train_nodes": 12, "min_available_nodes": 12}


def dp(inner):
    return strategies.DifferentialPrivacyServerSideFixedClipping(
        inner, noise_multiplier=1e-9, clipping_norm=5.0, num_sampled_clients=9
    )


def client_dp(inner):
    return strategies.DifferentialPrivacyClientSideFixedClipping(
        inner, noise_multiplier=1e-9, clipping_norm=5.0, num_sampled_clients=9
    )


STRATEGIES = {
    "FedAvg": lambda: strategies.FedAvg(**SAMPLING),
    "FedMedian": lambda: strategies.FedMedian(**SAMPLING),
    "FedTrimmedAvg": lambda: strategies.FedTrimmedAvg(beta=0.2, **SAMPLING),
    "Krum": lambda: strategies.Krum(num_malicious_nodes=2, **SAMPLING),
    "MultiKrum": lambda: strategies.MultiKrum(num_malicious_nodes=2, num_nodes_to_select=5, **SAMPLING),
    "Bulyan": lambda: strategies.Bulyan(num_malicious_nodes=1, **SAMPLING),
    "FedAdam": lambda: strategies.FedAdam(**SAMPLING),
    "FedYogi": lambda: strategies.FedYogi(**SAMPLING),
    "FedAdagrad": lambda: strategies.FedAdagrad(**SAMPLING),
    "FedAvgM": lambda: strategies.FedAvgM(server_momentum=0.9, **SAMPLING),
    "FedProx": lambda: strategies.FedProx(proximal_mu=0.1, **SAMPLING),
    "QFedAvg": lambda: strategies.QFedAvg(client_learning_rate=0.1, q=0.2, **SAMPLING),
    "server-side DP": lambda: dp(strategies.FedAvg(**SAMPLING)),
    "client-side DP": lambda: client_dp(strategies.FedAvg(**SAMPLING)),
}


def kept_only(replies, nodes):
    """Return these nodes' replies in the order in which the wrapper hands them on."""
    return sorted(
        (r for r in replies if r.metadata.src_node_id in nodes), key=lambda r: str(r.metadata.src_node_id)
    )


@pytest.mark.parametrize("make", [pytest.param(f, id=name) for name, f in STRATEGIES.items()])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_aggregate_is_the_bare_strategys_of_the_kept_replies(make, dtype) -> None:
    """Three rounds with a batch normalisation layer. The aggregate gets the types of the first model."""
    names = ["w", "bn.weight", "bn.running_mean", "bn.num_batches_tracked"]
    start = model((4, 5), (5,), (5,), dtype=dtype, names=names[:3])
    if make is not STRATEGIES["QFedAvg"]:  # which calculates in place, and cannot in integers
        start[names[3]] = app.Array(np.asarray(3, dtype=np.int64))
    filtered, bare = FilteredStrategy(make(), DistanceToGlobal(keep=0.75), seed=1), make()
    grid, twin = grid_of(12), grid_of(12)
    arrays = start
    for number in (1, 2, 3):
        replies = grid.send_and_receive(filtered.configure_train(number, arrays, app.ConfigRecord(), grid))
        np.random.seed(number)  # noqa: NPY002 - for the noise of Flower's privacy wrappers
        found, metrics = filtered.aggregate_train(number, replies)
        kept = {int(client.client) for client in filtered.last_round.clients if client.kept}
        assert len(kept) == 9
        theirs = twin.send_and_receive(bare.configure_train(number, arrays, app.ConfigRecord(), twin))
        np.random.seed(number)  # noqa: NPY002
        expected, their_metrics = bare.aggregate_train(number, kept_only(theirs, kept))
        assert list(found) == list(expected)
        for name in expected:
            numbers, dtype = expected[name].numpy(), start[name].numpy().dtype
            numbers = np.asarray(np.rint(numbers) if dtype.kind == "i" else numbers, dtype=dtype)
            np.testing.assert_array_equal(found[name].numpy(), numbers, strict=True)
        assert {k: v for k, v in metrics.items() if not k.startswith("flanders-")} == dict(their_metrics)
        arrays = found


def test_a_large_step_is_dropped_every_round_and_the_others_are_kept() -> None:
    def loud(message, honest):
        record = honest["arrays"]
        for name in record:
            record[name] = app.Array((100 * record[name].numpy()).astype(np.float32))
        return app.Message(honest, reply_to=message)

    strategy = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.75), fallback=strategies.FedMedian(), seed=0)
    grid = grid_of(8, {2: loud, 5: loud})
    results = play(strategy, grid, model((6, 7), (7,)), 4)
    for _, metrics in results:  # in the first round by their length alone
        assert sorted(metrics["flanders-unused-nodes"]) == [102, 105]
    assert np.abs(flat(results[-1][0])).max() < 10


def test_the_filter_may_be_left_out() -> None:
    assert FilteredStrategy(strategies.FedAvg()).filter == Guard()


def test_the_fallback_aggregates_while_there_are_no_scores() -> None:
    filtered = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.75), fallback=strategies.FedMedian())
    bare = strategies.FedMedian()
    start = model((6, 7))
    (found, _), (second, _) = play(filtered, grid_of(5), start, 2)
    (expected, _), (other, _) = play(bare, grid_of(5), start, 2)
    np.testing.assert_array_equal(flat(found), flat(expected))
    assert not np.array_equal(flat(second), flat(other))


def test_buffers_and_integers_are_aggregated_but_not_scored() -> None:
    def odd_buffers(message, honest):
        record = honest["arrays"]
        record["bn.running_mean"] = app.Array(np.full(5, 20, dtype=np.float32))
        record["bn.num_batches_tracked"] = app.Array(np.asarray(40))
        return app.Message(honest, reply_to=message)

    start = model((4, 5), (5,), names=["w", "bn.running_mean"])
    start["bn.num_batches_tracked"] = app.Array(np.asarray(0))
    twisted = play(
        FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=3)), grid_of(4, {1: odd_buffers}), start, 1
    )
    plain = play(FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=3)), grid_of(4), start, 1)
    assert twisted[0][1]["flanders-unused-nodes"] == plain[0][1]["flanders-unused-nodes"]
    assert twisted[0][1]["flanders-threshold"] == plain[0][1]["flanders-threshold"]
    assert (twisted[0][0]["bn.running_mean"].numpy() > 5).all()


def test_a_client_may_send_its_arrays_in_any_order() -> None:
    """Flower's median goes by the order of the arrays, whatever their names."""

    def reversed_(message, honest):
        arrays = app.ArrayRecord(dict(reversed(list(honest["arrays"].items()))))
        return app.Message(content(arrays, **{"num-examples": 11}), reply_to=message)

    start = model((5, 5), (5, 5), (5, 5))
    expected = play(FilteredStrategy(strategies.FedMedian(), KeepAll()), grid_of(5), start, 1)
    found = play(FilteredStrategy(strategies.FedMedian(), KeepAll()), grid_of(5, {1: reversed_}), start, 1)
    np.testing.assert_array_equal(flat(found[0][0]), flat(expected[0][0]))


WRONG = {
    "strategy": ("fedavg", "must be a Strategy"),
    "filter": (Flanders, "must be a Filter"),
    "fallback": ("median", "must be a Strategy"),
    "ban": (3, "must be a Ban"),
    "sketch": (1.5, "must be a whole number of at least 2"),
    "limits": (3.0, "must be a WeightLimits"),
    "seed": ("x", "must be a whole number of at least 0"),
    "identify": ("name", "must be a function"),
    "unscored": (["a"], "must be a function"),
    "state_dir": ("", "must be a path that is not empty"),
    "results": ("", "must be a path that is not empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_used_is_refused_at_once(name) -> None:
    value, expected = WRONG[name]
    with pytest.raises(InputError, match=f"The `{name}` parameter of FilteredStrategy {expected}.* Got .* instead"):
        FilteredStrategy(**{"strategy": strategies.FedAvg(), name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_rounds": "3"}, "must be a whole number"), ({"initial_arrays": {"a": 1}}, "must be an ArrayRecord")],
)
def test_what_cannot_be_started_with_is_refused_at_once(options, message) -> None:
    strategy = FilteredStrategy(strategies.FedAvg())
    with pytest.raises(
        InputError, match=f"The `{next(iter(options))}` parameter of FilteredStrategy.start {message}"
    ):
        strategy.start(**{"grid": grid_of(3), "initial_arrays": model((6, 7)), **options})


def test_a_strategy_of_the_older_interface_is_told_where_to_go() -> None:
    with pytest.raises(InputError, match=r"there is flanders\.flower\.legacy\.FilteredLegacyStrategy\."):
        FilteredStrategy(flower("server.strategy").FedAvg())


@pytest.mark.parametrize(
    ("identify", "message"),
    [
        (
            lambda node: "hospital",
            "must give each node a name of its own. It named both node 10[0-2] and node 10[0-2] 'hospital'",
        ),
        (lambda node: None, "must name clients by ints or strings. It named node 10[0-2] None"),
    ],
)
def test_clients_without_names_of_their_own_are_the_users_to_mend(identify, message) -> None:
    with pytest.raises(InputError, match=f"`identify=` {message}"):
        play(FilteredStrategy(strategies.FedAvg(), KeepAll(), identify=identify), grid_of(3), model((6, 7)), 1)


def test_a_model_without_anything_to_score_is_refused() -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    with pytest.raises(InputError, match="nothing to score in the 1 arrays"):
        play(strategy, grid_of(3), model((3,), dtype="int64"), 1)


@pytest.mark.parametrize(
    ("value", "why"), [(np.nan, "is not finite"), (1e300, "has numbers outside the range of float32")]
)
def test_a_model_to_start_from_that_is_not_finite_or_too_large_is_refused(value, why) -> None:
    start = model((6, 7), (7,), dtype="float64")
    start["layer1.weight"] = app.Array(np.full(7, value))
    grid = grid_of(3)
    with pytest.raises(InputError, match=rf"`initial_arrays` cannot be used: array 'layer1.weight' {why}\."):
        FilteredStrategy(strategies.FedAvg(), KeepAll()).start(grid, start, num_rounds=1)
    assert grid.sent == []


def test_start_runs_the_rounds_and_the_result_holds_every_verdict(flower_log) -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.75))
    evaluated = []

    def evaluate(number, arrays):
        evaluated.append(number)
        return app.MetricRecord({"accuracy": 0.1 * number})

    result = strategy.start(grid_of(8), model((6, 7)), num_rounds=3, evaluate_fn=evaluate)
    assert evaluated == [0, 1, 2, 3]
    assert list(result.train_metrics_clientapp) == [1, 2, 3]
    last = result.train_metrics_clientapp[3]
    assert last["flanders-kept"] == 6
    assert last["flanders-dropped"] == 2
    assert last["flanders-nodes"] == list(range(100, 108))
    assert last["flanders-fates"].count(0) == 6
    assert last["flanders-fates"].count(1) == 2
    scores = np.array(last["flanders-scores"])
    kept = np.array(last["flanders-fates"]) == 0
    assert scores[kept].max() == last["flanders-threshold"] < scores[~kept].min()
    assert "flanders: round 3: kept 6 of 8 replies; dropped 1" in flower_log.text
