"""The predictability study: by hand, on a small federation, and what it leaves on disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flanders import InputError
from flanders.experiments.engine import Datasets
from flanders.studies import predictability
from flanders.studies.grid_studies import PREDICTABILITY
from flanders.studies.grids import runs_of
from flanders.studies.predictability import FORECAST, findings_of, forecast_errors, measure, measured, summarise
from flanders.studies.trajectories import Trajectories

SMALL = ("federation.num_clients=10", "federation.rounds=6")


def test_a_model_on_a_straight_line_from_its_predecessor_is_forecast_without_error(rng):
    models = [rng.normal(size=500)]
    for slope, level in ((2.0, 1.0), (2.0, 1.0), (-1.0, 3.0)):
        models.append(slope * models[-1] + level)
    first, second = forecast_errors(np.stack(models))
    assert first == pytest.approx(0, abs=1e-20)
    # The third step is other than the second: forecast 2x + 1, sent -x + 3, so the error is var(3x)/var(x) + level.
    x = models[2]
    assert second == pytest.approx(np.mean((3 * x - 2) ** 2) / x.var())


def test_noise_cannot_be_forecast(rng):
    assert forecast_errors(rng.normal(size=(6, 4000))).mean() == pytest.approx(1, abs=0.05)
    np.testing.assert_array_equal(forecast_errors(np.ones((4, 9))), [1, 1])


def steady_and_noisy(rng):
    """A client that repeats itself and one that does not, around a global model that both know."""
    g = rng.normal(size=(1, 300)) + 0.1 * rng.normal(size=(12, 300))
    steady = g + np.cumsum(rng.normal(size=(12, 300)), axis=0)
    return Trajectories(steady, g + 5 * rng.normal(size=(12, 300)), g)


def spec_of(attack="gauss", seeds=1, rounds=6):
    changes = [*SMALL, f"federation.rounds={rounds}"]
    (run, *_) = runs_of(PREDICTABILITY, attacks=[attack], seeds=seeds, overrides=changes)
    return run


def test_the_fewest_rounds_that_can_be_measured_are_named(tmp_path):
    for rounds in (1, 3):
        with pytest.raises(InputError, match=f"at least 4 rounds to follow clients. Got {rounds}"):
            measured(spec_of(rounds=rounds), tmp_path, Datasets())
    findings_of(spec_of(), measured(spec_of(rounds=4), tmp_path, Datasets()))


def test_every_way_of_measuring_calls_the_steady_client_more_predictable(rng):
    series = measure(steady_and_noisy(rng), coordinates=100)
    assert {key[0] for key in series} == {"models", "displacements"}
    assert series["models", "parameters", "kraskov"][0].shape == (11,)
    assert series["models", "time", "kraskov"][0].shape == (100,)
    assert series["models", "parameters", FORECAST][0].shape == (10,)
    findings = findings_of(spec_of(), series)
    assert len(findings) == len(series) == 14
    for found in findings:
        assert found.difference > 0, found
        assert found.welch_p < 0.01, found
        assert found.bootstrap_p < 0.05, found
        assert (found.malicious > found.honest) == (found.estimator == FORECAST)


def test_the_published_p_value_stands_beside_what_can_be_compared_with_it(rng):
    findings = findings_of(spec_of("lie-reference"), measure(steady_and_noisy(rng), coordinates=50))
    beside = {(f.of, f.pooling, f.estimator) for f in findings if f.published_p is not None}
    estimators = ("gaussian-copula", "kraskov", "histogram")
    assert beside == {("models", "parameters", name) for name in estimators}
    assert {f.published_p for f in findings} == {8.33e-5, None}


def test_seeds_are_summed_up_line_by_line(rng):
    one = findings_of(spec_of(), measure(steady_and_noisy(rng), coordinates=50))
    two = [replace(f, seed=1, honest=f.honest + 2, difference=-1.0, welch_p=1.0) for f in one]
    lines = summarise([*one, *two])
    assert len(lines) == len(one)
    assert lines[0]["honest"] == pytest.approx(one[0].honest + 1)
    assert lines[0]["honest ahead"] == "1 of 2"
    assert lines[0]["Welch p"] == pytest.approx((one[0].welch_p + 1) / 2)


def test_gauss_is_less_predictable_than_an_honest_client_on_digits(tmp_path):
    run = spec_of()
    series = measured(run, tmp_path, Datasets())
    for found in findings_of(run, series):
        if found.of == "models" and found.pooling == "parameters":
            assert found.difference > 0
            assert found.welch_p < 1e-3


def test_what_was_measured_is_not_measured_again_and_reads_back_the_same(tmp_path, monkeypatch):
    run = spec_of("lie")
    first = measured(run, tmp_path, Datasets())
    monkeypatch.setattr(predictability, "follow", lambda *_: pytest.fail("was run again"))
    again = measured(run, tmp_path, Datasets())
    assert first.keys() == again.keys()
    for key, pair in first.items():
        np.testing.assert_array_equal(pair, again[key])
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"broken")
    with pytest.raises(InputError, match="Delete it"):
        measured(run, tmp_path, Datasets())
