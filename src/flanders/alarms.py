"""Alarms: short messages about what a person who runs a federation should look at after a round.

`Lookout` finds the alarms of each round. The live page, the callbacks and the report all use it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from flanders.plain_text import printable
from flanders.record import Fate, RoundRecord
from flanders.round import ClientId

IN_A_ROW = 3
"""A client that is dropped or refused this many times in a row causes an alarm. A single time may be bad luck."""
MOST_OF_THE_WEIGHT = 0.5
"""A kept reply causes an alarm if it has more than this share of the total weight of all kept replies. Such a reply
outweighs all the others together."""
MOST_REMEMBERED = 100_000
"""The most clients whose streak (see `Streaks`) is remembered. There is a limit, since attackers may invent new
client ids in every round. If there are more clients, those that were dropped longest ago are forgotten."""
MOST_NAMED = 5
"""The most clients that the text of an alarm names. `Alarm.clients` has all of them."""
LONGEST_NAME = 40
"""The most characters of a client's id in a text. Clients choose their ids, and may choose very long ones."""

Streaks = Mapping[ClientId, int]
"""For each client that was dropped or refused in its last round: how many times in a row this has happened."""


class AlarmKind(StrEnum):
    """What an alarm is about."""

    KEPT_NOBODY = "kept-nobody"
    """No client was kept, so the global model did not change."""
    MODEL_STAYED = "model-stayed"
    """Clients were kept, but the global model did not change, since their models could not be aggregated."""
    HEAVY_REPLY = "heavy-reply"
    """One reply has more than half of the weight of all kept replies."""
    LIMITS_WIDENED = "limits-widened"
    """The filter kept nobody in the last rounds. So that it does not stop the training, it now accepts clients that
    it would usually drop. Attackers pass more easily, too."""
    DROPPED_IN_A_ROW = "dropped-in-a-row"
    """A client was dropped or refused three times in a row."""


@dataclass(frozen=True)
class Alarm:
    """One thing that a person should look at."""

    kind: AlarmKind
    round: int
    """The number of the round."""
    text: str
    """What happened, in words. Names of clients in it are short and hold no control characters."""
    clients: tuple[ClientId, ...] = ()
    """The ids of the clients that the alarm is about, if it is about clients."""


class Lookout:
    """Finds the alarms of one round after the other. It remembers how often each client was dropped in a row.

    Examples
    --------
    >>> from flanders.record import ClientRecord
    >>> lookout = Lookout()
    >>> clients = (ClientRecord("ann", Fate.KEPT), ClientRecord("eve", Fate.DROPPED))
    >>> for number in (1, 2, 3):
    ...     alarms = lookout.look(RoundRecord(number, clients))
    >>> print(alarms[0].text)
    client eve was dropped 3 times in a row
    """

    def __init__(self) -> None:
        self._streaks: Streaks = {}

    def look(self, record: RoundRecord) -> tuple[Alarm, ...]:
        """Return the alarms of a round. Call it for each round, in their order."""
        self._streaks = streaks_after(record, self._streaks)
        return alarms_of(record, self._streaks)


def alarms_of(record: RoundRecord, streaks: Streaks) -> tuple[Alarm, ...]:
    """Return the alarms of a round. `streaks` is what `streaks_after` returned for this round.

    If a client goes on being dropped after its alarm, there is no second alarm until it has been kept once.
    """
    found = [_stayed(record), _heavy_reply(record), _widened(record), _dropped_in_a_row(record, streaks)]
    return tuple(alarm for alarm in found if alarm is not None)


def streaks_after(record: RoundRecord, streaks: Streaks) -> Streaks:
    """Return how many times in a row each client has been dropped or refused, this round included.

    `streaks` is the result for the round before. A round in which a client was silent or banned does not change its
    count. If the filter kept nobody, being dropped says nothing about a single client, so it does not count.
    """
    counts, bad = dict(streaks), _offences(record)
    for client in record.clients:
        if client.fate in bad:
            counts[client.client] = counts.pop(client.client, 0) + 1  # moves the client to the end
        elif client.fate is Fate.KEPT:
            counts.pop(client.client, None)
    for forgotten in list(counts)[: max(0, len(counts) - MOST_REMEMBERED)]:
        del counts[forgotten]
    return counts


def names_in_words(clients: Sequence[ClientId]) -> str:
    r"""Return the ids of clients as short text that is safe to print.

    Examples
    --------
    >>> names_in_words(["ann", "e\x1b[2Jve", *range(5)])
    'ann, e�[2Jve, 0, 1, 2 and 2 more'
    """
    shown = ", ".join(printable(client, LONGEST_NAME) for client in clients[:MOST_NAMED])
    return shown + (f" and {len(clients) - MOST_NAMED} more" if len(clients) > MOST_NAMED else "")


def _any_kept(record: RoundRecord) -> bool:
    return any(client.kept for client in record.clients)


def _offences(record: RoundRecord) -> set[Fate]:
    """Return the fates of this round that count against a client."""
    return {Fate.REFUSED, Fate.DROPPED} if _any_kept(record) else {Fate.REFUSED}


def _stayed(record: RoundRecord) -> Alarm | None:
    if record.clients and not _any_kept(record):
        clients = "the only client" if len(record.clients) == 1 else f"none of the {len(record.clients)} clients"
        was = "was not kept" if len(record.clients) == 1 else "was kept"
        return Alarm(AlarmKind.KEPT_NOBODY, record.number, f"{clients} {was}: the global model stays")
    if record.stayed:
        why = f": {printable(record.note)}" if record.note else ""
        return Alarm(AlarmKind.MODEL_STAYED, record.number, f"the global model stayed as it was{why}")
    return None


def _heavy_reply(record: RoundRecord) -> Alarm | None:
    weights = {c.client: c.weight for c in record.clients if c.kept and math.isfinite(c.weight) and c.weight > 0}
    if not weights:
        return None
    client = max(weights, key=weights.__getitem__)
    share = 1.0 / sum(
        weight / weights[client] for weight in weights.values()
    )  # the plain sum of the weights could overflow
    if share <= MOST_OF_THE_WEIGHT:
        return None
    text = f"the reply of client {names_in_words([client])} has {share:.0%} of the weight"
    return Alarm(AlarmKind.HEAVY_REPLY, record.number, text, (client,))


def _widened(record: RoundRecord) -> Alarm | None:
    if not record.widening > 1:
        return None
    text = f"the filter's limits are {record.widening:.3g} times as wide as usual, after rounds that kept nobody"
    return Alarm(AlarmKind.LIMITS_WIDENED, record.number, text)


def _dropped_in_a_row(record: RoundRecord, streaks: Streaks) -> Alarm | None:
    bad = _offences(record)
    who = tuple(c.client for c in record.clients if c.fate in bad and streaks.get(c.client) == IN_A_ROW)
    if not who:
        return None
    subject = f"client {names_in_words(who)} was" if len(who) == 1 else f"{len(who)} clients were"
    rest = f": {names_in_words(who)}" if len(who) > 1 else ""
    return Alarm(
        AlarmKind.DROPPED_IN_A_ROW, record.number, f"{subject} dropped {IN_A_ROW} times in a row{rest}", who
    )
