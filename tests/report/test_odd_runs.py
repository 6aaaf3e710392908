"""Whatever a run looks like, it has a page and figures, with a message where there is nothing to show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from playwright.sync_api import expect

from flanders.record import Fate
from flanders.report import write_figures, write_html
from round_records import with_clients


def change(rounds, **fields):
    """The same rounds with other fields."""
    return [dataclasses.replace(record, **fields) for record in rounds]


def change_clients(rounds, **fields):
    """The same rounds with other fields of their clients: functions from their number to a list."""
    return [with_clients(r, **{name: make(len(r.clients)) for name, make in fields.items()}) for r in rounds]


def nothing(m):
    return np.full(m, np.nan)


@pytest.fixture(params=[
    "no runs", "no rounds", "keep-all", "no scores", "nan scores", "some infinite", "negative", "equal", "huge",
    "no attack", "one client", "one round", "few selected", "nobody kept", "all fates", "nan accuracy", "no time",
])  # fmt: skip
def odd(request, write, make_spec, make_rounds, tmp_path, rng):
    def rounds(**kind):
        return make_rounds(rng, **{"clients": 5, "rounds": 3, **kind})

    runs = {
        "no runs": None,
        "no rounds": [],
        "keep-all": rounds(filtered=False),
        "no scores": change_clients(rounds(), score=nothing, probability=nothing),
        "nan scores": change_clients(rounds(), score=nothing),
        "some infinite": change_clients(
            rounds(), score=lambda m: np.resize([np.inf, 1.0, np.nan, -np.inf, 3.0], m)
        ),
        "negative": change_clients(rounds(), score=lambda m: rng.normal(0, 5, m)),
        "equal": change_clients(rounds(), score=lambda m: np.full(m, 2.0)),
        "huge": change_clients(rounds(), score=lambda m: 10.0 ** rng.uniform(-300, 300, m)),
        "no attack": rounds(malicious=0),
        "one client": rounds(clients=1),
        "one round": rounds(rounds=1),
        "few selected": rounds(clients=30, chosen=0.1),
        "nobody kept": change_clients(rounds(), fate=lambda m: [Fate.DROPPED] * m),
        "all fates": change_clients(
            rounds(), fate=lambda m: list(Fate)[:m], reason=lambda m: ["<b>why</b> " * 20] * m
        ),
        "nan accuracy": change(rounds(), accuracy=float("nan"), loss=float("inf")),
        "no time": change(rounds(), seconds={}),
    }[request.param]
    lie = {"name": "lie"}
    spec = make_spec(attack=None if request.param == "no attack" else lie, filter={"name": "flanders"})
    return write(tmp_path / "odd.sqlite", [] if runs is None else [(spec, runs, "running")])


def test_odd_runs_have_figures(odd, tmp_path):
    assert len(write_figures(odd, tmp_path, "svg")) == 5


def test_odd_runs_have_a_page_without_errors(odd, tmp_path, open_page):
    write_html(odd, tmp_path / "odd.html")
    page, problems = open_page(tmp_path / "odd.html", 390)
    expect(page.locator("#nothing:visible, #view-run:visible")).to_have_count(1)  # it is drawn
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    expect(page.get_by_text("NaN")).to_have_count(0)
    expect(page.get_by_text("undefined")).to_have_count(0)
    assert not problems
