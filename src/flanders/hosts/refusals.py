"""Rounds in which the server refuses every reply for the same reason, for example for a wrong shape.

The cause is then probably the setting of the server or the code of all clients, and not a malicious client.
"""

from __future__ import annotations

from collections.abc import Iterable

from flanders.checks import InputError
from flanders.record import ClientRecord, Fate


def check_refusals(number: int, failed: Iterable[ClientRecord]) -> None:
    """Complain if two or more replies are refused, all for the same reason.

    Call this for a round in which no reply can be used. `failed` are the records of its clients.
    """
    reasons = [record.reason for record in failed if record.fate is Fate.REFUSED]
    if len(reasons) > 1 and len(set(reasons)) == 1:
        raise InputError(
            f"All {len(reasons)} replies of round {number} are refused for the same reason: {reasons[0]}. "
            "No round has been aggregated yet. Check what the clients send and what the server asks for."
        )
