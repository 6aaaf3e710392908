"""The audit trail of a federation: what the server received, what it decided, and which model came out."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from logging import ERROR, INFO, WARNING

import numpy as np
from flwr.app import Array, Message, RecordDict
from flwr.common.logger import log

from flanders.audit import AuditTrail, Head
from flanders.flower.identity import AskedClient
from flanders.flower.parameter_checks import check_paths
from flanders.flower.round_report import Nodes
from flanders.record import ClientRecord, RoundRecord
from flanders.results.tree import Table
from flanders.round import ClientId

LONGEST_NOTE = 2000
"""The most characters of a round's note that an entry holds. Clients can make a note long."""
AuditPlace = str | os.PathLike[str] | AuditTrail | None
"""Where an audit trail goes: a file, or a trail with settings of its own."""
UNREADABLE = "unreadable"
"""Stands for the digest of a reply that cannot even be read."""


class RoundAudit:
    """Writes each round of a federation to its audit trail.

    Parameters
    ----------
    caller
        The class that errors name.
    audit
        The trail or its file; None if there is none. Then nothing is computed.
    settings
        The description of the federation, as in the results file.
    """

    def __init__(self, caller: str, audit: AuditPlace, settings: Table) -> None:
        if not isinstance(audit, AuditTrail):
            check_paths(caller, audit=audit)
            audit = None if audit is None else AuditTrail(audit)
        self.trail, self.settings = audit, settings
        self.run = ""
        """The name of the federation."""
        self._received: dict[ClientId, list[str]] = {}
        self._unwritten: list[int] = []

    def open(self, run: str, rounds: int, known: Head | None) -> None:
        """Continue the trail of a run after so many rounds. `known` is the last entry that the memory knows of."""
        if self.trail is None or self.trail.is_open:
            return
        self.run = run
        versions = {name: version(name) for name in ("flanders-fl", "flwr", "numpy")}
        fields = {"run": self.run, "after_round": rounds, "versions": versions, "settings": self.settings}
        later = [entry for entry in self.trail.open(fields, known) if entry.kind == "round"]
        if len(later) > 1:
            log(
                WARNING,
                "flanders: the audit trail %s holds %s rounds that the saved memory does not know of. "
                "The memory was replaced by an older one, and the trail shows it.",
                self.trail.path,
                len(later),
            )

    def receive(self, replies: Iterable[Message], asked: Sequence[AskedClient]) -> None:
        """Remember the digests of what each client has sent, before anything is taken out of the replies."""
        self._received = {}
        if self.trail is None:
            return
        sent = {one.message_id: one.client for one in asked if one.message_id}
        for reply in replies:
            client = sent.get(reply.metadata.reply_to_message_id)
            if client is not None and reply.has_content():
                self._received.setdefault(client, []).append(reply_digest(reply.content))

    def write(
        self, record: RoundRecord, nodes: Nodes, before: Mapping[str, Array], after: Mapping[str, Array]
    ) -> Head | None:
        """Add a round to the trail and return the new head. The models are those before and after the round."""
        if self.trail is None:
            return None
        fields: dict[str, object] = {
            "run": self.run,
            "round": record.number,
            "model_before": model_digest(before),
            "model_after": model_digest(after),
            "note": record.note[:LONGEST_NOTE],
            "clients": [self._client(client, nodes[client.client]) for client in record.clients],
        }
        if self._unwritten:
            fields["unwritten"] = self._unwritten
        try:
            head = self.trail.add("round", fields)
        except OSError as error:  # a full disk must not end the federation
            self._unwritten.append(record.number)
            log(ERROR, "flanders: round %s is not in the audit trail: %s", record.number, error)
            return self.trail.head
        self._unwritten = []
        log(INFO, "flanders: audit head %s", head)
        return head

    def close(self) -> None:
        """Let other processes write to the trail."""
        if self.trail is not None:
            self.trail.close()

    def _client(self, client: ClientRecord, asked: AskedClient) -> dict[str, object]:
        return {
            "client": client.client,
            "node": str(asked.node),
            "fate": client.fate.value,
            "score": _number(client.score),
            "probability": _number(client.probability),
            "reason": client.reason,
            "replies": self._received.get(client.client, []),
        }


def reply_digest(content: RecordDict) -> str:
    """Return the SHA-256 of everything that a client has sent: arrays as they came, metrics and configs."""
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else repr(part).encode(errors="backslashreplace")
            digest.update(b"%d:" % len(data))  # so that no two replies run together to the same bytes
            digest.update(data)

    try:
        for kind, records in (
            ("arrays", content.array_records),
            ("metrics", content.metric_records),
            ("configs", content.config_records),
        ):
            for name, record in records.items():
                add(kind, name, len(record))
                for key, value in record.items():
                    if isinstance(value, Array):
                        add(key, value.dtype, tuple(value.shape), value.stype, value.data)
                    else:
                        add(key, value)
    except Exception:  # a client may send anything, so that any error is possible
        return UNREADABLE
    return digest.hexdigest()


def model_digest(arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of a model: the name, the type, the shape and the numbers of each array, in their order.

    Examples
    --------
    >>> model_digest({"w": Array(np.zeros(2, np.float32))})[:16]
    '137a5eb0764f7786'
    """
    digest = hashlib.sha256()
    for name, array in arrays.items():
        numbers = array.numpy()
        digest.update(repr((name, numbers.dtype.str, numbers.shape)).encode(errors="backslashreplace"))
        digest.update(np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _number(value: float) -> float | str | None:
    """Return a number in a form that JSON can hold; None for NaN."""
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else str(value)
