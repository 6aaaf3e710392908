from __future__ import annotations

import numpy as np
import pytest

from flanders.report.data import RunData
from flanders.report.naming import Names

LIE = {"name": "lie", "fraction": 0.8, "start": 1}
FLANDERS = {"name": "flanders", "keep": 20}


@pytest.fixture
def run(make_spec):
    def make(id_="0" * 16, rounds=1, **changes):
        nothing = np.zeros((0, rounds))
        return RunData(
            id=id_, spec=make_spec(**changes), status="done", rounds=np.arange(1, rounds + 1),
            accuracy=np.ones(rounds), loss=np.ones(rounds), attack_success=np.ones(rounds), seconds={}, clients=(),
            present=nothing > 0, malicious=nothing > 0, kept=nothing > 0, score=nothing, probability=nothing,
        )  # fmt: skip

    return make


def test_a_run_is_called_by_its_defence_and_attack(run):
    names = Names([run(), run(attack=LIE), run(attack=LIE, filter=FLANDERS)])
    assert names.labels == ["fedavg · no attack", "fedavg · lie 80%", "flanders + fedavg · lie 80%"]


def test_what_else_varies_is_added_and_what_stays_the_same_is_not(run):
    names = Names([run(seed=0, filter=FLANDERS), run(seed=1, filter=FLANDERS), run(seed=1)])
    assert names.labels == [
        "flanders + fedavg · no attack · seed 0",
        "flanders + fedavg · no attack · seed 1",
        "fedavg · no attack · seed 1",
    ]


def test_what_varies_of_a_filter_or_rule_stands_beside_it(run):
    auto = {**FLANDERS, "keep": "auto"}
    krum = {"name": "multi-krum", "num_malicious": 2}
    names = Names(
        [run(filter=FLANDERS), run(filter=auto), run(aggregator=krum), run(aggregator={**krum, "keep": 3})]
    )
    assert [names.defence(i) for i in range(4)] == [
        "flanders (keep 20) + fedavg",
        "flanders (keep auto) + fedavg",
        "multi-krum",
        "multi-krum (keep 3)",
    ]
    assert names.labels[0] == "flanders (keep 20) + fedavg · no attack"
    names = Names([run(filter=FLANDERS), run(filter=FLANDERS, fallback={"name": "median"})])
    assert names.labels[1] == "flanders + fedavg, fallback median · no attack"


def test_runs_that_cannot_be_told_apart_get_their_id(run):
    assert Names([run("abcdef00"), run("12345678")]).labels[0].endswith("· abcdef")


def test_preaggregators_are_named(run):
    rule = {"name": "krum", "preaggregators": [{"name": "nnm"}, {"name": "bucketing"}]}
    assert Names([run(aggregator=rule)]).defence(0) == "nnm + bucketing + krum"


def test_siblings_differ_in_their_defence_alone(run):
    gauss = {**LIE, "name": "gauss"}
    names = Names(
        [run(), run(attack=LIE), run(attack=LIE, filter=FLANDERS), run(attack=gauss), run(attack=LIE, seed=1)]
    )
    assert names.siblings(2, most=6) == [1, 2]
    assert names.siblings(2, most=1) == [2]


def test_the_twin_is_the_attack_free_run_that_differs_least(run):
    other_data = {"dataset": {"name": "mnist"}, "partition": {"name": "iid"}}
    names = Names(
        [
            run(data=other_data),
            run(seed=1),
            run(filter=FLANDERS),
            run(),
            run(attack=LIE),
            run(attack=LIE, filter=FLANDERS),
        ]
    )
    assert names.twin(4) == 3
    assert names.twin(5) == 2
    assert Names([run(attack=LIE), run(rounds=0)]).twin(0) is None


def test_settings_put_seeds_together_and_leave_yardsticks_out(run):
    names = Names(
        [run(), run(attack=LIE), run(attack=LIE, seed=1, filter=FLANDERS), run(attack={**LIE, "fraction": 0.2})]
    )
    assert names.settings() == [[1, 2], [3]]
    assert Names([run()]).settings() == [[0]]
    assert Names([]).settings() == []
