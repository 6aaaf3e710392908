"""Clients that point against the others, alone or as a majority next to the server."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import LAYERS, D, honest, mask, towards_the_common, turned, world
from flanders import Defense, Guard, Round
from flanders.experiments.spec import parse_spec
from flanders.filters.camps.decision import drop_unhelpful, start_decision
from flanders.filters.camps.judging import Past
from flanders.filters.camps.opposing import (
    CLEAR,
    FEWEST,
    FEWEST_UNHELPFUL,
    LIKELY,
    MOST,
    Opposing,
    Opposition,
    cosines_with_rest,
    measure_opposition,
    opposing_rows,
    unhelpful_rows,
)
from flanders.results.confusion import Confusion
from flanders.simulation.simulation import Simulation


def unit(updates):
    return updates / np.linalg.norm(updates, axis=-1, keepdims=True)


def cosines_of(updates):
    return unit(updates) @ unit(updates).T


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


def across(m, b, seed):
    """Displacements of clients with even data. The first b of them go slightly against what all clients learn."""
    updates = honest(m, seed, alpha=5.0)
    step = unit(world()[0])
    updates[:b] -= np.outer(updates[:b] @ step + 0.05 * np.linalg.norm(updates[:b], axis=1), step)
    return updates


def unhelpful(updates, known=None, rows=None):
    m = len(updates)
    rows = np.ones(m, bool) if rows is None else rows
    known = Opposition() if known is None else known
    found = unhelpful_rows(cosines_of(updates), rows, tuple(range(m)), known, unit(updates) @ unit(world()[0]))
    return np.flatnonzero(found.rows)


@pytest.mark.parametrize(("m", "b"), [(20, 5), (20, 16), (100, 30)])
def test_clients_that_do_not_help_are_found_in_rounds_of_any_size(m, b):
    assert unhelpful(across(m, b, 1)).tolist() == list(range(b))


def test_few_clients_that_do_not_help_are_left_alone():
    assert unhelpful(across(20, int(FEWEST_UNHELPFUL * 20) - 1, 1)).size == 0


def test_nobody_is_found_if_the_others_do_not_help_either():
    assert unhelpful(across(20, 20, 1)).size == 0
    updates = across(20, 16, 1)
    assert unhelpful(updates, rows=np.arange(20) < 17).size == 0  # one other client is left


def test_a_past_that_helped_outweighs_one_round_that_did_not():
    server = world()[0]
    known = Opposition()
    for number in (1, 2, 3):
        updates = turned(20, 0, number)
        step = unit(updates) @ unit(server)
        known = known.after(cosines_of(updates), step, tuple(range(20)), np.ones(20, bool))
    assert unhelpful(across(20, 8, 4), known).size == 0
    assert unhelpful(across(20, 8, 4)).tolist() == list(range(8))


def rows_dropped(updates, evaluate, layers, camp):
    """Which clients are dropped if those in `camp` were found not to help."""
    m = len(updates)
    round_ = Round(updates, tuple(range(m)), np.ones(m), np.zeros(D), None, layers, evaluate)
    decision = start_decision(round_, 0.01, Past())
    drop_unhelpful(decision, Opposing(mask(m, camp), np.full(m, -0.05), np.zeros(m)))
    dropped = np.flatnonzero(~decision.kept).tolist()
    assert all("does not go along with the server's step" in decision.reasons[row] for row in dropped)
    return dropped


@pytest.mark.parametrize("evaluate", [towards_the_common, lambda model: towards_the_common(model).mean()])
@pytest.mark.parametrize("camp", [range(8), range(14), range(12, 20)])
def test_clients_that_do_not_help_are_dropped_if_the_losses_are_lower_without_them(camp, evaluate):
    updates, connected = across(20, 14, 1), {"1.weight": 2737, "1.bias": 23, "2.weight": 230, "2.bias": 10}
    expected = [] if 19 in camp else list(camp)
    assert rows_dropped(updates, evaluate, connected, list(camp)) == expected
    assert rows_dropped(updates, evaluate, LAYERS, list(camp)) == []  # these layers are not fully connected
    assert rows_dropped(updates, lambda model: np.ones(50), connected, list(camp)) == []
    assert rows_dropped(updates, None, connected, list(camp)) == []


def test_flipped_labels_are_found_with_the_server_s_examples():
    (run,) = parse_spec(
        {
            "data": {"partition": {"name": "iid"}},
            "model": {"name": "mlp2", "hidden": 64},
            "training": {"learning_rate": 0.01, "batch_size": 16, "epochs": 2},
            "federation": {"num_clients": 20, "rounds": 6, "seed": 2},
            "threat": {"data_poison": "label-flip", "fraction": 0.4, "start": 1, "rotating": False},
            "filter": {"name": "guard"},
            "server": {"examples": 100},
            "run": {"device": "cpu", "threads": 1},
        }
    )
    *_, last = Simulation(run.setting).run()
    assert Confusion.of(last.malicious, last.kept) == Confusion(caught=8, wronged=0, missed=0, passed=12)


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
