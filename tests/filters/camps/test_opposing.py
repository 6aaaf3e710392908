"""Clients that point against the others, alone or as a majority next to the server."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import LAYERS, D, cosines_of, honest, towards_the_common, turned, unit, world
from flanders import Defense, Guard, layers_of
from flanders.filters.camps.opposing import (
    CLEAR,
    FEWEST,
    LIKELY,
    MOST,
    Opposition,
    cosines_with_rest,
    measure_opposition,
    opposing_rows,
)


def found(updates, known=None, server=None, by_server=None):
    by_server = server is not None if by_server is None else by_server
    m = len(updates)
    step = None if server is None else unit(updates) @ unit(server)
    known = Opposition() if known is None else known
    rows = opposing_rows(cosines_of(updates), np.ones(m, bool), tuple(range(m)), known, step, by_server=by_server)
    return np.flatnonzero(rows.rows)


def test_the_cosine_is_the_one_with_the_sum_of_the_others():
    updates, server = turned(8, 2, 1), world()[0]
    rows = np.arange(8) != 3
    for c in (0, 3, 5):
        others = unit(updates)[rows & (np.arange(8) != c)].sum(axis=0)
        by_hand = unit(updates[c]) @ unit(others)
        assert cosines_with_rest(cosines_of(updates), rows)[c] == pytest.approx(by_hand)
        by_hand = unit(updates[c]) @ unit(others + 3.0 * rows.sum() * unit(server))
        with_server = cosines_with_rest(cosines_of(updates), rows, unit(updates) @ unit(server), 3.0)
        assert with_server[c] == pytest.approx(by_hand)


@pytest.mark.parametrize(("m", "share"), [(FEWEST, 0.0), (FEWEST, 0.2), (10, 0.0), (10, 0.4), (30, 0.2), (30, 0.4)])
def test_a_minority_that_turns_round_is_found_in_its_first_round(m, share):
    b = int(share * m)
    assert found(turned(m, b, 1)).tolist() == list(range(b))


def test_nobody_is_found_where_halves_point_against_each_other():
    assert found(turned(10, 5, 1)).size == 0


@pytest.mark.parametrize("b", [6, 9, 15])
def test_the_server_finds_a_majority(b):
    assert found(turned(20, b, 1), server=world()[0]).tolist() == list(range(b))


def test_a_client_that_goes_along_with_the_other_clients_is_not_found_for_the_server_s_sake():
    updates = turned(20, 0, 1)
    server = unit(updates[1:].sum(axis=0)) - 1.4 * unit(updates[0])
    assert unit(server) @ unit(updates[0]) < -0.3 < 0 < unit(updates[1:].sum(axis=0)) @ unit(updates[0])
    assert found(updates, server=server).size == 0


def test_with_a_server_a_minority_is_also_found_by_comparing_the_clients_alone():
    assert found(turned(20, 6, 1), server=world()[0], by_server=False).tolist() == list(range(6))
    assert found(turned(20, 14, 1), server=world()[0], by_server=False).size == 0


def test_numbers_with_a_gap_are_evidence_and_numbers_without_one_are_not():
    def evidence(cosines):
        m = len(cosines)
        return opposing_rows(cosines, np.ones(m, bool), tuple(range(m)), Opposition())

    with_gap = evidence(cosines_of(turned(20, 6, 1)))
    assert with_gap.rows.sum() == 6
    assert with_gap.evidence > CLEAR
    spread = np.linspace(-0.5, 0.9, 20)  # each client's cosine with a direction that all have in common
    found = evidence(np.outer(spread, spread) + np.diag(1 - spread**2))
    assert found.rows.any()
    assert found.evidence < LIKELY


@pytest.mark.parametrize("m", [FEWEST - 1, MOST + 1])
def test_very_small_and_large_rounds_are_skipped(m):
    assert found(turned(m, 1, 1)).size == 0


def test_attackers_cannot_make_a_round_weigh_less():
    everyone = np.ones(20, bool)
    weights = [
        measure_opposition(cosines_of(turned(20, b, 1)), None, everyone, decided=False)[1][0] for b in (0, 6)
    ]
    assert weights[1] > 0.8 * weights[0]


def after(rounds):
    known = Opposition()
    for updates in rounds:
        m = len(updates)
        known = known.after(cosines_of(updates), None, tuple(range(m)), np.ones(m, bool))
    return known


def test_a_long_past_outweighs_one_odd_round():
    assert found(turned(10, 2, 1)).tolist() == [0, 1]
    assert found(turned(10, 2, 1), after(turned(10, 0, seed) for seed in range(2, 8))).size == 0


def test_a_round_weighs_no_more_than_the_last_one_before_it_is_decided():
    """Late in training, clients that happen to agree must not make a noisy round count."""
    noise = np.random.default_rng(0).normal(size=(10, D))
    known = after([noise])
    assert found(turned(10, 2, 1)).tolist() == [0, 1]
    assert found(turned(10, 2, 1), known).size == 0


def test_a_round_that_kept_nobody_changes_nothing():
    known = after([turned(10, 0, 1)])
    assert known.after(cosines_of(turned(10, 0, 2)), None, tuple(range(10)), np.zeros(10, bool)) is known


@pytest.mark.parametrize(
    ("layers", "compared"),
    [
        (LAYERS, True),
        ({"only.weight": D - 10, "only.bias": 10}, False),
        ({"w1": D - 80, "w2": 70, "b2": 10}, False),  # the last tensor may be the bias alone
        (None, False),
    ],
)
def test_the_filter_compares_only_if_it_knows_the_last_layer(layers, compared):
    """In the last layer honest clients may point against each other."""
    defense = Defense(Guard())
    defense(honest(12, 1), layers=layers)
    assert bool(defense.state.opposition.weights) is compared


def test_the_server_stops_a_majority_of_a_small_federation():
    updates = turned(10, 6, 1)
    outcome = Defense(Guard(), evaluate=towards_the_common)(updates, layers=LAYERS, root=world()[0])
    assert outcome.dropped == (0, 1, 2, 3, 4, 5)


def test_a_plain_list_of_arrays_is_judged_like_arrays_with_names():
    def reasons(layers):
        defense = Defense(Guard())
        return [defense(turned(10, 2, seed), global_model=np.zeros(D), layers=layers).reasons for seed in range(4)]

    shapes = [(20, 145), (20,), (10, 7), (10,)]
    plain = layers_of([np.zeros(shape) for shape in shapes])
    assert list(plain.values()) == list(LAYERS.values())
    assert reasons(plain) == reasons(LAYERS)
    assert [*reasons(plain)[-1]] == [0, 1]
    assert reasons(plain) != reasons(None)
