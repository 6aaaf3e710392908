from __future__ import annotations

import math
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from flanders.checks import InputError
from flanders.leaderboard.board_rows import MeasuredRun
from flanders.leaderboard.cells import BoardCell
from flanders.leaderboard.entrants import title_of
from flanders.leaderboard.protocol import CORE, Case, read_protocol
from flanders.leaderboard.standings import Estimate, standings_of
from flanders.leaderboard.tabling import cases_with, published_rows, rendered, rows_with

LIE, FLIP = Case("lie", 0.2, 1), Case("sign-flip", 0.4, 3, rotating=True)
CASES = [Case(), LIE, FLIP]


def rows_of(defence, accuracies, *, told=False, success=None, seeds=(40, 41), time=2.0, dropped=0.0):
    """Return one row for each case and seed. Accuracies are by case; each seed is 0.01 better than the last."""
    return [
        MeasuredRun(
            BoardCell("digits", defence, told, case, seed),
            accuracy + 0.01 * place,
            success,
            None,
            dropped,
            time,
            "0" * 16,
            "flanders-fl 1",
            "1",
        )
        for place, seed in enumerate(seeds)
        for case, accuracy in zip(CASES, accuracies, strict=True)
    ]


ROWS = [
    *rows_of("fedavg", [0.9, 0.5, 0.1]),
    *rows_of("oracle", [0.9, 0.85, 0.8]),
    *rows_of("good", [0.88, 0.84, 0.7], dropped=0.25),
    *rows_of("poor", [0.9, 0.5, 0.2], told=True, time=7.0),
]


def lines(rows=ROWS):
    return {line.title: line for line in standings_of(rows, "digits", CASES).lines}


def test_each_number_is_what_its_definition_says():
    good, poor = lines()["good"], lines()["poor, told b"]
    assert good.worst.value == pytest.approx(0.705)
    assert good.worst_case == FLIP
    assert good.mean.value == pytest.approx(0.775)
    assert (good.rank.value, poor.rank.value) == (1.0, 2.0)
    assert (good.holds.value, poor.holds.value) == (0.5, 0.0)
    assert good.cost.value == pytest.approx(0.02)
    assert poor.cost.value == pytest.approx(0.0)
    assert (good.dropped.value, poor.milliseconds.value) == (0.25, 7.0)


def test_the_interval_is_students_over_the_seeds():
    # Two seeds that differ by 0.01: the standard error is 0.005 and the quantile with one degree of freedom 12.706.
    assert lines()["good"].mean.half == pytest.approx(0.005 * 12.706, rel=1e-3)
    assert math.isnan(Estimate.of([0.5]).half)


def test_references_have_no_rank_and_come_first():
    found = standings_of(ROWS, "digits", CASES).lines
    assert [line.title for line in found] == ["fedavg", "oracle", "good", "poor, told b"]
    assert found[0].rank is None
    assert found[1].rank is None


def test_equal_scores_share_their_place():
    found = lines([*ROWS, *rows_of("twin", [0.88, 0.84, 0.7])])
    assert found["good"].rank.value == found["twin"].rank.value == 1.5
    assert found["poor, told b"].rank.value == 3.0


def test_the_score_under_a_backdoor_is_what_the_attacker_does_not_get_if_that_is_lower():
    found = lines([*ROWS, *rows_of("fooled", [0.9, 0.8, 0.8], success=0.95)])
    assert found["fooled"].worst.value == pytest.approx(0.05)
    assert found["fooled"].accuracy.value == pytest.approx(0.805)
    assert found["fooled"].cost.value == pytest.approx(0.0)


def test_a_defence_with_missing_runs_has_no_line_and_the_table_says_so():
    table = standings_of([*ROWS, *rows_of("half", [0.9, 0.9, 0.9])[:-2]], "digits", CASES)
    assert "half" not in {line.title for line in table.lines}
    assert table.incomplete == {"half": 2}
    assert "half (2)" in rendered(table, "A title", "markdown")


def test_without_plain_averaging_there_is_nothing_to_compare_with():
    with pytest.raises(InputError, match="no rows of fedavg on mnist"):
        standings_of(ROWS, "mnist", CASES)


def test_the_same_run_in_two_files_is_told():
    with pytest.raises(InputError, match="Two files have rows of 'good' on digits"):
        standings_of([*ROWS, *rows_of("good", [0.9, 0.9, 0.9])], "digits", CASES)


def test_conditions_leave_some_cases_and_the_runs_without_an_attack():
    table = standings_of(rows_with(ROWS, ["attack=lie", "seed=41"]), "digits", CASES)
    assert (table.cases, table.seeds) == ((LIE,), (41,))
    with pytest.raises(InputError, match=r"there is no attack 'lei'\. Did you mean 'lie'"):
        rows_with(ROWS, ["attack=lei"])
    with pytest.raises(InputError, match="with a key of case, attack"):
        rows_with(ROWS, ["defence=good"])


def test_tables_are_about_a_minority_a_majority_or_both():
    protocol = read_protocol()
    shares = {
        name: {c.fraction for c in cases_with(protocol, CORE, name)} for name in ("minority", "majority", "all")
    }
    assert shares == {
        "minority": {0.0, 0.1, 0.2, 0.4},
        "majority": {0.6, 0.8},
        "all": {0.0, 0.1, 0.2, 0.4, 0.6, 0.8},
    }


@pytest.mark.parametrize("format_", ["text", "markdown", "latex", "csv"])
def test_every_format_has_a_line_for_each_defence(format_):
    text = rendered(standings_of(ROWS, "digits", CASES), "A title", format_)
    assert all(name in text for name in ("fedavg", "oracle", "good", "poor"))
    assert ("0.705" if format_ == "csv" else "0.70 ± 0.06") in text.replace("$\\pm$", "±")


def test_the_rows_that_come_with_the_package_make_a_table():
    found = standings_of(published_rows(), "digits", cases_with(read_protocol(), CORE, "all"))
    assert {"fedavg", "oracle", "guard"} <= {line.name for line in found.lines}
    assert found.seeds == read_protocol().seeds
    assert found.incomplete == {}


def test_the_page_has_the_mean_score_of_each_attack():
    page = (Path(__file__).parents[2] / "docs" / "leaderboard.md").read_text()
    found = defaultdict(list)
    for row in published_rows():
        cell = row.cell
        if 0 < cell.case.fraction < 0.5:
            found[cell.dataset, title_of(cell.defence, cell.told), cell.case.attack].append(row.score)
    section = page.partition("## What it shows")[2].partition("##")[0]
    tables = re.findall(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    for dataset, table in zip(("digits", "fashion-mnist"), tables, strict=True):
        head, *lines = re.findall(r"^\| (.*) \|$", table, re.MULTILINE)
        attacks = head.split(" | ")[1:]
        assert attacks == list(read_protocol().core)
        for line in lines:
            name, *values = line.split(" | ")
            assert [f"{fmean(found[dataset, name, attack]):.2f}" for attack in attacks] == values, name
