"""Whatever a run looks like, it has a page and figures, with a message where there is nothing to show."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.report import write_figures, write_html


def change(rounds, **fields):
    for record in rounds:
        for name, value in fields.items():
            setattr(record, name, value(record) if callable(value) else value)
        yield record


@pytest.fixture(params=[
    "no runs", "no rounds", "keep-all", "no scores", "nan scores", "some infinite", "negative", "equal", "huge",
    "no attack", "one client", "one round", "few selected", "nobody kept", "nan accuracy", "no time",
])  # fmt: skip
def odd(request, write, make_spec, make_rounds, tmp_path, rng):
    def rounds(**kind):
        return make_rounds(rng, **{"clients": 5, "rounds": 3, **kind})

    m = lambda record: len(record.clients)  # noqa: E731
    runs = {
        "no runs": None,
        "no rounds": [],
        "keep-all": rounds(filtered=False),
        "no scores": change(rounds(), scores=None, probabilities=None),
        "nan scores": change(rounds(), scores=lambda r: np.full(m(r), np.nan)),
        "some infinite": change(rounds(), scores=lambda r: np.resize([np.inf, 1.0, np.nan, -np.inf, 3.0], m(r))),
        "negative": change(rounds(), scores=lambda r: rng.normal(0, 5, m(r))),
        "equal": change(rounds(), scores=lambda r: np.full(m(r), 2.0)),
        "huge": change(rounds(), scores=lambda r: 10.0 ** rng.uniform(-300, 300, m(r))),
        "no attack": rounds(malicious=0),
        "one client": rounds(clients=1),
        "one round": rounds(rounds=1),
        "few selected": rounds(clients=30, chosen=0.1),
        "nobody kept": change(rounds(), kept=lambda r: np.zeros(m(r), dtype=bool)),
        "nan accuracy": change(rounds(), accuracy=float("nan"), loss=float("inf")),
        "no time": change(rounds(), seconds={}),
    }[request.param]
    lie = {"name": "lie", "fraction": 0.8}
    spec = make_spec(attack=None if request.param == "no attack" else lie, filter={"name": "flanders"})
    return write(tmp_path / "odd.sqlite", [] if runs is None else [(spec, runs, "running")])


def test_odd_runs_have_figures(odd, tmp_path):
    assert len(write_figures(odd, tmp_path, "svg")) == 5


def test_odd_runs_have_a_page_without_errors(odd, tmp_path, open_page):
    write_html(odd, tmp_path / "odd.html")
    page, problems = open_page(tmp_path / "odd.html", 390)
    assert not problems
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.get_by_text("NaN").count()
    assert not page.get_by_text("undefined").count()
