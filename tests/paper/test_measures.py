from __future__ import annotations

import pytest

from flanders.experiments.spec import parse_spec
from flanders.paper.measures import read_curves, read_measures
from flanders.results.store import Store
from round_records import round_record

MALICIOUS = [True, True, False, False]


def a_round(number, accuracy, kept):
    seconds = {"train": 1.0, "attack": 0.5, "filter": 0.25, "aggregate": 0.0, "evaluate": 0.25}
    return round_record(
        number, range(4), kept=kept, malicious=MALICIOUS, accuracy=accuracy, loss=1.0, seconds=seconds
    )


@pytest.fixture
def results(tmp_path):
    """One run of four rounds, and one that is not done."""
    path = tmp_path / "results.sqlite"
    done, begun = parse_spec({"federation": {"num_clients": 4, "rounds": 4, "seed": [0, 1]}})
    with Store(path) as store:
        ids = store.add([done.spec, begun.spec], {})
        store.claim(ids)
        store.write_round(done.id, a_round(1, 0.9, [1, 1, 0, 0]))
        store.write_round(done.id, a_round(2, 0.8, [1, 1, 0, 0]))
        store.write_round(done.id, a_round(3, 0.6, [0, 0, 1, 1]))
        store.write_round(done.id, a_round(4, 0.5, [0, 1, 1, 0]), last=True)
        store.claim(ids)
        store.write_round(begun.id, a_round(1, 0.9, [1, 1, 1, 1]))
    return path, done.id, begun.id


def test_detection_and_the_best_accuracy_count_from_the_first_round_on(results):
    path, done, _ = results
    found = read_measures(path, 3)[done]
    assert found["accuracy"] == 0.6
    assert found["final-accuracy"] == 0.5
    assert found["seconds"] == pytest.approx(8.0)
    assert found["precision"] == pytest.approx(3 / 4)
    assert found["recall"] == pytest.approx(3 / 4)
    early = read_measures(path, 1)[done]
    assert (early["accuracy"], early["precision"]) == (0.9, pytest.approx(3 / 8))


def test_only_finished_runs_count(results):
    path, done, begun = results
    assert set(read_measures(path, 3)) == {done}
    assert read_curves(path, [done, begun]) == {done: [0.9, 0.8, 0.6, 0.5]}


def test_without_a_results_file_nothing_is_there_yet(tmp_path):
    assert read_measures(tmp_path / "none.sqlite", 3) == {}
    assert read_curves(tmp_path / "none.sqlite", ["x"]) == {}
