from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContextManager
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.fuel.utils.component_builder import ComponentBuilder
from nvflare.job_config.fed_job_config import FedJobConfig

from flanders import AGGREGATORS, FILTERS, Defense, Flanders, Krum, Median, Nnm, Sample
from flanders.checks import InputError
from flanders.filters import FLDetector, Guard, KeepAll
from flanders.nvflare import FilteredAggregator
from flanders.record import Fate
from nvflare_rounds import SHAPES, SIZE, Workflow, attacked_rounds, flat, names, params_of, reply_of

START = np.linspace(-1, 1, SIZE).astype(np.float32)


def honest(client, seed=0):
    """Return the reply of an honest client."""
    rng = np.random.default_rng([seed, int(client[-2:])])
    return reply_of(params_of(START + 0.5 + 0.1 * rng.normal(size=SIZE)), steps=10)


@pytest.mark.parametrize("kind", [ParamsType.FULL, ParamsType.DIFF])
@pytest.mark.parametrize("filter", [Guard(), Flanders(keep=0.75), FLDetector(keep=0.75)], ids=repr)
def test_decisions_are_those_on_arrays(filter, kind) -> None:
    clients, weights = names(12), np.arange(10, 22)
    workflow = Workflow(FilteredAggregator(filter, Median(), seed=3), params_of(START))
    defense = Defense(filter, Median(), seed=3)
    layers = {name: int(np.prod(shape)) for name, shape in SHAPES.items()}
    for _, updates_of in attacked_rounds():
        model = flat(workflow.model.params)
        updates = updates_of(model)
        sent = updates if kind == ParamsType.FULL else updates - model
        received = model + sent if kind == ParamsType.DIFF else sent
        replies = [
            (c, reply_of(params_of(row), int(w), kind)) for c, row, w in zip(clients, sent, weights, strict=True)
        ]
        outcome = defense(received, clients, weights, global_model=model, layers=layers)
        record = workflow.round(reversed(replies))  # the order of arrival does not matter
        assert record.clients == outcome.clients or all(
            (a.client, a.fate, a.reason) == (b.client, b.fate, b.reason)
            for a, b in zip(record.clients, outcome.clients, strict=True)
        )
        np.testing.assert_array_equal(record.scores, [c.score for c in outcome.clients])
        np.testing.assert_array_equal(flat(workflow.model.params), outcome.model)
    assert [c.client for c in record.clients if not c.kept] == clients[:3]


def test_the_default_average_is_weighted_by_steps_as_in_nvflare() -> None:
    workflow = Workflow(FilteredAggregator(KeepAll()), params_of(START))
    workflow.round([("a", reply_of(params_of(START + 1), 1)), ("b", reply_of(params_of(START + 5), 3))])
    np.testing.assert_allclose(flat(workflow.model.params), START + 4, rtol=1e-6)
    start = flat(workflow.model.params)
    workflow.round([("a", reply_of(params_of(start + 1))), ("b", reply_of(params_of(start + 5)))])
    np.testing.assert_allclose(flat(workflow.model.params), start + 3, rtol=1e-6)


def nested(depth):
    lists = []
    for _ in range(depth):
        lists = [lists]
    return lists


def with_array(value, name="b"):
    return reply_of({**params_of(START), name: value}, 10)


HOSTILE = {
    "NaN": (with_array(np.full(7, np.nan, np.float32)), "array 'b' is not finite"),
    "infinite": (with_array(np.full(7, -np.inf, np.float32)), "array 'b' is not finite"),
    "too large for float32": (with_array(np.full(7, 1e300)), "array 'b' has numbers outside the range of float32"),
    "another shape": (with_array(np.zeros((7, 1), np.float32)), "array 'b' has shape (7, 1) instead of (7,)"),
    "integers": (with_array(np.zeros(7, np.int64)), "array 'b' has type int64"),
    "complex": (with_array(np.zeros(7, complex)), "array 'b' has type complex128"),
    "objects": (with_array(np.array([None] * 7)), "array 'b' has type object"),
    "text": (with_array("poison"), "array 'b' is a str"),
    "a list": (with_array([0.0] * 7), "array 'b' is a list"),
    "a missing array": (reply_of({"w": params_of(START)["w"]}, 10), "arrays with other names: missing 'b', 'v'"),
    "an unknown array": (with_array(np.zeros(3), "more"), "arrays with other names: unknown 'more'"),
    "names that are no text": (with_array(np.zeros(3), 5), "its params have names that are not strings"),
    "no arrays by name": (reply_of([1, 2, 3], 10), "its params are a list instead of arrays by name"),
    "steps below zero": (reply_of(params_of(START), -1), "is -1 instead of a positive number"),
    "no steps": (reply_of(params_of(START), 0), "is 0 instead of a positive number"),
    "NaN steps": (reply_of(params_of(START), float("nan")), "is not finite"),
    "steps that are text": (reply_of(params_of(START), "many"), "is 'many' instead of a positive number"),
    "steps that are true": (reply_of(params_of(START), True), "is True instead of a positive number"),
    "too many steps": (reply_of(params_of(START), 10**6), "is 1e+06, more than the 1000 allowed"),
    "steps with a number that Python does not print": (reply_of(params_of(START), [10**5000]), "not readable"),
    "steps in endlessly many lists": (reply_of(params_of(START), nested(100_000)), "not readable (RecursionError)"),
    "endlessly many steps": (reply_of(params_of(START), 10**5000), "is not finite"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_reply_is_left_out_and_changes_nothing(what) -> None:
    reply, why = HOSTILE[what]
    models = []
    for hostile in ([], [("site-00", reply)]):
        workflow = Workflow(FilteredAggregator(max_steps=1000), params_of(START))
        record = workflow.round([*hostile, *((client, honest(client)) for client in names(6))])
        models.append(flat(workflow.model.params))
    assert record.clients[0].fate is Fate.REFUSED
    assert why in record.clients[0].reason
    assert [c.client for c in record.clients[1:] if c.kept] == names(6)
    np.testing.assert_array_equal(*models)


def test_a_difference_that_makes_the_model_overflow_is_refused() -> None:
    workflow = Workflow(FilteredAggregator(KeepAll()), {"w": np.full(5, 3e38, np.float32)})
    steps = {"site-1": 3e38, "site-2": -1e38}
    record = workflow.round(
        [(c, reply_of({"w": np.full(5, s, np.float32)}, kind=ParamsType.DIFF)) for c, s in steps.items()]
    )
    assert record.clients[0].reason == "array 'w' is not finite"
    np.testing.assert_allclose(workflow.model.params["w"], 2e38, rtol=1e-6)


@pytest.mark.parametrize(("times", "moved"), [(3.0, 3 / 7), (None, 1.0)])
def test_a_claim_of_many_steps_counts_for_three_times_the_median(times, moved) -> None:
    workflow = Workflow(FilteredAggregator(KeepAll(), times_median=times), params_of(START))
    replies = [(client, reply_of(params_of(START), 10)) for client in names(4)]
    workflow.round([*replies, ("site-99", reply_of(params_of(START + 1), 10**9))])
    np.testing.assert_allclose(flat(workflow.model.params), START + moved, rtol=1e-5, atol=1e-5)


def test_a_client_that_replies_twice_is_refused() -> None:
    workflow = Workflow(FilteredAggregator(KeepAll()), params_of(START))
    twice = [("site-01", honest("site-01")), ("site-01", honest("site-01", seed=1))]
    record = workflow.round([*twice, ("site-02", honest("site-02"))])
    assert [c.fate for c in record.clients] == [Fate.REFUSED, Fate.KEPT]
    assert record.clients[0].reason == "more than one reply"
    assert not record.stayed


def test_without_a_usable_reply_the_model_stays() -> None:
    workflow = Workflow(FilteredAggregator(), params_of(START))
    for replies in ([], [("site-01", with_array(np.full(7, np.nan, np.float32)))]):
        record = workflow.round(replies)
        assert record.note == "no reply can be used: the global model stays"
        assert record.stayed
        np.testing.assert_array_equal(flat(workflow.model.params), START)


def test_if_all_first_replies_are_refused_for_one_reason_it_is_not_the_clients_fault() -> None:
    workflow = Workflow(FilteredAggregator(), params_of(START))
    with pytest.raises(InputError, match=r"All 3 replies of round 1 .* missing 'b', 'v'. .*Check what"):
        workflow.round([(client, reply_of({"w": params_of(START)["w"]})) for client in names(3)])


def test_a_round_that_cannot_be_judged_leaves_the_model() -> None:
    workflow = Workflow(FilteredAggregator(KeepAll(), Krum(num_malicious=3)), params_of(START))
    record = workflow.round([(client, honest(client)) for client in names(4)])
    assert [c.fate for c in record.clients] == [Fate.DROPPED] * 4
    assert "Krum(num_malicious=3) needs more than" in record.note
    np.testing.assert_array_equal(flat(workflow.model.params), START)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_come_back_as_tensors_of_their_type(dtype) -> None:
    start = {name: torch.asarray(value).to(dtype) for name, value in params_of(START).items()}
    workflow = Workflow(FilteredAggregator(KeepAll()), start)
    workflow.round([(c, reply_of({n: t + i for n, t in start.items()})) for i, c in enumerate(names(3))])
    for name, tensor in workflow.model.params.items():
        assert tensor.dtype == dtype
        torch.testing.assert_close(tensor, start[name] + 1, rtol=1e-2, atol=1e-2)


class OnDisk:
    """What NVFLARE hands over if it has left an array on disk."""

    def __init__(self, value):
        self.value = value

    def materialize(self):
        if self.value is None:
            raise OSError("gone")
        return self.value


def test_arrays_on_disk_are_loaded() -> None:
    workflow = Workflow(FilteredAggregator(KeepAll()), params_of(START))
    lazy = {name: OnDisk(torch.asarray(value)) for name, value in params_of(START + 2).items()}
    record = workflow.round([("a", reply_of(lazy)), ("b", reply_of({**lazy, "w": OnDisk(None)}))])
    assert record.clients[1].reason == "array 'w' is not readable (OSError)"
    np.testing.assert_array_equal(flat(workflow.model.params), START + 2)


def test_buffers_are_averaged_over_the_kept_clients_and_counters_stay_whole() -> None:
    extra = {"bn.running_mean": np.zeros(3, np.float32), "bn.num_batches_tracked": np.asarray(4)}
    workflow = Workflow(FilteredAggregator(), {**params_of(START), **extra})
    replies = []
    for client, value in zip(names(6), [1, 2, 3, 4, 5, 1000], strict=True):
        sent = {"bn.running_mean": np.full(3, value, np.float32), "bn.num_batches_tracked": np.asarray(4 + value)}
        model = honest(client).params if value < 1000 else params_of(1e6 * np.ones(SIZE))
        replies.append((client, reply_of({**model, **sent})))
    record = workflow.round(replies)
    assert [c.client for c in record.clients if not c.kept] == ["site-06"]
    np.testing.assert_array_equal(workflow.model.params["bn.running_mean"], np.full(3, 3, np.float32))
    assert workflow.model.params["bn.num_batches_tracked"] == 7
    assert workflow.model.params["bn.num_batches_tracked"].dtype == np.asarray(4).dtype


def test_metrics_are_averaged_over_the_kept_clients() -> None:
    workflow = Workflow(FilteredAggregator(), params_of(START))
    replies = [(client, honest(client)) for client in names(6)]
    for i, (_, reply) in enumerate(replies):
        reply.metrics = {"accuracy": i / 10, "loss": float("nan") if i == 2 else 1.0, "words": "x", 5: 1.0}
    loud = reply_of(params_of(1e6 * np.ones(SIZE)), 10, metrics={"accuracy": 1e9})
    workflow.round([*replies, ("site-07", loud)])
    assert workflow.model.metrics == {"accuracy": pytest.approx(0.25), "loss": 1.0}


def test_a_single_client_can_neither_set_nor_remove_a_mean_metric() -> None:
    # NVFLARE ends a job if a metric is good enough.
    for own in ({"accuracy": 1e9}, {"accuracy": -1e308}, {}, None, {"accuracy": float("inf")}, {"other": 5.0}):
        workflow = Workflow(FilteredAggregator(KeepAll()), params_of(START))
        replies = [(client, honest(client)) for client in names(6)]
        for i, (_, reply) in enumerate(replies):
            reply.metrics = {"accuracy": 0.5 + i / 100} if i else own
        workflow.round(replies)
        assert workflow.model.metrics == {"accuracy": pytest.approx(0.53, abs=0.03)}


def test_nothing_of_the_decision_is_sent_to_the_clients() -> None:
    workflow = Workflow(FilteredAggregator(), params_of(START))
    workflow.round([(client, honest(client)) for client in names(6)])
    assert workflow.model.meta == {}


def test_a_later_job_goes_on_with_the_saved_memory(tmp_path) -> None:
    clients = names(12)

    def run(workflow, rounds):
        for _, updates_of in rounds:
            updates = updates_of(flat(workflow.model.params))
            workflow.round([(c, reply_of(params_of(row))) for c, row in zip(clients, updates, strict=True)])
            yield [(c.client, c.fate, c.score) for c in workflow.aggregator.last_round.clients]

    rounds = list(attacked_rounds(rounds=6))
    whole = list(run(Workflow(FilteredAggregator(seed=1), params_of(START)), rounds))
    first = Workflow(FilteredAggregator(seed=1, state_dir=str(tmp_path / "state")), params_of(START))
    parts = list(run(first, rounds[:3]))
    first.aggregator.handle_event("_end_run", first.context)
    second = Workflow(FilteredAggregator(seed=2, state_dir=str(tmp_path / "state")), first.model.params)
    parts += list(run(second, rounds[3:]))
    assert second.aggregator.rounds == 6
    assert parts == whole


def test_the_memory_of_another_model_filter_or_job_is_not_used(tmp_path) -> None:
    def begin(params, **parameters):
        return Workflow(FilteredAggregator(state_dir=str(tmp_path), **parameters), params).round(
            [(client, honest(client)) for client in names(4)]
        )

    workflow = Workflow(FilteredAggregator(state_dir=str(tmp_path)), params_of(START))
    workflow.round([(client, honest(client)) for client in names(4)])
    with pytest.raises(InputError, match="Another job is at work in `state_dir`"):
        begin(params_of(START))
    workflow.aggregator.handle_event("_end_run", workflow.context)
    with pytest.raises(InputError, match="was saved for a model with other arrays"):
        begin({"other": START})
    with pytest.raises(InputError, match="This memory was made by Guard"):
        begin(params_of(START), filter=KeepAll())
    (tmp_path / "flanders-nvflare.npz").write_bytes(b"")
    with pytest.raises(InputError, match="is not a readable state file"):
        begin(params_of(START))


class Builder(ComponentBuilder):
    """Builds components from a job's configuration as NVFLARE's server does."""

    def get_module_scanner(self):
        return None


def through_the_configuration(component, folder):
    """Return what NVFLARE's server makes of a component that is part of a job."""
    config = FedJobConfig("job", 1)
    path, args = config._get_class_path(component, folder), config._get_args(component, folder)
    return Builder().build_component(json.loads(json.dumps({"path": path, "args": args})))


def of_the_catalog(registry):
    needed = {"keep": 5, "num_malicious": 2, "trim": 1, "malicious": ("site-1",)}
    for name in registry:
        parameters = registry.describe(name).parameters
        yield registry.make(
            name, **{key: needed[key] for key, v in parameters.items() if key in needed and v in ("required", None)}
        )


PARTS = [
    *(FilteredAggregator(filter) for filter in of_the_catalog(FILTERS)),
    *(FilteredAggregator(KeepAll(), aggregator, Median()) for aggregator in of_the_catalog(AGGREGATORS)),
    FilteredAggregator(Flanders(keep=0.8, look=Sample(50)), Nnm(num_malicious=1) | Krum(num_malicious=1)),
    FilteredAggregator(Guard(trusted=("site-1", "site-2")), state_dir="state", max_steps=100, seed=4),
]


@pytest.mark.parametrize("component", PARTS, ids=lambda c: f"{c.defense.filter} {c.defense.aggregator}"[:70])
def test_every_filter_and_aggregator_survives_nvflares_configuration(component, tmp_path) -> None:
    built = through_the_configuration(component, str(tmp_path))
    assert isinstance(built, FilteredAggregator)
    for name in ("filter", "aggregator", "fallback", "state_dir", "max_steps", "times_median", "seed"):
        assert getattr(built, name) == getattr(component, name)


class NearTo:
    """The server's own test of models."""

    def __init__(self, value):
        self.value = value

    def __call__(self, params):
        return np.square(flat(params) - self.value)


def test_examples_of_the_server_overrule_a_majority() -> None:
    rng = np.random.default_rng(0)
    step = rng.normal(size=SIZE)
    rows = step + 0.3 * rng.normal(size=(12, SIZE))
    rows[:8] *= -1
    kept = {}
    for evaluate in (None, NearTo(START + step)):
        workflow = Workflow(FilteredAggregator(evaluate=evaluate), params_of(START))
        record = workflow.round(
            [(c, reply_of(params_of(START + row))) for c, row in zip(names(12), rows, strict=True)]
        )
        kept[evaluate is None] = [c.client for c in record.clients if c.kept]
    assert kept[True] == names(12)[:8]
    assert kept[False] == names(12)[8:]


def test_a_reply_cannot_take_the_name_of_another_client() -> None:
    aggregator = FilteredAggregator(KeepAll())
    workflow = Workflow(aggregator, params_of(START))
    aggregator.reset(workflow.context)
    for client in ("site-1", "site-2"):
        dxo = DXO(DataKind.WEIGHTS, params_of(START + 1), meta={"client_name": "site-1"})
        shareable = dxo.to_shareable()
        shareable.set_peer_props({ReservedKey.IDENTITY_NAME: client})
        assert aggregator.accept(shareable, workflow.context)
    result = aggregator.aggregate(workflow.context)
    assert [c.client for c in aggregator.last_round.clients if c.kept] == ["site-1", "site-2"]
    np.testing.assert_array_equal(flat(result["DXO"]["data"]), START + 1)


def test_the_model_that_is_sent_is_the_one_that_rounds_start_from() -> None:
    """Workflows without a persistor leave no global model in their context before the first round has ended."""
    aggregator = FilteredAggregator(KeepAll())
    context = FLContextManager(job_id="job").new_context()
    aggregator.fl_ctx = context
    with pytest.raises(InputError, match="Give the recipe an initial model or a persistor"):
        aggregator.aggregate_model()
    shareable = DXO(DataKind.WEIGHTS, params_of(START)).to_shareable()
    context.set_prop(AppConstants.TRAIN_SHAREABLE, shareable, private=True, sticky=False)
    aggregator.handle_event(AppEventType.BEFORE_TRAIN_TASK, context)
    aggregator.reset_stats()
    reply = reply_of(params_of(np.ones(SIZE)), kind=ParamsType.DIFF)
    reply.meta["client_name"] = "site-1"
    aggregator.accept_model(reply)
    np.testing.assert_allclose(flat(aggregator.aggregate_model().params), START + 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"filter": "guard"}, "The `filter` parameter of Defense must be a Filter"),
        ({"max_steps": -1}, "The `max_steps` parameter of FilteredAggregator"),
        ({"times_median": 0.5}, "The `times_median` parameter of FilteredAggregator"),
        ({"seed": 1.5}, "The `seed` parameter of FilteredAggregator"),
        ({"state_dir": 5}, "The `state_dir` parameter of FilteredAggregator must be a path"),
        ({"evaluate": 5}, "The `evaluate` parameter of FilteredAggregator must be a function"),
    ],
)
def test_wrong_parameters_are_named(parameters, message) -> None:
    with pytest.raises(InputError, match=message):
        FilteredAggregator(**parameters)


def test_a_start_that_is_not_finite_is_named() -> None:
    workflow = Workflow(FilteredAggregator(), params_of(START * np.nan))
    with pytest.raises(InputError, match="The initial model cannot be used: array 'w' is not finite"):
        workflow.round([("site-1", FLModel(params=params_of(START)))])


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("bn.num_batches_tracked", np.asarray(2**62), "times as much as usual"),
        ("bn.running_mean", np.full(3, 1e30, np.float32), "times as much as usual"),
        ("bn.running_var", np.full(3, 1e30, np.float32), "times as much as usual"),
        ("bn.running_var", np.full(3, -1, np.float32), "holds a negative variance"),
        ("bn.running_var", np.full(3, 1e300), "has numbers outside the range of float32"),
    ],
)
@pytest.mark.parametrize("kind", [ParamsType.FULL, ParamsType.DIFF])
def test_no_array_that_the_filter_does_not_see_ruins_the_model(name, value, reason, kind) -> None:
    start = {
        **params_of(START),
        "bn.running_mean": np.zeros(3, np.float32),
        "bn.running_var": np.ones(3, np.float32),
        "bn.num_batches_tracked": np.asarray(4),
    }
    workflow = Workflow(FilteredAggregator(), start)
    replies = []
    for client in names(6):
        sent = {**honest(client).params, "bn.running_mean": np.full(3, 0.1, np.float32)}
        sent |= {"bn.running_var": np.full(3, 1.1, np.float32), "bn.num_batches_tracked": np.asarray(5)}
        if client == "site-06":
            sent[name] = value
        if kind == ParamsType.DIFF:
            sent = {key: np.asarray(number - start[key], number.dtype) for key, number in sent.items()}
        replies.append((client, reply_of(sent, 10, kind)))
    record = workflow.round(replies)
    (refused,) = [client for client in record.clients if not client.kept]
    assert (refused.client, refused.fate) == ("site-06", Fate.REFUSED)
    assert reason in refused.reason
    assert workflow.model.params["bn.num_batches_tracked"] == 5
    np.testing.assert_allclose(workflow.model.params["bn.running_var"], 1.1, rtol=1e-6)


@pytest.mark.parametrize("meta", [None, [], 7, {"client_name": ["a"]}, {"client_name": {}}])
def test_odd_words_about_a_reply_do_not_end_the_job(meta) -> None:
    workflow = Workflow(FilteredAggregator(), params_of(START))
    for client in names(6):
        reply = honest(client)
        reply.meta["client_name"] = client
        workflow.aggregator.accept_model(reply)
    odd = honest("site-07")
    odd.meta = meta
    workflow.aggregator.accept_model(odd)
    assert np.isfinite(flat(workflow.aggregator.aggregate_model().params)).all()


class Failing(KeepAll):
    """Fails on demand."""

    fails = False

    def score(self, state, round_):
        if Failing.fails:
            raise RuntimeError("a mistake")
        return super().score(state, round_)


def test_a_filter_that_fails_later_costs_the_round_and_not_the_job(monkeypatch) -> None:
    workflow = Workflow(FilteredAggregator(Failing()), params_of(START))
    workflow.round([(client, honest(client)) for client in names(6)])
    before = flat(workflow.model.params)
    monkeypatch.setattr(Failing, "fails", True)
    record = workflow.round([(client, honest(client, 1)) for client in names(6)])
    assert record.note == "this round could not be judged (a mistake): the global model stays"
    np.testing.assert_array_equal(flat(workflow.model.params), before)


def test_a_filter_that_never_worked_ends_the_job(monkeypatch) -> None:
    monkeypatch.setattr(Failing, "fails", True)
    workflow = Workflow(FilteredAggregator(Failing()), params_of(START))
    with pytest.raises(RuntimeError, match="a mistake"):
        workflow.round([(client, honest(client)) for client in names(6)])
