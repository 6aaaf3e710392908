"""The wrapper and the simulator, fed the same updates, decide the same to the last bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import flanders.simulation.federation as simulated
from flanders import FILTERS, DistanceToGlobal, Flanders, FLDetector, KeepAll, Median
from flanders.attacks import SignFlip
from flanders.data import Digits
from flanders.flower import FilteredStrategy
from flanders.simulation import Setting, Simulation
from flower.federation import LocalGrid, app, content, strategies

FILTERS_UNDER_TEST = [
    Flanders(keep=0.7),
    Flanders(threshold=0.5),
    Flanders(keep=0.7, method="reference"),
    Flanders(keep=0.7, sample=300),
    Flanders(keep=0.7, sketch=128, sketches=2),
    Flanders(keep=0.7, distance="l1", window=3),
    FILTERS.make("fldetector", keep=0.7),
    FILTERS.make("fldetector"),
    FILTERS.make("dnc", num_malicious=0.3),
    FILTERS.make("kmeans"),
    FILTERS.make("persistence", keep=0.7),
    DistanceToGlobal(keep=0.7),
    KeepAll(),
]


class Aggregator(strategies.FedAvg):
    """One of our rules as a Flower strategy, so that nothing but the wrapper differs from the simulator."""

    def __init__(self, rule, round_):
        super().__init__(min_train_nodes=10, fraction_train=1.0)
        self.rule, self.round_ = rule, round_

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        rows = [r.metadata.src_node_id for r in replies]
        model = self.rule.aggregate(self.round_[server_round].take(rows), None).numpy()
        for row, reply in zip(rows, replies, strict=True):  # what is handed on is what was sent
            np.testing.assert_array_equal(unflat(reply.content["arrays"]), self.round_[server_round].updates[row])
        return record(model), app.MetricRecord()


def record(vector):
    """Cut a flat model into arrays of uneven size."""
    cuts = [0, 7, 1000, len(vector)]
    vector = np.asarray(vector)
    return app.ArrayRecord({f"w{i}": app.Array(vector[a:b].copy()) for i, (a, b) in enumerate(pairwise(cuts))})


def unflat(arrays):
    return np.concatenate([a.numpy() for a in arrays.values()])


@pytest.fixture(scope="module")
def data():
    return Digits().load(None)


@pytest.mark.parametrize("filter_", FILTERS_UNDER_TEST, ids=repr)
def test_wrapper_and_simulator_decide_the_same_to_the_last_bit(filter_, data, monkeypatch) -> None:
    """Six rounds of a real attacked federation, replayed through the wrapper."""
    seen = []

    def watched(filter_, state, round_, aggregate, fallback=None):
        copy = round_.replace(round_.updates.clone())
        outcome = defend(filter_, state, round_, aggregate, fallback)
        seen.append((copy, outcome))
        return outcome

    defend = simulated.defend
    monkeypatch.setattr(simulated, "defend", watched)
    setting = Setting(
        num_clients=10, rounds=6, filter=filter_, aggregator=Median(), attack=SignFlip(scale=5.0), device="cpu",
        malicious_fraction=0.3, attack_start=3, seed=4,
    )  # fmt: skip
    simulation = Simulation(setting, data)
    stream = setting.streams()["filter"]
    for _ in simulation.run():
        pass
    rounds = {number: round_ for number, (round_, _) in enumerate(seen, start=1)}
    strategy = FilteredStrategy(Aggregator(Median(), rounds), filter_, identify=lambda node: node.node_id)
    strategy._memory = replace(strategy._memory, state=filter_.init(stream))  # with the secrets it has there
    grid = LocalGrid({})
    for number, (round_, outcome) in enumerate(seen, start=1):

        def reply(message, round_=round_):
            row = message.metadata.dst_node_id
            sent = content(record(round_.updates[row]), **{"num-examples": float(round_.weights[row])})
            return app.Message(sent, reply_to=message)

        grid.nodes = dict.fromkeys(range(10), reply)
        messages = strategy.configure_train(number, record(round_.global_model), app.ConfigRecord(), grid)
        with simulated.one_blas_thread():  # as there, for the last bits of sums depend on it
            arrays, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
        report = strategy._recorder.last
        kept = [v.asked.client for v in report.verdicts if v.fate == "kept"]
        assert kept == outcome.kept.tolist()
        if outcome.scores is not None:
            # FLDetector adds float32 vectors up in the library that it is given, PyTorch there and NumPy here.
            rtol = 1e-7 if isinstance(filter_, FLDetector) else 0.0
            np.testing.assert_allclose([v.score for v in report.verdicts], outcome.scores.values, rtol, 0.0)
        if kept:
            np.testing.assert_array_equal(unflat(arrays), outcome.model.numpy())
