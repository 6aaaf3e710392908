"""Faults in the middle of a federation cost at most their own round."""

from __future__ import annotations

import pytest

from hardening.faults import CLIENT_FAULTS, DISK_FAULTS, LATER, STRATEGY_FAULTS, inject


@pytest.mark.parametrize("name", [*STRATEGY_FAULTS, *DISK_FAULTS, *CLIENT_FAULTS])
def test_a_fault_in_a_later_round_is_survived(name, tmp_path):
    found = inject(name, LATER, tmp_path)
    assert found.survived, found.words


def test_a_strategy_that_never_worked_ends_the_run(tmp_path):
    found = inject("the strategy raises an error", 1, tmp_path)
    assert not found.survived
    assert "RuntimeError: broken" in found.words
