"""FLDetector on the terms of its own paper: fixed malicious clients, one gradient step a round, a window of ten."""

from __future__ import annotations

import os

import pytest

from flanders.experiments.engine import Datasets, start
from flanders.filters import FLDetector
from flanders.results.spec_keys import attack_name
from flanders.simulation import auc, confusion
from flanders.studies.grid_studies import STUDIES
from flanders.studies.grids import runs_of


def play(run):
    records = list(start(run, Datasets()).run())
    first = run.setting.threat.start
    return auc(records, first), confusion(records, first + 10)


def chosen(rotating, attack, *, dataset="digits", overrides=()):
    """The study's run of FLDetector with these clients and this attack."""
    for run in runs_of(STUDIES["fldetector"], dataset=dataset, overrides=overrides):
        s = run.setting
        mine = isinstance(s.filter, FLDetector) and s.training.optimizer == "sgd"
        if mine and s.threat.rotating == rotating and attack_name(run.canonical) == attack:
            return run
    raise LookupError(attack)


SMALL = ("federation.num_clients=40", "federation.rounds=40")


@pytest.mark.parametrize("attack", ["opt-trmean", "opt", "dba"])
def test_fixed_malicious_clients_score_above_honest_ones(attack):
    found, _ = play(chosen(False, attack, overrides=SMALL))
    assert found > 0.95


def test_malicious_clients_that_rotate_do_not():
    found, _ = play(chosen(True, "opt-trmean", overrides=SMALL))
    assert found < 0.75


def test_once_the_window_is_full_the_gap_statistic_finds_fixed_attackers_by_itself():
    _, verdict = play(chosen(False, "opt-trmean", overrides=SMALL))
    assert verdict.recall > 0.95
    assert verdict.false_positive_rate < 0.05


@pytest.mark.slow
@pytest.mark.skipif("FLANDERS_DATA" not in os.environ, reason="FLANDERS_DATA does not name a folder with MNIST")
@pytest.mark.parametrize("attack", ["opt-trmean", "opt", "backdoor"])
def test_on_mnist_fixed_malicious_clients_are_told_apart_and_rotating_ones_are_not(attack):
    fixed, _ = play(chosen(False, attack, dataset="mnist"))
    rotating, _ = play(chosen(True, attack, dataset="mnist"))
    assert fixed > 0.95
    assert rotating < 0.75
