from __future__ import annotations

from dataclasses import dataclass

from flanders.filters import KeepAll
from flanders.flower.round_report import filter_line


@dataclass(frozen=True)
class Undocumented(KeepAll):
    strength: int = 3


def test_the_line_of_a_filter_without_a_docstring_has_no_description() -> None:
    assert filter_line(Undocumented()) == "Undocumented()"
    assert filter_line(Undocumented(strength=4)) == "Undocumented(strength=4)"
