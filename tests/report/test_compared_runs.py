from __future__ import annotations

import numpy as np
import pytest

from flanders.report.compared_runs import ComparedRuns
from flanders.report.run_data import MEASURES, RunData, TextMatrix

LIE = {"name": "lie"}
FLANDERS = {"name": "flanders", "keep": 20}


@pytest.fixture
def run(make_spec):
    def make(id_="0" * 16, rounds=1, **changes):
        nothing = np.zeros((0, rounds))
        texts = TextMatrix(("",), nothing.astype(int))
        return RunData(
            id=id_,
            spec=make_spec(**changes),
            status="done",
            rounds=np.arange(1, rounds + 1),
            measures={name: np.ones(rounds) for name in MEASURES},
            clients=(),
            numbers={"score": nothing, "probability": nothing},
            answers={"malicious": nothing.astype(np.uint8)},
            texts={"fate": texts, "reason": texts},
        )

    return make


def test_a_run_is_called_by_its_defence_and_attack(run):
    compared = ComparedRuns([run(), run(attack=LIE), run(attack=LIE, filter=FLANDERS)])
    assert compared.labels == ["fedavg · no attack", "fedavg · lie 80%", "flanders + fedavg · lie 80%"]


def test_what_else_varies_is_added_and_what_stays_the_same_is_not(run):
    compared = ComparedRuns([run(seed=0, filter=FLANDERS), run(seed=1, filter=FLANDERS), run(seed=1)])
    assert compared.labels == [
        "flanders + fedavg · no attack · seed 0",
        "flanders + fedavg · no attack · seed 1",
        "fedavg · no attack · seed 1",
    ]


def test_what_varies_of_a_filter_or_aggregator_stands_beside_it(run):
    auto = {**FLANDERS, "keep": "auto"}
    krum = {"name": "multi-krum", "num_malicious": 2}
    compared = ComparedRuns(
        [run(filter=FLANDERS), run(filter=auto), run(aggregator=krum), run(aggregator={**krum, "keep": 3})]
    )
    assert [compared.defence(i) for i in range(4)] == [
        "flanders (keep 20) + fedavg",
        "flanders (keep auto) + fedavg",
        "multi-krum",
        "multi-krum (keep 3)",
    ]
    assert compared.labels[0] == "flanders (keep 20) + fedavg · no attack"
    compared = ComparedRuns([run(filter=FLANDERS), run(filter=FLANDERS, fallback={"name": "median"})])
    assert compared.labels[1] == "flanders + fedavg, fallback median · no attack"


def test_runs_that_cannot_be_told_apart_get_their_id(run):
    assert ComparedRuns([run("abcdef00"), run("12345678")]).labels[0].endswith("· abcdef")


def test_preaggregators_are_named(run):
    aggregator = {"name": "krum", "preaggregators": [{"name": "nnm"}, {"name": "bucketing"}]}
    assert ComparedRuns([run(aggregator=aggregator)]).defence(0) == "nnm + bucketing + krum"


def test_siblings_differ_in_their_defence_alone(run):
    gauss = {**LIE, "name": "gauss"}
    compared = ComparedRuns(
        [run(), run(attack=LIE), run(attack=LIE, filter=FLANDERS), run(attack=gauss), run(attack=LIE, seed=1)]
    )
    assert compared.siblings(2) == [1, 2]


def test_the_twin_is_the_attack_free_run_that_differs_least(run):
    other_data = {"dataset": {"name": "mnist"}, "partition": {"name": "iid"}}
    compared = ComparedRuns(
        [
            run(data=other_data),
            run(seed=1),
            run(filter=FLANDERS),
            run(),
            run(attack=LIE),
            run(attack=LIE, filter=FLANDERS),
        ]
    )
    assert compared.twin(4) == 3
    assert compared.twin(5) == 2
    assert ComparedRuns([run(attack=LIE), run(rounds=0)]).twin(0) is None


def test_settings_put_seeds_together_and_leave_yardsticks_out(run):
    compared = ComparedRuns(
        [run(), run(attack=LIE), run(attack=LIE, seed=1, filter=FLANDERS), run(attack=LIE, fraction=0.2)]
    )
    assert compared.settings() == [[1, 2], [3]]
    assert ComparedRuns([run()]).settings() == [[0]]
    assert ComparedRuns([]).settings() == []


def test_an_informed_aggregator_is_named_where_runs_differ_in_it(run):
    compared = ComparedRuns([run(attack=LIE), run(attack=LIE, informed=True)])
    assert [compared.defence(i) for i in (0, 1)] == ["fedavg", "fedavg, informed"]


def test_two_ways_to_attack_are_both_named(run):
    flip = {"name": "label-flip"}
    compared = ComparedRuns([run(attack=LIE, data_poison=flip), run(data_poison=flip, fraction=0.25)])
    assert [compared.attack(i) for i in (0, 1)] == ["lie + label-flip 80%", "label-flip 25%"]


def test_a_part_of_a_filter_that_is_chosen_by_name_stands_beside_it(run):
    looks = [{"name": "everything"}, {"name": "sample", "size": 5}, {"name": "sample", "size": 9}]
    compared = ComparedRuns([run(filter={**FLANDERS, "look": look}) for look in looks])
    assert [compared.defence(i) for i in range(3)] == [
        "flanders (look everything) + fedavg",
        "flanders (look sample, look size 5) + fedavg",
        "flanders (look sample, look size 9) + fedavg",
    ]
