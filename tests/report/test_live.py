"""A live federation in the report: nobody knows who is malicious, and there may be no test data."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

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
    expect(page.locator("#scores-title")).to_have_text("Scores of kept and dropped clients")
    expect(page.locator("#detection-card")).to_be_hidden()
    facts = page.locator("#facts")
    expect(facts).to_contain_text("Replies dropped")
    expect(facts).not_to_contain_text("Honest")
    expect(facts).not_to_contain_text("Final accuracy")
    expect(page.locator("#runs thead")).not_to_contain_text("Malicious")
    legend = page.locator("#heat-legend")
    for word in ("dropped", "refused", "banned", "silent"):
        expect(legend).to_contain_text(word)
    expect(legend).not_to_contain_text("honest")
    for fate in ("Refused", "Silent", "Banned"):
        expect(facts).to_contain_text(re.compile(rf"{fate}\n1"), use_inner_text=True)
    for fate in Fate:
        expect(page.locator("#rounds-legend")).to_contain_text(str(fate))
    page.locator("#clients tbody a", has_text="key-0001").click()
    expect(page.locator("#view-client")).to_be_visible()
    expect(page.locator("#client-reasons")).to_contain_text("banned")
    expect(page.locator("#client-reasons")).to_contain_text("dropped in 5 rounds")
    expect(page.locator("#view-client")).not_to_contain_text("Sent poison")
    assert not problems


def test_a_federation_that_goes_on_is_not_called_final(write, make_spec, make_rounds, rng, tmp_path, open_page):
    path = write(tmp_path / "on.sqlite", [(make_spec(), make_rounds(rng, clients=5, rounds=3), "running")])
    write_html(path, tmp_path / "on.html")
    page, problems = open_page(tmp_path / "on.html", 1280)
    expect(page.locator("#facts")).to_contain_text("Accuracy so far")
    expect(page.locator("#facts")).to_contain_text("3 of 50")
    expect(page.locator("body")).not_to_contain_text("Final", use_inner_text=True)
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
