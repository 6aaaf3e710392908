"""Functions that turn the record of a round into named numbers and lines of text, for tools such as TensorBoard.

The record of a round says what happened to each client, and to the round as a whole.
"""

from __future__ import annotations

import math

from flanders.record import RoundRecord

MOST_NAMED = 50
"""The lines about one round name at most this many clients. A round may have thousands of clients."""
LONGEST = 300
"""`plain` cuts a text after this many characters. Clients choose their names, and could choose long names."""


def measures_of(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of a round: what was measured, how many clients had each fate, and the seconds of each
    phase. The keys are names such as `accuracy` and `clients/kept`.

    The fate of a client says what happened to it, e.g. kept or dropped. Numbers that were not measured are left
    out. If the malicious clients are known, there are three more numbers. `detection/caught` counts the malicious
    clients that were not kept. `detection/missed` counts the malicious clients that were kept. `detection/wronged`
    counts the honest clients that were not kept.

    Examples
    --------
    >>> from flanders.record import ClientRecord, Fate
    >>> record = RoundRecord(1, (ClientRecord("a", Fate.KEPT, 0.5), ClientRecord("b", Fate.DROPPED, 9.0)))
    >>> {name: value for name, value in measures_of(record).items() if value}
    {'threshold': 0.5, 'clients/kept': 1.0, 'clients/dropped': 1.0}
    """
    numbers = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "attack_success": record.attack_success,
        "source_accuracy": record.source_accuracy,
        "threshold": record.threshold,
    }
    numbers |= {f"clients/{fate}": float(count) for fate, count in record.counts.items()}
    if record.clients and all(client.malicious is not None for client in record.clients):
        kept, malicious = record.kept, record.malicious
        numbers["detection/caught"] = float((malicious & ~kept).sum())
        numbers["detection/missed"] = float((malicious & kept).sum())
        numbers["detection/wronged"] = float((~malicious & ~kept).sum())
    numbers |= {f"seconds/{phase}": float(spent) for phase, spent in record.seconds.items()}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def unused_lines(record: RoundRecord) -> list[str]:
    """Return a line for each client that was not kept: its name, what happened to it, and why.

    If there are more than `MOST_NAMED` such clients, the last line says how many others there are.
    """
    unused = [client for client in record.clients if not client.kept]
    lines = [
        f"{plain(client.client)}: {client.fate}" + (f" ({plain(client.reason)})" if client.reason else "")
        for client in unused[:MOST_NAMED]
    ]
    return lines if len(unused) <= MOST_NAMED else [*lines, f"and {len(unused) - MOST_NAMED} more"]


def plain(text: object) -> str:
    """Return a text that is safe to show: one line of printable characters without markup.

    If the text has more than `LONGEST` characters, it is cut, and three dots are added.

    Examples
    --------
    >>> plain("<!channel> [click](http://evil)" + chr(27) + chr(10))
    '(!channel) (click)(http://evil)  '
    """
    short = str(text)[: LONGEST + 1]
    shown = "".join(c if c.isprintable() else " " for c in short).translate(str.maketrans("<>[]`|", "()()' "))
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
