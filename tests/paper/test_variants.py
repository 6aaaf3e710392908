from __future__ import annotations

import pytest

from flanders.checks import InputError
from flanders.paper.tables import TABLES, VARIANTS, Cell, read_tables
from flanders.paper.variants import merged, read_variant, runs

REFERENCE, TEXTBOOK = read_variant("reference"), read_variant("textbook")


def cell(table="tab:increment-20", **changes):
    base = {
        "dataset": "mnist",
        "attack": "gauss",
        "malicious_ratio": "0.2",
        "aggregator": "fedavg",
        "filter": "none",
        "metric": "accuracy",
    }
    return Cell(table, **{**base, **changes})


@pytest.mark.parametrize("name", VARIANTS)
def test_every_cell_of_every_table_is_a_run_or_undefined(name):
    variant = read_variant(name)
    for table in read_tables(TABLES):
        if name in table.variants:
            for each in table.cells:
                assert (variant.run(each, 0) is None) is each.is_undefined


@pytest.mark.parametrize("variant", [REFERENCE, TEXTBOOK], ids=lambda v: v.name)
def test_tables_share_their_runs(variant):
    one = variant.run(cell("tab:increment-20"), 1)
    two = variant.run(cell("tab:increment-fld", metric="final-accuracy"), 1)
    assert one.id == two.id
    filtered = [cell("tab:pr-20", filter="flanders", metric=m) for m in ("precision", "recall")]
    assert len(runs(variant, filtered, [0, 1])) == 2


def test_without_malicious_clients_the_attack_makes_no_difference():
    free = cell("tab:increment-0", attack="none", malicious_ratio="0", aggregator="multikrum", filter="flanders")
    ids = {
        REFERENCE.run(
            cell("tab:robustness-1", attack=a, malicious_ratio="0", aggregator="multikrum", filter="flanders"), 0
        ).id
        for a in ("gauss", "lie", "opt", "agr-min-max")
    }
    assert ids == {REFERENCE.run(free, 0).id}


def test_the_first_seed_of_everything_is_run_before_the_second():
    found = runs(REFERENCE, [cell(), cell(filter="flanders")], [0, 1])
    assert [run.setting.federation.seed for run in found] == [0, 0, 1, 1]


def test_the_reference_is_set_as_the_published_code_is():
    run = REFERENCE.run(cell(dataset="fashion-mnist", attack="opt", aggregator="multikrum", filter="flanders"), 0)
    c = run.canonical
    assert c["data"]["dataset"] == {"name": "fashion-mnist-reference", "normalise_test": False, "verify": True}
    assert c["data"]["partition"]["name"] == "dirichlet-equal"
    assert c["training"] == {
        "optimizer": "adam",
        "learning_rate": 3e-3,
        "momentum": 0.0,
        "batch_size": 32,
        "epochs": 1,
        "shuffle": False,
        "validation_fraction": 0.2,
    }
    assert c["threat"]["attack"]["name"] == "opt-reference"
    assert (c["threat"]["start"], c["threat"]["rotating"]) == (3, True)
    assert sum(c["threat"]["attack"]["layer_sizes"]) == 242_762
    assert (c["filter"]["name"], c["filter"]["keep"]) == ("flanders-reference", 80)
    assert c["informed"] is True
    assert c["aggregator"]["keep"] == 10


def test_alone_the_references_aggregators_know_b_and_its_dnc_is_the_average():
    setting = REFERENCE.run(cell(aggregator="multikrum", malicious_ratio="0.8"), 0).setting
    assert (setting.aggregator.num_malicious, setting.aggregator.keep) == (80, 3)
    assert not setting.informed
    assert REFERENCE.run(cell(aggregator="dnc"), 0).id == REFERENCE.run(cell(), 0).id


@pytest.mark.parametrize(
    ("aggregator", "filter_", "ratio", "told"),
    [
        ("multikrum", "none", "0.2", 20),
        ("multikrum", "none", "0.8", 48),  # 100 > 2 * 48 + 2
        ("multikrum", "flanders", "0.8", 8),  # 20 > 2 * 8 + 2
        ("bulyan", "none", "0.2", 20),
        ("bulyan", "flanders", "0.2", 19),  # 80 >= 4 * 19 + 3
        ("dnc", "flanders", "0.6", 19),  # 2 * 19 < 40
        ("bulyan", "flanders", "0", 0),
    ],
)
def test_the_textbooks_aggregators_are_told_b_or_the_most_they_withstand(aggregator, filter_, ratio, told):
    attack = "none" if ratio == "0" else "lie"
    run = TEXTBOOK.run(cell(attack=attack, aggregator=aggregator, filter=filter_, malicious_ratio=ratio), 0)
    assert run.setting.aggregator.num_malicious == told


def test_the_textbook_tells_no_aggregator_the_truth():
    for table in read_tables(TABLES):
        for each in table.cells:
            run = TEXTBOOK.run(each, 0) if "textbook" in table.variants else None
            assert run is None or not run.setting.informed


def test_the_adaptive_tables_have_five_of_twenty_clients_malicious():
    (table,) = read_tables(["tab:omn-adaptive"])
    for each in table.cells:
        s = REFERENCE.run(each, 0).setting
        assert (s.federation.num_clients, s.federation.rounds) == (20, 20)
        assert s.threat.fraction == 0.25
        assert s.filter.keep == (20 if each.filter == "none" else 15)


def test_client_selection_keeps_all_but_the_two_malicious_and_at_least_one():
    (table,) = read_tables(["tab:random-client-selection"])
    found = [REFERENCE.run(each, 0).setting for each in table.cells]
    assert [s.federation.clients_per_round for s in found] == [2, 5, 10]
    assert [s.filter.keep for s in found] == [1, 3, 8]


def test_overrides_change_every_run():
    run = REFERENCE.run(cell(), 0, ["federation.rounds=3"])
    assert run.setting.federation.rounds == 3


def test_merging_goes_down_into_tables_and_changes_neither():
    one, two = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "d": {"e": 5}}
    assert merged(one, two) == {"a": {"b": 1, "c": 4}, "d": {"e": 5}}
    assert one == {"a": {"b": 1, "c": 2}, "d": 3}


def test_an_unknown_variant_is_refused():
    with pytest.raises(InputError, match="textbook"):
        read_variant("text")
