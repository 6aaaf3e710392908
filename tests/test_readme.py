from __future__ import annotations

import re
from pathlib import Path

import pytest

from flanders import AGGREGATORS, ATTACKS, FILTERS, PREAGGREGATORS

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize(
    ("row", "registry"),
    [
        ("filters", FILTERS),
        ("aggregation rules", AGGREGATORS),
        ("in front of a rule", PREAGGREGATORS),
        ("attacks", ATTACKS),
    ],
)
def test_the_readme_names_all_that_can_be_chosen(row, registry):
    (cells,) = re.findall(rf"^\| {row} \| (.*) \|$", README, re.MULTILINE)
    assert re.findall(r"`([^`]+)`", cells) == list(registry)
