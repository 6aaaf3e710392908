"""The table of everything."""

from __future__ import annotations

from hardening.fuzz import Tally
from hardening.hard import COLUMNS, fuzz_row, machine, soak_rows, table
from hardening.soak import Soaked
from hardening.verdicts import Case, Verdict


def test_every_row_has_a_cell_for_every_column():
    tally = Tally("states")
    tally.add(Case("states", 0, 1, Verdict.FINE), 0.1)
    tally.add(Case("states", 1, 1, Verdict.HANG, "slow"), 30.0)
    rows = [fuzz_row(tally), *soak_rows(Soaked(10, 20, 2, 0, 100, 3, True, 0.5, 0.25, 80.0, True, 1.0))]
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert rows[0] == ("hostile states", "2", "1", "0", "0", "0", "1")
    assert rows[1][1:4] == ("2", "2", "0")
    assert rows[2][2:4] == ("97 the same", "3 differ")
    assert "+0.25 KiB an id" in rows[3]
    assert "+0.50 KiB a round" in rows[4]
    assert table(rows).count("\n") == len(rows) + 1


def test_the_machine_is_named():
    assert "cores" in machine()
