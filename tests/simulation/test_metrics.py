from __future__ import annotations

import math

import numpy as np
import pytest

from flanders.simulation import Confusion, auc, confusion, summary
from round_records import round_record


def record(number, malicious, kept, scores=None, accuracy=0.5):
    return round_record(
        number,
        range(len(malicious)),
        kept=kept,
        malicious=[bool(bad) for bad in malicious],
        score=scores,
        accuracy=accuracy,
        loss=1.0,
        seconds={"train": 1.0, "attack": 0.5, "filter": 0.25, "aggregate": 0.0, "evaluate": 0.25},
    )


def test_precision_and_recall_are_of_sums_over_rounds_not_averages_of_rounds():
    first = record(1, [1, 0, 0, 0], [0, 0, 0, 1])  # tp 1, fp 2, tn 1
    second = record(2, [1, 1, 1, 0], [0, 1, 1, 1])  # tp 1, fn 2, tn 1
    counts = confusion([first, second])
    assert counts == Confusion(caught=2, wronged=2, missed=2, passed=2)
    assert (counts.precision, counts.recall, counts.false_positive_rate) == (0.5, 0.5, 0.5)


def test_the_published_code_counts_from_the_third_round():
    records = [record(t, [1, 0], [1, 1] if t < 3 else [0, 1]) for t in (1, 2, 3, 4)]
    assert confusion(records).recall == 0.5
    assert confusion(records, first_round=3).recall == 1.0


def test_without_malicious_clients_there_is_no_recall_and_no_auc():
    records = [record(1, [0, 0], [1, 1], [0.1, 0.2])]
    counts = confusion(records)
    assert math.isnan(counts.precision)
    assert math.isnan(counts.recall)
    assert counts.false_positive_rate == 0.0
    assert math.isnan(auc(records))


def test_everyone_malicious_has_no_false_positive_rate():
    assert math.isnan(confusion([record(1, [1, 1], [0, 1])]).false_positive_rate)


def test_auc_counts_pairs_within_rounds_and_half_of_ties():
    one = record(1, [1, 0, 0], [1, 1, 1], [2.0, 1.0, 2.0])  # 1 win and 1 tie of 2 pairs
    other = record(2, [1, 0], [1, 1], [0.1, 0.2])  # lost, whatever round 1's scores
    assert auc([one]) == pytest.approx(0.75)
    assert auc([one, other]) == pytest.approx(1.5 / 3)


def test_auc_equals_scikit_learns_in_one_round():
    from sklearn import metrics

    rng = np.random.default_rng(0)
    bad, scores = rng.random(50) < 0.3, np.round(rng.random(50), 1)
    assert auc([record(1, bad, ~bad, scores)]) == pytest.approx(metrics.roc_auc_score(bad, scores))


def test_clients_without_a_score_are_left_out_of_the_auc():
    assert auc([record(1, [1, 0, 0], [1, 1, 0], [2.0, 1.0, math.nan])]) == 1.0
    assert math.isnan(auc([record(1, [1, 0], [1, 1])]))


def test_the_summary_has_the_best_and_the_last_accuracy_and_adds_up_time():
    records = [record(t, [1, 0], [0, 1], [1, 0], accuracy) for t, accuracy in ((1, 0.3), (2, 0.9), (3, 0.6))]
    found = summary(records)
    assert (found["best_accuracy"], found["final_accuracy"], found["rounds"]) == (0.9, 0.6, 3)
    assert (found["precision"], found["recall"], found["auc"]) == (1.0, 1.0, 1.0)
    assert found["seconds"] == pytest.approx(6.0)
    assert found["seconds_by_phase"]["train"] == 3.0
    assert summary([]) == {"rounds": 0}
