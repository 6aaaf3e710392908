"""Bans: a client that was dropped or refused too often gets no messages for some rounds.

A client is dropped if the filter leaves its reply out. A client is refused if its reply cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flanders.checks import check_number
from flanders.client_ids import ClientId
from flanders.state import saveable

FORGIVEN = 100
"""After this many rounds without an offence, plus the length of a ban, the old offences of a client are forgotten.

Otherwise the list of offences would keep every client that never comes back. With fewer rounds, a client that is
rarely chosen would never be banned.
"""
MOST_REMEMBERED = 100_000
"""The most clients whose offences or bans are remembered. Without a limit, attackers who invent new clients in
every round could fill the memory. This many clients take about 20 MB."""


@dataclass(frozen=True)
class Ban:
    """Ban a client for `rounds` rounds after `after` offences.

    It is an offence if the client's reply cannot be used, or if the filter drops the client but keeps other
    clients. A missing reply or an error message is no offence. Each round in which the client is kept removes one
    offence. After a ban, `after - 1` offences remain, so one more offence leads to the next ban. All offences of a
    client are forgotten after `100 + rounds` rounds without a new offence.

    Parameters
    ----------
    after
        The number of offences that lead to a ban.
    rounds
        The number of rounds in which a banned client gets no messages.
    """

    after: int = 3
    rounds: int = 5

    def __post_init__(self) -> None:
        check_number("Ban", "after", self.after, 1, whole=True)
        check_number("Ban", "rounds", self.rounds, 1, whole=True)


@saveable
@dataclass(frozen=True)
class BanList:
    """The offences and the bans of all clients."""

    offences: dict[ClientId, int] = field(default_factory=dict)
    """The number of offences of each client that has any."""
    until: dict[ClientId, int] = field(default_factory=dict)
    """For each banned client: the last round of its ban."""
    latest: dict[ClientId, int] = field(default_factory=dict)
    """The round of the latest offence of each client that has any."""

    def is_banned(self, client: ClientId, number: int) -> bool:
        """Whether a client is banned in the round of this number."""
        return number <= self.until.get(client, 0)

    def after_round(
        self, ban: Ban, number: int, offenders: Iterable[ClientId], kept: Iterable[ClientId]
    ) -> BanList:
        """Return the list after round `number`. `offenders` are the clients that committed an offence in the round.

        Examples
        --------
        >>> bans = BanList()
        >>> for number in (1, 2):
        ...     bans = bans.after_round(Ban(after=2, rounds=3), number, offenders=["a"], kept=["b"])
        >>> [number for number in range(1, 9) if bans.is_banned("a", number)]
        [1, 2, 3, 4, 5]
        >>> bans.offences
        {'a': 1}
        """
        offences, latest = dict(self.offences), dict(self.latest)
        until = {client: last for client, last in self.until.items() if last >= number}
        for client in kept:
            if client in offences:
                offences[client] -= 1
        for client in offenders:
            offences[client] = offences.get(client, 0) + 1
            latest.pop(client, None)  # so that the next line adds the client at the end of the dict
            latest[client] = number
            if offences[client] >= ban.after:
                until[client] = number + ban.rounds
                offences[client] = ban.after - 1
        recent = [client for client, last in latest.items() if number - last <= ban.rounds + FORGIVEN]
        remembered = [client for client in recent if offences.get(client, 0) > 0][-MOST_REMEMBERED:]
        banned = sorted(until, key=until.__getitem__)[-MOST_REMEMBERED:]
        return BanList(
            {client: offences[client] for client in remembered},
            {client: until[client] for client in banned},
            {client: latest[client] for client in remembered},
        )
