from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from flanders import DistanceToGlobal, Flanders
from flanders.checks import InputError
from flanders.flower.legacy import FilteredLegacyStrategy
from peers import flower

common = flower("common")
legacy = flower("server.strategy")


def result(arrays, examples=10):
    status = common.Status(common.Code.OK, "")
    return common.FitRes(status, common.ndarrays_to_parameters(arrays), examples, {})


def model(seed, size=1.0):
    rng = np.random.default_rng(seed)
    return [(size * rng.normal(size=s)).astype(np.float32) for s in ((4, 5), (5,))]


NOBODY = SimpleNamespace(num_available=lambda: 0, sample=lambda **_: [])


def strategy_after_configuring(make, filter_, sent=None):
    strategy = FilteredLegacyStrategy(make(), filter_)
    strategy.configure_fit(1, common.ndarrays_to_parameters(sent or model(99)), NOBODY)
    return strategy


@pytest.mark.parametrize("make", [legacy.FedAvg, legacy.FedMedian, lambda: legacy.FedTrimmedAvg(beta=0.2)])
def test_the_aggregate_is_the_bare_strategys_of_the_kept_results(make) -> None:
    replies = [(SimpleNamespace(cid=str(i)), result(model(i, 50.0 if i == 3 else 1.0), 5 + i)) for i in range(6)]
    found, metrics = strategy_after_configuring(make, DistanceToGlobal(keep=5)).aggregate_fit(1, replies, [])
    expected, _ = make().aggregate_fit(1, [r for i, r in enumerate(replies) if i != 3], [])
    for a, b in zip(common.parameters_to_ndarrays(found), common.parameters_to_ndarrays(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (metrics["flanders-kept"], metrics["flanders-dropped"]) == (5, 1)


@pytest.mark.parametrize(
    "bad",
    [
        result([np.full((4, 5), np.nan, dtype=np.float32), np.zeros(5, dtype=np.float32)]),
        result([np.zeros((5, 4), dtype=np.float32), np.zeros(5, dtype=np.float32)]),
        result([np.zeros((4, 5), dtype=np.float32)]),
        common.FitRes(common.Status(common.Code.OK, ""), common.Parameters([b"junk"] * 2, "numpy.ndarray"), 1, {}),
        result([np.zeros((4, 5), dtype=np.int64), np.zeros(5, dtype=np.float32)]),
        result([np.zeros((4, 5), dtype=np.complex64), np.zeros(5, dtype=np.float32)]),
        result([np.full((4, 5), 1e300), np.zeros(5)]),
        result(model(1), examples=0),
        result(model(1), examples=-39),
        result(model(1), examples=10**400),
    ],
    ids=[
        "nan",
        "shape",
        "missing",
        "junk",
        "integers",
        "complex",
        "large",
        "none",
        "negative",
        "more than can be counted",
    ],
)
def test_a_bad_result_costs_its_sender_the_round(bad, flower_log) -> None:
    replies = [(SimpleNamespace(cid=str(i)), result(model(i))) for i in range(3)]
    strategy = strategy_after_configuring(legacy.FedAvg, Flanders(keep=0.8))
    found, _ = strategy.aggregate_fit(1, [*replies, (SimpleNamespace(cid="bad"), bad)], [])
    expected, _ = legacy.FedAvg().aggregate_fit(1, replies, [])
    assert found == expected
    assert "refused what bad sent" in flower_log.text
    assert strategy.aggregate_fit(2, [(SimpleNamespace(cid="bad"), bad)], []) == (None, {})


def test_integers_that_an_aggregate_turns_into_floats_come_back_as_integers() -> None:
    """The median of a counter has fractions; clients that count go on to send whole numbers."""
    counted = [*model(99), np.asarray([3])]
    replies = [(SimpleNamespace(cid=str(i)), result([*model(i), np.asarray([i])])) for i in range(4)]
    strategy = strategy_after_configuring(legacy.FedMedian, DistanceToGlobal(keep=0.75), counted)
    for number in (1, 2):
        found, metrics = strategy.aggregate_fit(number, replies, [])
        assert metrics["flanders-kept"] == 3
        strategy.configure_fit(number + 1, found, NOBODY)
        assert [array.dtype for array in common.parameters_to_ndarrays(found)] == [a.dtype for a in counted]


def test_who_is_dropped_and_why_is_told(flower_log) -> None:
    replies = [(SimpleNamespace(cid=str(i)), result(model(i, 50.0 if i == 3 else 1.0))) for i in range(6)]
    strategy_after_configuring(legacy.FedAvg, DistanceToGlobal(keep=5)).aggregate_fit(1, replies, [])
    assert "flanders: round 1: dropped 3 [score " in flower_log.text


def test_a_round_that_the_filter_cannot_judge_leaves_the_parameters_as_they_are(flower_log) -> None:
    class Picky(DistanceToGlobal):
        def select(self, scores):
            raise InputError("too few")

    replies = [(SimpleNamespace(cid=str(i)), result(model(i))) for i in range(3)]
    found, metrics = strategy_after_configuring(legacy.FedAvg, Picky(keep=0.5)).aggregate_fit(1, replies, [])
    assert found is None
    assert metrics == {"flanders-kept": 0, "flanders-dropped": 3}
    assert "the filter cannot judge it (too few): the global model stays" in flower_log.text


@pytest.mark.parametrize(("name", "arguments"), [("filter", (legacy.FedAvg(), "x")), ("strategy", ("fedavg",))])
def test_what_is_not_a_strategy_or_a_filter_is_refused(name, arguments) -> None:
    example = {"filter": r"Flanders\(keep=0.8\)", "strategy": r"flwr\.server\.strategy\.FedAvg\(\)"}[name]
    with pytest.raises(InputError, match=f"The `{name}` parameter of FilteredLegacyStrategy .* e.g. {example}"):
        FilteredLegacyStrategy(*arguments)


def test_the_rest_is_the_strategys_own(monkeypatch) -> None:
    inner = legacy.FedAvg(
        initial_parameters=common.ndarrays_to_parameters(model(0)), evaluate_fn=lambda *a: (0.5, {})
    )
    strategy = FilteredLegacyStrategy(inner, Flanders(keep=0.8))
    assert strategy.initialize_parameters(None) is not None
    parameters = common.ndarrays_to_parameters(model(1))
    assert strategy.evaluate(1, parameters) == (0.5, {})
    assert strategy.configure_fit(1, parameters, NOBODY) == []
    assert strategy.configure_evaluate(1, parameters, NOBODY) == []
    assert strategy.aggregate_evaluate(1, [], []) == (None, {})
    np.testing.assert_array_equal(strategy._sent["0"].numpy(), model(1)[0])


def evaluation(loss, examples=10):
    return common.EvaluateRes(common.Status(common.Code.OK, ""), loss, examples, {})


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.longdouble, ">f4"])
def test_no_result_changes_the_types_of_the_model(dtype) -> None:
    replies = [(SimpleNamespace(cid=str(i)), result(model(i))) for i in range(4)]
    replies[0][1].parameters = common.ndarrays_to_parameters([a.astype(dtype) for a in model(0)])
    found, metrics = strategy_after_configuring(legacy.FedAvg, DistanceToGlobal(keep=1.0)).aggregate_fit(
        1, replies, []
    )
    assert [a.dtype for a in common.parameters_to_ndarrays(found)] == [np.float32] * 2
    assert metrics["flanders-kept"] >= 3


def test_an_aggregate_that_is_not_finite_is_not_used(flower_log) -> None:
    class Overflowing(legacy.FedAvg):
        def aggregate_fit(self, server_round, results, failures):
            return common.ndarrays_to_parameters([np.full((4, 5), 1e300), np.zeros(5)]), {}

    replies = [(SimpleNamespace(cid=str(i)), result(model(i))) for i in range(4)]
    strategy = strategy_after_configuring(Overflowing, DistanceToGlobal(keep=1.0))
    assert strategy.aggregate_fit(1, replies, [])[0] is None
    assert "or too large for the types of the model: the global model stays" in flower_log.text


def test_a_large_number_and_a_large_claim_do_not_make_an_infinite_model() -> None:
    replies = [(SimpleNamespace(cid=str(i)), result(model(i, 1e30 if i < 2 else 1.0), 2**53)) for i in range(4)]
    found, _ = strategy_after_configuring(legacy.FedAvg, DistanceToGlobal(keep=1.0)).aggregate_fit(1, replies, [])
    assert found is None or all(np.isfinite(a).all() for a in common.parameters_to_ndarrays(found))


def test_a_claim_of_many_examples_does_not_buy_the_legacy_model() -> None:
    replies = [(SimpleNamespace(cid=str(i)), result(model(i), 70_000 if i == 0 else 70)) for i in range(10)]
    found, _ = strategy_after_configuring(legacy.FedAvg, DistanceToGlobal(keep=1.0)).aggregate_fit(1, replies, [])
    own, others = model(0)[0], np.mean([model(i)[0] for i in range(1, 10)], axis=0)
    np.testing.assert_allclose(common.parameters_to_ndarrays(found)[0], 0.25 * own + 0.75 * others, atol=1e-6)


def test_clients_that_training_does_not_keep_do_not_forge_the_legacy_evaluation() -> None:
    replies = [(SimpleNamespace(cid=str(i)), result(model(i, 50.0 if i == 3 else 1.0))) for i in range(6)]
    strategy = strategy_after_configuring(legacy.FedAvg, DistanceToGlobal(keep=5))
    strategy.aggregate_fit(1, replies, [])
    told = [(SimpleNamespace(cid=str(i)), evaluation(0.5)) for i in range(5)]
    told[3] = (SimpleNamespace(cid="3"), evaluation(0.0, 2**53))
    told[1] = (SimpleNamespace(cid="1"), evaluation(float("nan")))
    assert strategy.aggregate_evaluate(1, told, [])[0] == pytest.approx(0.5)


def test_a_legacy_strategy_that_fails_later_costs_the_round_not_the_run(flower_log) -> None:
    class Moody(legacy.FedAvg):
        def aggregate_fit(self, server_round, results, failures):
            if server_round == 2:
                raise ZeroDivisionError
            return super().aggregate_fit(server_round, results, failures)

    replies = [(SimpleNamespace(cid=str(i)), result(model(i))) for i in range(4)]
    strategy = strategy_after_configuring(Moody, DistanceToGlobal(keep=1.0))
    assert [strategy.aggregate_fit(number, replies, [])[0] is None for number in (1, 2, 3)] == [False, True, False]
