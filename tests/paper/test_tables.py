from __future__ import annotations

import pytest

from flanders.checks import InputError
from flanders.paper.tables import TABLES, UNDEFINED, published, read_tables, rerun, table_names

CELLS = {(cell.table, cell.key): cell for table in read_tables(TABLES) for cell in table.cells}


def test_every_published_value_has_its_cell_except_the_predictability_test():
    missing = [found for found in published() if found not in CELLS and found[0] != "tab:t-test"]
    assert missing == []


def test_every_value_of_the_authors_rerun_is_compared_with_something():
    compared = {key for (_, key) in CELLS}
    assert [key for key in rerun() if key not in compared] == []


def test_every_detection_table_carries_both_controls():
    for table in read_tables(["tab:pr-20", "tab:pr-60", "tab:pr-80", "tab:increment-fld", "tab:increment-fld-80"]):
        filters = {cell.filter for cell in table.cells}
        assert {"flanders", "fldetector", "distance-to-global", "persistence"} <= filters


def test_the_published_values_are_shares_or_undefined():
    for (table, _), value in published().items():
        if table != "tab:t-test" and value != UNDEFINED:
            assert 0 <= float(value) <= 1


def test_what_the_paper_cannot_apply_is_undefined_in_every_table():
    bulyan = [c for c in CELLS.values() if (c.aggregator, c.filter, c.malicious_ratio) == ("bulyan", "none", "0.6")]
    assert {c.table for c in bulyan} == {"tab:increment-60", "fig:tradeoff"}
    assert all(c.is_undefined for c in bulyan)
    assert not any(c.is_undefined for c in CELLS.values() if c.aggregator != "bulyan")


def test_tables_are_asked_for_by_label_with_or_without_its_kind_and_each_counts_once():
    assert table_names("pr-20,tab:pr-20,fig:tradeoff") == ["tab:pr-20", "fig:tradeoff"]
    assert table_names("all") == list(TABLES)


def test_an_unknown_table_is_an_error_with_a_guess():
    with pytest.raises(InputError, match="Did you mean 'tab:pr-20'"):
        table_names("tab:pr-2")
