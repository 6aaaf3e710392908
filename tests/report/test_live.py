"""A live federation in the report: nobody knows who is malicious, and there may be no test data."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.report import write_figures, write_html
from flanders.report.data import read_results


@pytest.fixture
def results(tmp_path, rng, write, make_spec, make_rounds):
    rounds = list(make_rounds(rng, clients=12, rounds=5, malicious=0.25))
    for record in rounds:
        record.clients = [f"key-{c:04x}" for c in record.clients]
        record.malicious = [None] * len(record.clients)
        record.accuracy = record.loss = float("nan")
    return write(tmp_path / "live.sqlite", [(make_spec(), rounds, "done")])


def test_the_page_opens_without_errors_and_claims_nothing(results, tmp_path, open_page):
    write_html(results, tmp_path / "live.html")
    page, problems = open_page(tmp_path / "live.html", 1280)
    assert not problems
    assert page.locator("#scores-title").inner_text() == "Scores of kept and dropped clients"
    assert "Nobody knows who is malicious" in page.locator("#detection").inner_text()
    facts = page.locator("#facts").inner_text()
    assert "Clients dropped" in facts
    assert "Honest dropped" not in facts
    assert "Malicious" not in page.locator("#runs thead").inner_text()
    legend = page.locator("#heat-legend").inner_text()
    assert "honest" not in legend
    assert "dropped" in legend


def test_the_figures_are_drawn(results, tmp_path):
    written = write_figures(results, tmp_path / "figures", "svg")
    assert {path.name for path in written} >= {
        "scores_heatmap.svg",
        "score_distributions.svg",
        "precision_recall.svg",
    }


def test_nobody_is_caught_or_wronged(results):
    (run,) = read_results(results)
    assert not run.truth
    assert (run.present & ~run.kept).any()
    assert run.detection.caught == run.detection.wronged == run.detection.missed == run.detection.passed == 0
    assert np.isnan(run.accuracy).all()
