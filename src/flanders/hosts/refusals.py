"""The function `check_refusals`: finds rounds in which all replies are refused for the same reason.

An example is a wrong shape. The cause is then probably a mistake in the settings of the server or in the code of
all clients, and not a malicious client. So the user gets an error.
"""

from __future__ import annotations

from collections.abc import Iterable

from flanders.checks import InputError
from flanders.record import ClientRecord, Fate


def check_refusals(number: int, failed: Iterable[ClientRecord]) -> None:
    """Raise an `InputError` if two or more replies are refused, all for the same reason.

    Call this if no reply of a round can be used and no round has been aggregated yet. `number` is the number of the
    round, and `failed` are the records of its clients.
    """
    reasons = [record.reason for record in failed if record.fate is Fate.REFUSED]
    if len(reasons) > 1 and len(set(reasons)) == 1:
        raise InputError(
            f"All {len(reasons)} replies of round {number} are refused for the same reason: {reasons[0]}. "
            "No round has been aggregated yet. Check what the clients send and what the server asks for."
        )
