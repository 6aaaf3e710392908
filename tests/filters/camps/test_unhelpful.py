"""Clients that do not help the server, such as clients with wrong labels."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import LAYERS, D, cosines_of, honest, mask, towards_the_common, turned, unit, world
from flanders import Round
from flanders.experiments.spec import parse_spec
from flanders.filters.camps.decision import start_decision
from flanders.filters.camps.judging import Past
from flanders.filters.camps.opposing import Opposing, Opposition
from flanders.filters.camps.unhelpful import FEWEST, drop_unhelpful, unhelpful_rows
from flanders.results.confusion import Confusion
from flanders.simulation.simulation import Simulation


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
    assert unhelpful(across(20, int(FEWEST * 20) - 1, 1)).size == 0


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
