"""Refusals of a whole round, which are then not the clients' fault."""

from __future__ import annotations

from collections.abc import Iterable

from flanders.checks import InputError
from flanders.record import ClientRecord, Fate


def check_refusals(number: int, failed: Iterable[ClientRecord]) -> None:
    """Complain if all replies of a round are refused for the same reason."""
    reasons = [record.reason for record in failed if record.fate is Fate.REFUSED]
    if len(reasons) > 1 and len(set(reasons)) == 1:
        raise InputError(
            f"All {len(reasons)} replies of round {number} are refused for the same reason: {reasons[0]}. "
            "Nothing has been aggregated so far. Check what the clients send and what the server asks for."
        )
