from __future__ import annotations

import csv
import io

import pytest

from flanders.paper.comparison import Compared, compare_cells, verdicts_on
from flanders.paper.rendering import COLUMNS, as_csv, render, verdict_text
from flanders.paper.tables import Cell, TableSpec
from flanders.paper.variants import read_variant

REFERENCE = read_variant("reference")


def cell(
    metric="accuracy", attack="gauss", ratio="0.2", aggregator="fedavg", filter_="flanders", table="tab:pr-20"
):
    return Cell(table, "mnist", attack, ratio, aggregator, filter_, metric)


def compared(ours, paper, rerun=None, **names):
    return Compared(cell(**names), paper, rerun, ours, ours, ours, 1)


def test_ours_is_the_mean_over_the_seeds_that_are_done_with_the_lowest_and_the_highest():
    asked = cell(table="tab:increment-20", attack="lie")
    measures = {
        REFERENCE.run(asked, seed).id: {"accuracy": value, "precision": None}
        for seed, value in ((0, 0.80), (2, 0.90))
    }
    (found,) = compare_cells(REFERENCE, [asked], measures, [0, 1, 2])
    assert (found.paper, found.rerun, found.seeds) == (0.83, 0.87, 2)
    assert (found.ours, found.low, found.high) == (pytest.approx(0.85), 0.80, 0.90)
    assert found.difference == pytest.approx(0.02)


def test_a_cell_without_runs_or_without_a_value_is_missing():
    asked = cell(metric="precision")
    (none,) = compare_cells(REFERENCE, [asked], {}, [0])
    (undefined,) = compare_cells(REFERENCE, [asked], {REFERENCE.run(asked, 0).id: {"precision": None}}, [0])
    for found in (none, undefined):
        assert (found.ours, found.low, found.seeds, found.difference) == (None, None, 0, None)


@pytest.mark.parametrize(
    ("found", "agrees"),
    [
        (compared(0.75, 0.85), True),
        (compared(0.74, 0.85), False),
        (compared(0.74, 0.85, 0.80), True),  # the re-run is nearer
        (compared(0.95, 1.0, metric="precision"), True),
        (compared(0.94, 1.0, metric="recall"), False),
        (compared(0.28, 0.13, metric="recall", attack="opt"), True),
        (compared(0.28, 0.13, metric="recall", attack="opt", ratio="0.6"), False),
        (compared(0.66, 0.75, metric="accuracy@fraction=0.2"), True),
    ],
)
def test_agreement_is_by_the_nearer_of_paper_and_rerun_within_the_tolerance_of_the_measure(found, agrees):
    assert found.agrees is agrees


def test_the_verdict_counts_published_cells_only_and_lists_the_rest_farthest_first():
    cells = [
        compared(0.9, 0.9),
        compared(0.5, 0.9),
        compared(0.1, 0.9),
        compared(None, 0.9),
        compared(0.3, None),
        compared(0.9, 1.0, metric="recall"),
    ]
    detection, accuracy = verdicts_on(cells)
    assert (accuracy.agreeing, accuracy.compared, accuracy.missing) == (1, 3, 1)
    assert [c.ours for c in accuracy.others] == [0.1, 0.5]
    assert (detection.agreeing, detection.compared) == (0, 1)
    text = verdict_text([detection, accuracy], "reference variant")
    assert "accuracy: 1 of 3 cells agree (33.3%); 1 published cells are missing here." in text
    assert text.index("0.80") < text.index("0.40")


def a_table(cells):
    return TableSpec("tab:pr-20", "A title, 20% malicious", "attack", ("reference",), tuple(c.cell for c in cells))


def test_a_table_shows_ours_the_range_the_paper_and_the_difference_and_what_is_missing():
    cells = [
        Compared(cell(attack="gauss"), 0.86, 0.88, 0.9, 0.8, 1.0, 3),
        Compared(cell(attack="lie"), 0.83, None, None, None, None, 0),
        Compared(cell(attack="gauss", filter_="none"), None, None, 0.2, 0.2, 0.2, 1),
        Compared(cell(attack="lie", filter_="none"), None, None, None, None, None, 0),
    ]
    text = render(a_table(cells), cells, "markdown", "reference variant")
    assert "; reference variant, 1 to 3 seeds)" in text
    assert "; reference variant, 1 seed)" in render(a_table(cells), cells[2:], "markdown", "reference variant")
    assert "| filter | gauss | lie |" in text
    assert "| flanders | 0.90 [0.80, 1.00]; 0.86 (+0.04) | missing; 0.83 |" in text
    assert "| none | 0.20 | missing |" in text
    latex = render(a_table(cells), cells, "latex", "reference variant")
    assert r"flanders & 0.90 [0.80, 1.00]; 0.86 (+0.04) & missing; 0.83 \\" in latex
    assert r"20\% malicious" in latex


def test_what_the_paper_cannot_apply_is_not_missing():
    undefined = Compared(cell(ratio="0.6", aggregator="bulyan", filter_="none"), None, None, None, None, None, 0)
    assert "| n/a |" in render(a_table([undefined]), [undefined], "markdown", "reference variant")
    (row,) = csv.DictReader(io.StringIO(as_csv([undefined])))
    assert (row["value"], row["ours"], row["seeds"]) == ("NA", "", "0")


def test_the_csv_has_the_published_columns_and_ours():
    text = as_csv([Compared(cell(metric="recall"), 1.0, None, 0.98765, 0.5, 1.0, 3)])
    assert text.splitlines()[0].split(",") == list(COLUMNS)
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["table"], row["value"], row["ours"], row["low"], row["high"], row["seeds"]) == (
        "tab:pr-20", "1.0", "0.9877", "0.5000", "1.0000", "3",
    )  # fmt: skip
