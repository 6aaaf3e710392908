"""All fronts of the package decide the same: arrays, the simulator, and both wrappers of Flower's strategies."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import flanders.simulation.simulation as simulated
from flanders import FILTERS, Defense, Flanders, Median
from flanders.attacks import SignFlip
from flanders.data import Digits
from flanders.filters import FLDetector, Guard, Oracle
from flanders.flower import AggregatorStrategy, FilteredStrategy
from flanders.flower.legacy import FilteredLegacyStrategy
from flanders.round import Round
from flanders.simulation import Simulation
from flanders.simulation.thread_limits import one_blas_thread
from flower.federation import LocalGrid, app, content
from peers import flower
from settings import make_setting

common = flower("common")
legacy = flower("server.strategy")
PARAMETERS = {"keep": 0.7, "num_malicious": 0.3}
CUTS = (0, 7, 1000)


def of_the_catalog(name):
    """Return a filter with the parameters that it needs."""
    try:
        return FILTERS.make(name)
    except Exception:
        fields = FILTERS[name].__dataclass_fields__
        return FILTERS.make(name, **{key: value for key, value in PARAMETERS.items() if key in fields})


NAMES = ["fingerprint", *(name for name in FILTERS if name != "fingerprint")]
FILTERS_UNDER_TEST = {
    **{name: made for name in NAMES if not (made := of_the_catalog(name)).needs_examples},
    "flanders with a threshold": Flanders(threshold=0.5),
    "flanders with l1 and a longer window": Flanders(keep=0.7, distance="l1", window=3),
    "fldetector with keep": FLDetector(keep=0.7),
}


@pytest.fixture(scope="module")
def data():
    return Digits().load(None)


def record(vector):
    """Cut a flat model into arrays of uneven size."""
    vector = np.asarray(vector)
    cuts = [*CUTS, len(vector)]
    return app.ArrayRecord({f"w{i}": app.Array(vector[a:b].copy()) for i, (a, b) in enumerate(pairwise(cuts))})


def flat(arrays):
    return np.concatenate([array.numpy() for array in arrays.values()])


class Watched(Defense):
    """A defense that keeps each round, its filter (the simulator tells `Oracle` the truth), and its outcome.

    It knows no layers, since replies of Flower's older interface have none.
    """

    rounds: list

    def step(self, round_, aggregate=None, fallback=None):
        round_ = Round(round_.updates, round_.clients, round_.weights, round_.global_model)
        copy = round_.replace(round_.updates.clone())
        outcome = super().step(round_, aggregate, fallback)
        self.rounds.append((copy, self.filter, outcome))
        return outcome


def attacked_rounds(filter_, data, monkeypatch):
    """Return the rounds of an attacked federation in the simulator, and a way to get its filter's random stream."""
    monkeypatch.setattr(simulated, "Defense", Watched)
    monkeypatch.setattr(Watched, "rounds", [], raising=False)
    setting = make_setting(
        num_clients=10, rounds=6, filter=filter_, aggregator=Median(), attack=SignFlip(scale=5.0), device="cpu",
        fraction=0.3, start=3, seed=4,
    )  # fmt: skip
    simulation = Simulation(setting, data)
    for _ in simulation.run():
        pass
    return Watched.rounds, lambda: setting.streams()["filter"]


def by_arrays(filter_, stream, rounds):
    """Decide with a Defense on NumPy arrays."""
    defense = Defense(filter_, Median(), streams=(stream, np.random.default_rng(0)))
    for round_, defense.filter in rounds:
        outcome = defense(
            round_.updates.numpy(), round_.clients, round_.weights, global_model=round_.global_model.numpy()
        )
        yield outcome.clients, outcome.model


def by_strategy(filter_, stream, rounds):
    """Decide with the wrapper of Flower's strategies."""
    inner = AggregatorStrategy(Median(), min_train_nodes=10)
    strategy = FilteredStrategy(inner, filter_, identify=lambda node: node.node_id)
    strategy.defense = Defense(filter_, streams=(stream, stream))
    grid = LocalGrid({})
    for number, (round_, strategy.defense.filter) in enumerate(rounds, start=1):

        def reply(message, round_=round_):
            row = message.metadata.dst_node_id
            sent = content(record(round_.updates[row]), **{"num-examples": float(round_.weights[row])})
            return app.Message(sent, reply_to=message)

        grid.nodes = dict.fromkeys(range(10), reply)
        messages = strategy.configure_train(number, record(round_.global_model), app.ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
        yield strategy.last_round.clients, None if arrays is None else flat(arrays)


def by_legacy_strategy(filter_, stream, rounds):
    """Decide with the wrapper of Flower's older strategies."""
    strategy = FilteredLegacyStrategy(legacy.FedMedian(), filter_)
    strategy.defense = LegacyDefense(filter_, streams=(stream, stream))
    for number, (round_, used) in enumerate(rounds, start=1):
        # Here clients are called by strings, also by the filter that is told their names.
        strategy.defense.filter = Oracle(tuple(map(str, used.malicious))) if isinstance(used, Oracle) else used
        sent = common.ndarrays_to_parameters([round_.global_model.numpy()])
        strategy.configure_fit(number, sent, SimpleNamespace(num_available=lambda: 0, sample=lambda **_: []))
        results = []
        for client, row, weight in zip(round_.clients, round_.updates.numpy(), round_.weights, strict=True):
            status = common.Status(common.Code.OK, "")
            result = common.FitRes(status, common.ndarrays_to_parameters([row]), int(weight), {})
            results.append((SimpleNamespace(cid=str(client)), result))
        found, _ = strategy.aggregate_fit(number, results, [])
        yield strategy.defense.last, None if found is None else common.parameters_to_ndarrays(found)[0]


class LegacyDefense(Defense):
    """A defense that keeps what it has decided last."""

    def step(self, round_, aggregate=None, fallback=None):
        outcome = super().step(round_, aggregate, fallback)
        self.last = outcome.clients
        return outcome


@pytest.mark.parametrize("name", FILTERS_UNDER_TEST)
def test_all_fronts_decide_the_same(name, data, monkeypatch) -> None:
    """Six rounds of an attacked federation, decided on four fronts with the same secrets of the filter."""
    filter_ = FILTERS_UNDER_TEST[name]
    seen, stream = attacked_rounds(filter_, data, monkeypatch)
    assert len(seen) == 6
    rounds = [(round_, used) for round_, used, _ in seen]
    # FLDetector adds float32 vectors up in the library that it is given: PyTorch in the simulator, NumPy elsewhere.
    rtol = 1e-5 if isinstance(filter_, FLDetector) else 0.0
    for front in (by_arrays, by_strategy, by_legacy_strategy):
        with one_blas_thread():  # as in the simulator: the last bits of sums depend on it
            decided = list(front(filter_, stream(), rounds))
        for (_, _, outcome), (clients, model) in zip(seen, decided, strict=True):
            assert [str(c.client) for c in clients] == [str(c.client) for c in outcome.clients]
            assert [c.fate for c in clients] == [c.fate for c in outcome.clients], front.__name__
            for field in ("score", "probability"):
                ours, theirs = ([getattr(c, field) for c in some] for some in (clients, outcome.clients))
                np.testing.assert_allclose(ours, theirs, rtol, 0.0, err_msg=front.__name__)
            if model is not None and front is not by_legacy_strategy:  # Flower's median may round otherwise
                np.testing.assert_array_equal(model, outcome.model.numpy(), err_msg=front.__name__)


def test_the_default_filter_is_the_same_on_every_front() -> None:
    fedavg = AggregatorStrategy(Median())
    fronts = (Defense().filter, FilteredStrategy(fedavg).filter, FilteredLegacyStrategy(legacy.FedAvg()).filter)
    assert fronts == (Guard(),) * 3
