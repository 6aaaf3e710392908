"""The function `check_refusals`: raises an error if all replies of a round are refused for the same reason.

A reply is refused if it cannot be used, e.g. because an array has a wrong shape. If all replies are refused, the
cause is probably not a malicious client. It is probably a mistake in the settings of the server, or in the code
that all clients run.
"""

from __future__ import annotations

from collections.abc import Iterable

from flanders.checks import InputError
from flanders.record import ClientRecord, Fate


def check_refusals(number: int, failed: Iterable[ClientRecord]) -> None:
    """Raise an `InputError` if there are two or more refused replies, and all have the same reason.

    Call this if no reply of a round can be used and no round has been aggregated yet. `number` is the number of the
    round, and `failed` are the records of its clients.
    """
    reasons = [record.reason for record in failed if record.fate is Fate.REFUSED]
    if len(reasons) > 1 and len(set(reasons)) == 1:
        raise InputError(
            f"All {len(reasons)} replies of round {number} are refused for the same reason: {reasons[0]}. "
            "No round has been aggregated yet. Check what the clients send and what the server asks for."
        )
