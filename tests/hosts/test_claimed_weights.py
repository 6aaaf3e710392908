"""The weights that clients claim, and the reasons for which they are refused."""

from __future__ import annotations

import pytest

from flanders.hosts.claimed_weights import LONGEST_REASON, check_weight, short
from flanders.hosts.model_arrays import BadReply


def test_a_reason_that_quotes_a_client_is_safe_to_print():
    assert short("array 'e\x1b[2J\nve' is   missing") == "array 'e\N{REPLACEMENT CHARACTER}[2J ve' is missing"
    assert len(short("x" * 10**6)) == LONGEST_REASON


@pytest.mark.parametrize("weight", ["\x1b[2J", b"\x1b", "x" * 10**6])
def test_a_claim_that_is_no_number_is_quoted_safely(weight):
    with pytest.raises(BadReply, match="instead of a positive number") as caught:
        check_weight("metric 'num-examples'", weight)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < LONGEST_REASON
