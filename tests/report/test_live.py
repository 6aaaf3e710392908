"""A live federation in the report: nobody knows who is malicious, and there may be no test data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flanders.record import ClientRecord, Fate
from flanders.report import write_figures, write_html
from flanders.report.payload import build_payload
from flanders.report.run_reading import read_results


@pytest.fixture
def results(tmp_path, rng, write, make_spec, make_rounds):
    rounds = []
    for record in make_rounds(rng, clients=12, rounds=5, malicious=0.25):
        clients = [replace(c, client=f"key-{c.client:04x}", malicious=None) for c in record.clients]
        if record.number == 3:
            clients[0] = ClientRecord("key-0000", Fate.SILENT, reason="no reply within 60 s")
            clients[1] = ClientRecord("key-0001", Fate.BANNED, reason="dropped in 5 rounds")
            clients[2] = ClientRecord("key-0002", Fate.REFUSED, reason="holds NaN")
        nan = float("nan")
        rounds.append(replace(record, clients=tuple(clients), accuracy=nan, loss=nan))
    return write(tmp_path / "live.sqlite", [(make_spec(), rounds, "done")])


def test_the_page_opens_without_errors_and_claims_nothing(results, tmp_path, open_page):
    write_html(results, tmp_path / "live.html")
    page, problems = open_page(tmp_path / "live.html", 1280)
    assert not problems
    assert page.locator("#scores-title").inner_text() == "Scores of kept and dropped clients"
    assert page.locator("#detection-card").is_hidden()
    facts = page.locator("#facts").inner_text()
    assert "Replies dropped" in facts
    assert "Honest" not in facts
    assert "Final accuracy" not in facts
    assert "Malicious" not in page.locator("#runs thead").inner_text()
    legend = page.locator("#heat-legend").inner_text()
    assert "honest" not in legend
    assert "dropped" in legend
    assert "refused" in legend
    assert "banned" in legend
    assert "silent" in legend
    for fate in ("Refused\n1", "Silent\n1", "Banned\n1"):
        assert fate in facts
    rounds = page.locator("#rounds-legend").inner_text()
    assert all(str(fate) in rounds for fate in Fate)
    page.locator("#clients tbody a", has_text="key-0001").click()
    assert "banned" in page.locator("#client-reasons").inner_text()
    assert "dropped in 5 rounds" in page.locator("#client-reasons").inner_text()
    assert "Sent poison" not in page.locator("#view-client").inner_text()


def test_a_federation_that_goes_on_is_not_called_final(write, make_spec, make_rounds, rng, tmp_path, open_page):
    path = write(tmp_path / "on.sqlite", [(make_spec(), make_rounds(rng, clients=5, rounds=3), "running")])
    write_html(path, tmp_path / "on.html")
    page, problems = open_page(tmp_path / "on.html", 1280)
    facts = page.locator("#facts").inner_text()
    assert "Accuracy so far" in facts
    assert "Final" not in page.locator("body").inner_text()
    assert "3 of 50" in facts
    assert not problems


def test_silent_and_banned_clients_do_not_count_as_dropped(results):
    (run,) = read_results(results)
    fates = build_payload([run])["runs"][0]["fates"]
    assert {fate: fates[fate] for fate in ("refused", "banned", "silent")} == {
        "refused": 1,
        "banned": 1,
        "silent": 1,
    }
    assert fates["dropped"] == np.count_nonzero(run.having(Fate.DROPPED))
    assert sum(fates.values()) == np.count_nonzero(run.present)


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
