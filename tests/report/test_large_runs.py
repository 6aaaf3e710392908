"""Runs with very many clients or rounds: bounded memory, a page that opens, and a word on what was left out."""

from __future__ import annotations

import time

import numpy as np
import pytest
from playwright.sync_api import expect

from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.report import write_figures, write_html
from flanders.report.client_cells import encode_clients
from flanders.report.payload import build_payload
from flanders.report.run_reading import MOST_ROWS, choose_rows, read_results
from flanders.results.run import RunSpec
from flanders.results.store import Store


def flood(rounds, per_round, *, again=0):
    """Rounds in which all clients are new, except for the first few. Every third client is dropped."""
    for number in range(1, rounds + 1):
        ids = [*range(again), *(f"made-up-{number}-{i}" for i in range(per_round - again))]
        yield RoundRecord(
            number,
            tuple(
                ClientRecord(
                    id_, Fate.DROPPED if i % 3 == 0 else Fate.KEPT, float(i), reason="too long" * (i % 3 == 0)
                )
                for i, id_ in enumerate(ids)
            ),
        )


def test_of_very_many_clients_those_that_matter_are_read_and_all_are_counted(write, make_spec, tmp_path):
    path = write(tmp_path / "flood.sqlite", [(make_spec(), flood(20, 300, again=3), "running")])
    [run] = read_results(path, 50)
    assert len(run.clients) == 50
    assert run.totals.clients == 20 * 297 + 3
    assert 0 in run.clients  # dropped in every round
    assert int(run.evenly_chosen.sum()) == 25
    assert run.fates == {Fate.KEPT: 20 * 200, Fate.DROPPED: 20 * 100}
    data = build_payload([run])
    assert "shows 50 of 5,943 clients" in data["left_out"]
    assert data["runs"][0]["num_clients"] == 5943
    assert sum(data["runs"][0]["fates_by_round"]["dropped"]) == 2000


def test_a_flood_of_made_up_ids_has_a_page_and_figures(write, make_spec, tmp_path, open_page):
    path = write(tmp_path / "flood.sqlite", [(make_spec(), flood(40, 100, again=3), "running")])
    write_html(path, tmp_path / "flood.html")
    assert len(write_figures(path, tmp_path / "figures", "svg")) == 5
    page, problems = open_page(tmp_path / "flood.html", 390)
    expect(page.locator("#left-out")).to_contain_text("1,000 of 3,883 clients")
    expect(page.locator("#clients-lede")).to_contain_text("2,883 more clients are not listed")
    expect(page.locator("#clients tbody th").first).to_have_text("0")
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    assert not problems


def test_half_of_the_chosen_clients_are_spread_evenly():
    rows, evenly = choose_rows((np.arange(100) >= 90).astype(int), 20)
    assert len(rows) == 20
    assert evenly.sum() == 10
    assert set(np.flatnonzero(evenly)) <= set(rows.tolist())
    assert set(range(90, 99)) <= set(rows.tolist())


def test_later_columns_can_be_encoded_alone(results):
    run = read_results(results)[2]
    later = encode_clients(run, 20, 10_000, since=4, until=5)
    assert later["since"] == 4
    assert len(later["fields"]["malicious"]["data"]) == len(
        encode_clients(run, 20, 10_000, 5)["fields"]["malicious"]["data"]
    )


def big(clients, rounds):
    rng = np.random.default_rng(0)
    bad = np.arange(clients) < clients * 0.4
    for number in range(1, rounds + 1):
        scores = np.where(bad, rng.lognormal(3, 0.8, clients), rng.lognormal(0, 0.5, clients))
        limit = np.sort(scores)[int(0.6 * clients)]
        records = (
            ClientRecord(i, Fate.KEPT, s, weight=50.0, malicious=b)
            if s <= limit
            else ClientRecord(i, Fate.DROPPED, s, reason=f"score {s:.4g}", weight=50.0, malicious=b)
            for i, (s, b) in enumerate(zip(scores.tolist(), bad.tolist(), strict=True))
        )
        yield RoundRecord(number, tuple(records), accuracy=0.9, loss=0.3)


@pytest.mark.slow
def test_a_thousand_clients_in_a_thousand_rounds_open_in_three_seconds(make_spec, tmp_path, open_page):
    path = tmp_path / "big.sqlite"
    with Store(path) as store:
        [id_] = store.add([RunSpec(make_spec(clients=1000, rounds=1000, attack={"name": "lie"}, fraction=0.4))], {})
        store.claim([id_])
        store.write_rounds(id_, list(big(1000, 1000)), last=True)
    write_html(path, tmp_path / "big.html")
    began = time.monotonic()
    page, problems = open_page(tmp_path / "big.html", 1280)
    page.locator("#heat canvas.cells").wait_for()
    page.locator("#clients tbody a").first.wait_for()
    took = time.monotonic() - began
    assert not problems
    expect(page.locator("#left-out")).to_be_hidden()
    assert took < 3, f"{took:.1f} s"
    began = time.monotonic()
    page.locator("#clients tbody a").first.click()
    page.locator("#client-scores svg circle").first.wait_for()
    assert time.monotonic() - began < 3


@pytest.mark.slow
def test_a_hundred_thousand_ids_take_little_memory(make_spec, tmp_path):
    import resource

    path = tmp_path / "ids.sqlite"
    with Store(path) as store:
        [id_] = store.add([RunSpec(make_spec())], {})
        store.claim([id_])
        store.write_rounds(id_, list(flood(100, 1000)), last=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [run] = read_results(path, MOST_ROWS)
    write_html(path, tmp_path / "ids.html")
    assert run.totals.clients == 100_000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 300e6
    assert (tmp_path / "ids.html").stat().st_size < 5e6
