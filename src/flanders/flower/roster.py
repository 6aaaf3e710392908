"""The class `Roster`: remembers which client is on each Flower node, and whether the client's last reply was kept.

The id of a node may change. The name of a client stays the same if its node is authenticated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flanders.client_ids import ClientId
from flanders.client_memory import newest_entries
from flanders.record import Fate, RoundRecord
from flanders.state import saveable

MOST_REMEMBERED = 100_000
"""The most clients, and the most nodes, that are remembered. Without a limit, attackers who invent new clients in
every round could fill the memory. This many clients take about 20 MB. The oldest entries are forgotten first."""


@saveable
@dataclass(frozen=True)
class Roster:
    """The clients that the strategy has chosen so far, for training or for evaluation."""

    nodes: dict[int, ClientId] = field(default_factory=dict)
    """The client on each node, by the id of the node. An entry stays even if the node leaves Flower's grid."""
    kept: dict[ClientId, bool] = field(default_factory=dict)
    """Whether the last training reply of each client was kept, by the name of the client.

    A client has no entry before `after_round` makes one.
    """

    @property
    def known(self) -> set[ClientId]:
        """The clients whose last training replies were kept."""
        return {client for client, kept in self.kept.items() if kept}

    def evaluators(self, clients: Iterable[ClientId]) -> set[ClientId]:
        """Return those of `clients` whose evaluations count: those whose last training reply was kept.

        If there are none, return those of `clients` that have no entry in `kept`.
        """
        clients = set(clients)
        return clients & self.known or clients - self.kept.keys()

    def having_asked(self, pairs: Iterable[tuple[int, ClientId]]) -> Roster:
        """Return the roster with the nodes that were chosen. `pairs` has the id of each node and its client."""
        return Roster(newest_entries(self.nodes, dict(pairs), MOST_REMEMBERED), self.kept)

    def after_round(self, record: RoundRecord) -> Roster:
        """Return the roster after a round, with a new entry for each client that was kept, dropped or refused.

        A client is dropped if the filter leaves its reply out. A client is refused if its reply cannot be used. If
        a round keeps nobody, e.g. because the filter failed, the dropped clients get no new entry: being dropped
        then says nothing about a single client.

        Examples
        --------
        >>> from flanders.record import ClientRecord
        >>> clients = ClientRecord("a", Fate.KEPT), ClientRecord("b", Fate.REFUSED), ClientRecord("c", Fate.SILENT)
        >>> Roster().after_round(RoundRecord(1, clients)).kept
        {'a': True, 'b': False}
        """
        fates = {client.client: client.fate for client in record.clients}
        judged = {Fate.KEPT, Fate.REFUSED} | ({Fate.DROPPED} if Fate.KEPT in fates.values() else set())
        new = {client: fate is Fate.KEPT for client, fate in fates.items() if fate in judged}
        return Roster(self.nodes, newest_entries(self.kept, new, MOST_REMEMBERED))
