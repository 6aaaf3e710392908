"""Alarms: short messages to the person who runs a federation. An alarm says what to look at after a round.

`Lookout` finds the alarms of each round. A client is *dropped* if the filter leaves out its model. It is *refused*
if its reply cannot be used at all, e.g. because the reply holds NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from flanders.client_ids import ClientId
from flanders.plain_text import first_few, printable
from flanders.record import STAYS, Fate, RoundRecord

Streaks = Mapping[ClientId, int]
"""For each client, how many times in a row it has been dropped or refused. It has no entry after it was kept."""

IN_A_ROW = 3
"""A client that is dropped or refused this many times in a row causes an alarm. An honest client may be dropped
once or twice by chance."""
MOST_OF_THE_WEIGHT = 0.5
"""A kept reply causes an alarm if it has more than this share of the total weight of all kept replies. The weight
says how much a reply counts in the average. With more than half of the total weight, one reply outweighs all the
others together."""
MOST_REMEMBERED = 100_000
"""The most clients in `Streaks`. Attackers may invent new client ids in every round, and would otherwise fill the
memory. This many entries take about 10 MB. If there are more, the clients that were dropped or refused longest ago
are forgotten."""
MOST_NAMED = 5
"""The most clients that the text of an alarm names, so that it stays short. `Alarm.clients` has all of them."""
LONGEST_NAME = 40
"""The most characters of a client's id in a text. Clients choose their ids, and may choose very long ones."""


class AlarmKind(StrEnum):
    """What an alarm is about."""

    KEPT_NOBODY = "kept-nobody"
    """No client was kept, so the global model did not change."""
    MODEL_STAYED = "model-stayed"
    """Clients were kept, but the global model did not change, since their models could not be aggregated."""
    HEAVY_REPLY = "heavy-reply"
    """One reply has more than half of the weight of all kept replies."""
    LIMITS_WIDENED = "limits-widened"
    """The filter kept nobody in the last rounds. Now it accepts clients that it would usually drop, so that the
    training goes on. This makes it easier for attackers to be kept, too."""
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
    """The ids of the clients that the alarm is about. Empty if it is about the round as a whole."""


class Lookout:
    """Finds the alarms of one round after the other. It remembers the `Streaks` of the clients.

    Examples
    --------
    >>> from flanders.record import ClientRecord
    >>> lookout = Lookout()
    >>> clients = (ClientRecord("ann", Fate.KEPT), ClientRecord("eve", Fate.DROPPED))
    >>> for number in (1, 2, 3):
    ...     alarms = lookout.look(RoundRecord(number, clients))
    >>> print(alarms[0].text)
    client eve was dropped or refused 3 times in a row
    """

    def __init__(self) -> None:
        self._streaks: Streaks = {}

    def look(self, record: RoundRecord) -> tuple[Alarm, ...]:
        """Return the alarms of a round. Call this method for each round, in the order of the rounds."""
        self._streaks = streaks_after(record, self._streaks)
        return alarms_of(record, self._streaks)


def alarms_of(record: RoundRecord, streaks: Streaks) -> tuple[Alarm, ...]:
    """Return the alarms of a round. `streaks` is what `streaks_after` returned for this round.

    A client that is dropped again right after its alarm causes no second alarm. Its count starts again at zero once
    the client has been kept.
    """
    alarms = [_stayed(record), _heavy_reply(record), _widened(record), _dropped_in_a_row(record, streaks)]
    return tuple(alarm for alarm in alarms if alarm is not None)


def streaks_after(record: RoundRecord, streaks: Streaks) -> Streaks:
    """Return how many times in a row each client has been dropped or refused, this round included.

    `streaks` is the result for the round before. If a client did not reply, or was not asked to, its count stays
    the same. A drop counts only if some client was kept in the round. A round in which everybody is dropped says
    nothing about a single client.
    """
    counts, offences = dict(streaks), _offences(record)
    for client in record.clients:
        if client.fate in offences:
            # The client moves to the end of the table, so the first clients are those dropped longest ago.
            counts[client.client] = counts.pop(client.client, 0) + 1
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
    return first_few(clients, MOST_NAMED, lambda client: printable(client, LONGEST_NAME))


def _any_kept(record: RoundRecord) -> bool:
    return any(client.kept for client in record.clients)


def _offences(record: RoundRecord) -> set[Fate]:
    """Return the fates that count against a client. Being dropped counts only if another client was kept."""
    return {Fate.REFUSED, Fate.DROPPED} if _any_kept(record) else {Fate.REFUSED}


def _stayed(record: RoundRecord) -> Alarm | None:
    if record.clients and not _any_kept(record):
        clients = "the only client" if len(record.clients) == 1 else f"none of the {len(record.clients)} clients"
        verb = "was not kept" if len(record.clients) == 1 else "was kept"
        return Alarm(AlarmKind.KEPT_NOBODY, record.number, f"{clients} {verb}: {STAYS}")
    if record.stayed:
        why = f": {printable(record.note)}" if record.note else ""
        return Alarm(AlarmKind.MODEL_STAYED, record.number, f"the global model stayed as it was{why}")
    return None


def _heavy_reply(record: RoundRecord) -> Alarm | None:
    weights = {c.client: c.weight for c in record.clients if c.kept and math.isfinite(c.weight) and c.weight > 0}
    if not weights:
        return None
    client = max(weights, key=weights.__getitem__)
    # The plain sum of the weights could overflow, so all weights are divided by the largest one.
    share = 1.0 / sum(weight / weights[client] for weight in weights.values())
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
    offences = _offences(record)
    clients = tuple(c.client for c in record.clients if c.fate in offences and streaks.get(c.client) == IN_A_ROW)
    if not clients:
        return None
    subject = f"client {names_in_words(clients)} was" if len(clients) == 1 else f"{len(clients)} clients were"
    names = f": {names_in_words(clients)}" if len(clients) > 1 else ""
    text = f"{subject} dropped or refused {IN_A_ROW} times in a row{names}"
    return Alarm(AlarmKind.DROPPED_IN_A_ROW, record.number, text, clients)
