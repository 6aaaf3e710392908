from __future__ import annotations

import pytest

from flanders.results import spec_keys
from flanders.results.labels import differences, labels, varying

THREAT = {"attack": {"name": "lie"}, "data_poison": None, "fraction": 0.25, "start": 3, "sybils": False}


def spec(**changes):
    return {
        "data": {"dataset": {"name": "digits"}, "partition": {"name": "iid"}},
        "federation": {"num_clients": 8, "clients_per_round": 8, "rounds": 5, "seed": 1},
        "threat": THREAT,
        "filter": {"name": "flanders", "keep": 6},
        "aggregator": {"name": "krum", "preaggregators": [{"name": "nnm"}]},
        "fallback": None,
        "informed": False,
        **changes,
    }


def test_a_run_is_read_by_name():
    run = spec()
    assert (spec_keys.attack_name(run), spec_keys.attack_fraction(run), spec_keys.attack_start(run)) == (
        "lie",
        0.25,
        3,
    )
    assert (spec_keys.dataset_name(run), spec_keys.filter_name(run)) == ("digits", "flanders")
    assert spec_keys.aggregator_name(run) == "nnm > krum"
    assert (spec_keys.seed(run), spec_keys.num_rounds(run), spec_keys.engine(run)) == (1, 5, "simulator")
    assert spec_keys.client_counts(spec_keys.flat_spec(run)) == (8, 2)
    assert spec_keys.label(run) == "digits, lie r=0.25, flanders + nnm > krum, seed 1"


@pytest.mark.parametrize("threat", [None, {}, {**THREAT, "attack": None}])
def test_without_an_attack_nothing_is_told_of_a_threat(threat):
    run = spec(threat=threat)
    assert not spec_keys.is_attacked(run)
    assert (spec_keys.attack_name(run), spec_keys.attack_fraction(run), spec_keys.attack_start(run)) == (
        "none",
        0.0,
        1,
    )
    assert not any(spec_keys.section_of(key) == "threat" for key in spec_keys.flat_spec(run))


def test_poisoned_data_is_an_attack_too():
    run = spec(threat={**THREAT, "data_poison": {"name": "label-flip"}})
    assert spec_keys.attack_name(run) == "lie + label-flip"
    assert spec_keys.attack_name(spec(threat={**THREAT, "attack": None, "data_poison": {"name": "x"}})) == "x"


def test_a_live_federation_has_unknown_attacks_and_no_seed():
    run = spec(live="now", threat=None, federation={"rounds": None, "seed": None})
    assert spec_keys.is_live(run)
    assert spec_keys.attack_name(run) == "unknown"
    assert (spec_keys.seed(run), spec_keys.num_rounds(run)) == (None, None)


def test_a_detail_of_an_attack_varies_only_between_runs_with_that_attack():
    gauss = {**THREAT, "attack": {"name": "gauss"}, "fraction": 0.5}
    flats = [spec_keys.flat_spec(spec(threat=threat)) for threat in (None, THREAT, gauss)]
    assert varying(flats) == ["threat.attack.name"]
    flats.append(spec_keys.flat_spec(spec(threat={**THREAT, "fraction": 0.5})))
    assert varying(flats) == ["threat.attack.name", "threat.fraction"]


def test_labels_tell_runs_apart_by_the_keys_in_which_they_differ():
    runs = [spec(), spec(filter={"name": "flanders", "keep": 4}), spec(threat=None)]
    assert differences(runs) == [{"filter.keep": 6}, {"filter.keep": 4}, {"filter.keep": 6}]
    assert labels(runs)[1] == "digits, lie r=0.25, flanders + nnm > krum, seed 1, filter.keep=4"
