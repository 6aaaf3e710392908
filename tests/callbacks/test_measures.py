from __future__ import annotations

import math

from flanders.callbacks.measures import LONGEST, MOST_NAMED, measures_of, plain, unused_lines
from flanders.record import Fate, RoundRecord
from round_records import round_record


def test_what_was_not_measured_is_left_out() -> None:
    assert measures_of(RoundRecord(1)) == {f"clients/{fate}": 0.0 for fate in Fate}
    measured = measures_of(RoundRecord(1, accuracy=0.5, loss=math.inf, seconds={"filter": 0.25}))
    assert (measured["accuracy"], measured["seconds/filter"]) == (0.5, 0.25)
    assert "loss" not in measured  # no tool can draw an infinite value


def test_detection_is_counted_only_if_the_truth_is_known() -> None:
    known = round_record(1, [0, 1, 2, 3], kept=[1, 1, 0, 0], malicious=[False, True, True, False])
    found = measures_of(known)
    assert [found[f"detection/{name}"] for name in ("caught", "missed", "wronged")] == [1, 1, 1]
    assert "detection/caught" not in measures_of(round_record(1, [0, 1], kept=[1, 0]))


def test_lines_about_clients_are_bounded_and_hold_no_markup() -> None:
    names = [f"<script>{n}\x1b[2J" + "x" * 1000 for n in range(200)]
    lines = unused_lines(round_record(1, names, kept=[0] * 200, reason=["a\nb"] * 200))
    assert len(lines) == MOST_NAMED + 1
    assert lines[-1] == f"and {200 - MOST_NAMED} more"
    assert lines[0].startswith("(script)0 (2Jxxx")
    assert lines[0].endswith("x...: dropped (a b)")
    assert max(map(len, lines)) < 2 * LONGEST


def test_a_plain_text_is_as_it_was_if_it_is_harmless() -> None:
    assert (
        plain("client 7: 3.1 times its usual length (30.5 sd)") == "client 7: 3.1 times its usual length (30.5 sd)"
    )
