from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal, Flanders
from flanders.aggregators import Bucketing, CenteredClipping, FedAvg, Median, MultiKrum, Nnm, TrimmedMean
from flanders.checks import InputError
from flanders.flower import AggregatorStrategy, FilteredStrategy
from flower.federation import app, flat, grid_of, model, play, strategies

START = model((6, 7), (7,))
AGGREGATORS = [FedAvg(), Median(), TrimmedMean(1), MultiKrum(2), CenteredClipping(), Nnm(1) | Median()]


def replies_of(strategy, grid, arrays):
    return list(grid.send_and_receive(strategy.configure_train(1, arrays, app.ConfigRecord(), grid)))


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_new_model_is_what_the_aggregator_makes_of_the_replies(aggregator, dtype) -> None:
    start, strategy = model((6, 7), (7,), dtype=dtype), AggregatorStrategy(aggregator)
    replies = sorted(replies_of(strategy, grid_of(9), start), key=lambda reply: reply.metadata.src_node_id)
    found, metrics = strategy.aggregate_train(1, replies)
    rows = np.stack([np.concatenate([a.numpy().ravel() for a in r.content["arrays"].values()]) for r in replies])
    weights = [r.content["metrics"]["num-examples"] for r in replies]
    before = np.concatenate([a.numpy().ravel() for a in start.values()])
    expected = aggregator(rows, weights, global_model=before)
    np.testing.assert_array_equal(np.concatenate([a.numpy().ravel() for a in found.values()]), expected)
    assert [(a.dtype, a.shape) for a in found.values()] == [(a.dtype, a.shape) for a in start.values()]
    assert metrics["train_loss"] == pytest.approx(0.5)


def test_the_average_is_that_of_flowers_own_strategy() -> None:
    (ours, _), (theirs, _) = (
        play(strategy, grid_of(6), START, 2)[-1] for strategy in (AggregatorStrategy(FedAvg()), strategies.FedAvg())
    )
    np.testing.assert_allclose(flat(ours), flat(theirs), rtol=1e-6)


def test_buffers_and_integers_are_averaged_whatever_the_aggregator() -> None:
    start = model((4, 5), (5,), names=["w", "bn.running_mean"])
    start["bn.num_batches_tracked"] = app.Array(np.asarray(3))
    ((found, _),) = play(AggregatorStrategy(Median()), grid_of(5), start, 1)
    ((mean, _),) = play(strategies.FedAvg(), grid_of(5), start, 1)
    assert found["bn.num_batches_tracked"].numpy() == np.asarray(4)
    assert found["bn.num_batches_tracked"].dtype == "int64"
    np.testing.assert_allclose(found["bn.running_mean"].numpy(), mean["bn.running_mean"].numpy(), rtol=1e-6)
    assert not np.allclose(found["w"].numpy(), mean["w"].numpy())


def test_the_same_seed_gives_the_same_bytes() -> None:
    def last(seed):
        return flat(play(AggregatorStrategy(Bucketing(2) | Median(), seed=seed), grid_of(7), START, 2)[-1][0])

    np.testing.assert_array_equal(last(1), last(1))
    assert not np.array_equal(last(1), last(2))


def test_inside_the_filter_it_sees_the_kept_replies_alone() -> None:
    def loud(message, honest):
        for name, array in honest["arrays"].items():
            honest["arrays"][name] = app.Array((50 * array.numpy()).astype(np.float32))
        return app.Message(honest, reply_to=message)

    filtered = FilteredStrategy(AggregatorStrategy(MultiKrum(1)), DistanceToGlobal(keep=7))
    ((found, metrics),) = play(filtered, grid_of(8, {3: loud}), START, 1)
    assert metrics["flanders-unused-nodes"] == [103]
    without = grid_of(8)
    del without.nodes[103]
    ((expected, _),) = play(
        FilteredStrategy(AggregatorStrategy(MultiKrum(1)), DistanceToGlobal(keep=7)), without, START, 1
    )
    np.testing.assert_array_equal(flat(found), flat(expected))


def test_as_a_fallback_it_knows_the_global_model() -> None:
    clipping = CenteredClipping()
    fallback = AggregatorStrategy(clipping)
    filtered = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.75), fallback=fallback)
    ((found, _),) = play(filtered, grid_of(5), START, 1)
    ((expected, _),) = play(AggregatorStrategy(clipping), grid_of(5), START, 1)
    np.testing.assert_allclose(flat(found), flat(expected), rtol=1e-6)


def test_without_the_global_model_it_says_what_to_call() -> None:
    strategy, other = AggregatorStrategy(Median()), AggregatorStrategy(Median())
    replies = replies_of(strategy, grid_of(3), START)
    with pytest.raises(InputError, match=r"needs the global model .* Call `configure_train` or `begin_round`"):
        other.aggregate_train(1, replies)


def test_without_replies_there_is_no_new_model() -> None:
    assert AggregatorStrategy(Median()).aggregate_train(1, []) == (None, None)


def sends(name, array):
    def twist(message, honest):
        honest["arrays"][name] = array
        return app.Message(honest, reply_to=message)

    return twist


def without_weight(message, honest):
    del honest["metrics"]["num-examples"]
    return app.Message(honest, reply_to=message)


@pytest.mark.parametrize(
    "twist",
    [
        sends("layer0.weight", app.Array(np.zeros((3, 3), dtype=np.float32))),
        sends("layer0.weight", app.Array(np.full((6, 7), np.nan, dtype=np.float32))),
        sends("layer0.weight", app.Array(np.zeros((6, 7), dtype=np.complex64))),
        sends("layer0.weight", app.Array("float32", (6, 7), "numpy.ndarray", b"junk")),
        sends("more", app.Array(np.zeros(3, dtype=np.float32))),
        without_weight,
    ],
    ids=["shape", "nan", "complex", "junk", "more", "no weight"],
)
def test_without_a_filter_too_a_bad_reply_is_left_out(twist, flower_log) -> None:
    start, twin = model((6, 7)), grid_of(5)
    ((arrays, _),) = play(AggregatorStrategy(Median()), grid_of(5, {2: twist}), start, 1)
    del twin.nodes[102]
    ((expected, _),) = play(AggregatorStrategy(Median()), twin, start, 1)
    np.testing.assert_array_equal(flat(arrays), flat(expected))
    assert "refused what node 102 sent" in flower_log.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregator": strategies.FedAvg}, r"must be an Aggregator, e.g. Median\(\)"),
        ({"aggregator": Median(), "unscored": 3}, "must be a function"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(options, message) -> None:
    with pytest.raises(InputError, match=f"of AggregatorStrategy {message}.* Got .* instead"):
        AggregatorStrategy(**options)
