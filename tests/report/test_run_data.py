from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.record import PHASES, Fate
from flanders.report.run_reading import read_results
from flanders.results.confusion import Confusion
from round_records import round_record


@pytest.fixture
def tiny(write, make_spec, tmp_path):
    """Two rounds with other clients in each, one of them a string."""
    same = {"seconds": dict.fromkeys(PHASES, 0.1), "accuracy": 0.5, "loss": 1.0}
    note = "no scores yet: all usable models were aggregated"
    bad, kept = [True, False, True], [False, True, True]
    rounds = [
        round_record(1, (0, 7), malicious=[True, False], kept=[True, True], note=note, **same),
        round_record(
            2,
            (7, "late"),
            malicious=[False, True],
            kept=[True, False],
            score=[1.5, np.nan],
            probability=[0.1, 0.9],
            reason=["", "far from the others"],
            **same,
        ),
        round_record(3, (0, 7, "late"), malicious=bad, kept=kept, score=[9.0, 2.0, 3.0], **same),
    ]
    return write(tmp_path / "tiny.sqlite", [(make_spec(), rounds, "done")])


def test_clients_become_rows_and_rounds_columns(tiny):
    [run] = read_results(tiny)
    assert run.clients == (0, 7, "late")
    assert run.rounds.tolist() == [1, 2, 3]
    assert run.present.tolist() == [[True, False, True], [True, True, True], [False, True, True]]
    assert run.malicious.tolist() == [[True, False, True], [False, False, False], [False, True, True]]
    np.testing.assert_array_equal(run.score, [[np.nan, np.nan, 9], [np.nan, 1.5, 2], [np.nan, np.nan, 3]])
    np.testing.assert_array_equal(run.probability[:, 1], [np.nan, 0.1, 0.9])
    assert run.notes == {1: "no scores yet: all usable models were aggregated"}
    assert run.seconds["train"].tolist() == [0.1, 0.1, 0.1]


def test_the_threshold_is_the_one_of_the_record(tiny):
    [run] = read_results(tiny)
    np.testing.assert_array_equal(run.threshold, [np.nan, 1.5, 3])


def test_fates_and_reasons_are_read_for_each_client_and_round(write, make_spec, tmp_path):
    fates = ["kept", "dropped", "refused", "banned", "silent"]
    reasons = ["", "too long", "not finite", "dropped too often", "no reply"]
    rounds = [round_record(1, range(5), fates=fates, reason=reasons, score=[1.0, 9.0, None, None, None])]
    [run] = read_results(write(tmp_path / "fates.sqlite", [(make_spec(), rounds, "done")]))
    assert run.fates == dict.fromkeys(Fate, 1)
    assert [bool(run.having(Fate(fate))[i, 0]) for i, fate in enumerate(fates)] == [True] * 5
    assert [run.texts["reason"].words[code] for code in run.texts["reason"].codes[:, 0]] == reasons


def test_clients_that_were_not_asked_or_did_not_reply_were_not_judged(write, make_spec, tmp_path):
    rounds = [round_record(1, range(3), fates=["kept", "silent", "banned"], score=[0.0, None, None])]
    [run] = read_results(write(tmp_path / "silent.sqlite", [(make_spec(), rounds, "done")]))
    assert not run.judged
    assert not run.truth


def test_precision_and_recall_count_every_round_together(tiny):
    [run] = read_results(tiny)
    found = run.detection
    assert (found.caught, found.wronged, found.missed, found.passed) == (2, 0, 2, 3)
    assert (found.precision, found.recall, found.false_positive_rate) == (1.0, 0.5, 0.0)


def test_detection_agrees_with_the_sets_of_the_papers_appendix(rng):
    malicious, kept = rng.random((2, 30, 12)) < 0.4
    present = rng.random((30, 12)) < 0.7
    tp = fp = fn = 0
    for t in range(12):
        selected = set(np.flatnonzero(present[:, t]))
        bad = selected & set(np.flatnonzero(malicious[:, t]))
        called = selected - set(np.flatnonzero(kept[:, t]))
        tp, fp, fn = tp + len(bad & called), fp + len(called - bad), fn + len(bad - called)
    found = Confusion.of(malicious[present], kept[present])
    assert (found.precision, found.recall) == (tp / (tp + fp), tp / (tp + fn))


def test_ratios_of_nothing_are_nan():
    found = Confusion()
    assert np.isnan([found.precision, found.recall, found.false_positive_rate]).all()


def test_a_filter_that_keeps_everyone_has_not_judged(results):
    free, alone, flanders = read_results(results)
    assert (free.judged, alone.judged, flanders.judged) == (False, False, True)


def test_missing_and_foreign_files_are_explained(tmp_path):
    with pytest.raises(InputError, match="no results at"):
        read_results(tmp_path / "missing.sqlite")
    with pytest.raises(InputError, match="is a folder"):
        read_results(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("no database " * 100)
    with pytest.raises(InputError, match="not a readable results file"):
        read_results(text)
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE run (id)")
    connection.close()
    with pytest.raises(InputError, match="holds no results of flanders"):
        read_results(other)


def test_results_that_are_being_written_can_be_read(results):
    writer = sqlite3.connect(results, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE run SET status = 'running'")
    assert {run.status for run in read_results(results)} == {"done"}
    writer.execute("ROLLBACK")
    writer.close()
