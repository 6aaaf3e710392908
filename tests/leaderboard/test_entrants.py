from __future__ import annotations

import pytest

from flanders.checks import InputError
from flanders.leaderboard.entrants import own_entrants, parse_entrants, read_entrants
from flanders.leaderboard.protocol import Case, read_protocol

PROTOCOL = read_protocol()
KRUM = {"name": "my-krum", "largest_b": 8, "told": {"aggregator": {"name": "krum", "num_malicious": "b"}}}


def one(**changes):
    (entrant,) = parse_entrants({"defence": [{**KRUM, **changes}]}, "my.toml")
    return entrant


def told_b(entrant, fraction):
    case = Case("lie", fraction, 1) if fraction else Case()
    return entrant.experiment(PROTOCOL, "digits", case, 40).setting.aggregator.num_malicious


def test_a_told_defence_gets_the_number_of_malicious_clients_up_to_its_largest():
    assert [told_b(one(), fraction) for fraction in (0.0, 0.1, 0.4, 0.8)] == [0, 2, 8, 8]


def test_the_number_of_the_others_follows():
    entrant = one(told={"filter": {"name": "dnc", "keep": "m-b"}})
    run = entrant.experiment(PROTOCOL, "digits", Case("lie", 0.2, 1), 40)
    assert run.setting.filter.keep == 16


def test_a_pre_aggregator_inside_a_list_is_told_too():
    chain = [{"name": "nnm", "num_malicious": "b"}]
    entrant = one(told={"aggregator": {"name": "median", "preaggregators": chain}})
    run = entrant.experiment(PROTOCOL, "digits", Case("lie", 0.2, 1), 40)
    assert run.setting.aggregator.first.num_malicious == 4


def test_a_defence_changes_nothing_but_the_defence():
    plain, *others = own_entrants()
    case = Case("sign-flip", 0.2, 3, rotating=True)
    expected = plain.experiment(PROTOCOL, "digits", case, 40).canonical
    for entrant in others:
        found = entrant.experiment(PROTOCOL, "digits", case, 40).canonical
        for section in ("data", "model", "training", "federation", "threat"):
            assert found[section] == expected[section], entrant.title


@pytest.mark.parametrize("entrant", own_entrants(), ids=lambda entrant: entrant.title)
def test_every_defence_of_this_package_has_a_source_and_a_run_in_every_case(entrant):
    assert entrant.paper
    for fraction in (0.0, *PROTOCOL.fractions):
        assert entrant.experiment(PROTOCOL, "digits", Case("lie", fraction, 1) if fraction else Case(), 40).id


def test_a_defence_with_both_forms_has_two_rows():
    table = {"name": "twice", "untold": {"aggregator": "krum"}, "told": KRUM["told"]}
    assert [e.title for e in parse_entrants({"defence": [table]}, "my.toml")] == ["twice", "twice, told b"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "My Krum"}, "each defence needs a `name` of up to 40 lower-case"),
        ({"name": "<script>"}, "each defence needs a `name`"),
        ({"papers": "x"}, "no key 'papers'. Did you mean 'paper'"),
        ({"paper": "x\n| y"}, "`paper` must be one line"),
        ({"largest_b": 1.5}, "`largest_b` parameter of my.toml: my-krum must be a whole number"),
        ({"reference": 1}, "`reference` must be true or false"),
        ({"told": {"threat": {}}}, "no key 'threat'. Known: filter, aggregator, fallback, server"),
        ({"told": {"aggregator": "krum"}}, '`told` must use "b" or "m-b"'),
        ({"untold": {"aggregator": {"name": "krum", "num_malicious": "b"}}}, '`untold` may not use "b"'),
        ({"told": "krum"}, "must be a table of keys and values"),
    ],
)
def test_what_is_wrong_with_a_defence_is_told(changes, problem):
    with pytest.raises(InputError, match=problem):
        one(**changes)


@pytest.mark.parametrize("tree", [{}, {"defence": []}, {"defence": {"name": "x"}}, {"defence": [KRUM], "more": 1}])
def test_a_file_without_a_list_of_defences_is_refused(tree):
    with pytest.raises(InputError, match=r"needs one or more tables \[\[defence\]\] and nothing else"):
        parse_entrants(tree, "my.toml")


def test_a_name_that_is_there_twice_is_refused():
    with pytest.raises(InputError, match="two defences have the name 'my-krum, told b'"):
        parse_entrants({"defence": [KRUM, KRUM]}, "my.toml")


def test_nobody_takes_the_name_of_one_of_ours_or_the_place_of_a_reference(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[[defence]]\nname = "krum"\nuntold = { aggregator = "krum" }\n')
    with pytest.raises(InputError, match="flanders has a defence 'krum' already"):
        read_entrants(file)
    file.write_text('[[defence]]\nname = "mine"\nreference = true\nuntold = { aggregator = "krum" }\n')
    with pytest.raises(InputError, match="'mine' cannot be a reference"):
        read_entrants(file)
