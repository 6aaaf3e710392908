"""The class `RoundAudit`: writes the rounds of a Flower federation to an audit trail.

An audit trail is a file of decisions, in which later changes can be detected. It has an entry for each round. The
entry holds the server's decision about each client. It also holds digests (SHA-256) of all replies, and of the
global model before and after the round.
"""

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
from flanders.client_ids import ClientId
from flanders.flower.identity import AskedClient
from flanders.flower.parameter_checks import check_paths
from flanders.flower.round_report import Nodes
from flanders.record import ClientRecord, RoundRecord
from flanders.results.tree import Table

LONGEST_NOTE = 2000
"""The note of a round is cut after this many characters, so that entries stay short."""
AuditPlace = str | os.PathLike[str] | AuditTrail | None
"""The value of the parameter `audit`: the path of a file, an `AuditTrail` with settings of its own, or None."""
UNREADABLE = "unreadable"
"""Takes the place of the digest of a reply that cannot be read."""


class RoundAudit:
    """Writes each round of a federation to its audit trail.

    Parameters
    ----------
    caller
        The name of the class that has the parameter `audit`, for error messages.
    audit
        The trail or its file. With None, all methods do nothing.
    settings
        The description of the federation, the same as in the results file.
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
        """Begin the trail, or continue it.

        `run` is the name of the federation. `rounds` is the number of rounds that are done. `known` identifies the
        last entry that the trail had when the federation was last saved; None if nothing was saved.
        """
        if self.trail is None or self.trail.is_open:
            return
        self.run = run
        versions = {name: version(name) for name in ("flanders-fl", "flwr", "numpy")}
        fields = {"run": self.run, "after_round": rounds, "versions": versions, "settings": self.settings}
        later = [entry for entry in self.trail.open(fields, known) if entry.kind == "round"]
        # One later round is normal: the server may have been killed after writing the trail, before saving.
        if len(later) > 1:
            log(
                WARNING,
                "flanders: the audit trail %s holds %s rounds that the saved memory does not know of. "
                "The memory may have been replaced by an older one.",
                self.trail.path,
                len(later),
            )

    def receive(self, replies: Iterable[Message], asked: Sequence[AskedClient]) -> None:
        """Remember digests of the replies of each client. Call this before any other code changes the replies."""
        self._received = {}
        if self.trail is None:
            return
        receivers = {receiver.message_id: receiver.client for receiver in asked if receiver.message_id}
        for reply in replies:
            client = receivers.get(reply.metadata.reply_to_message_id)
            if client is not None and reply.has_content():
                self._received.setdefault(client, []).append(reply_digest(reply.content))

    def write(
        self, record: RoundRecord, nodes: Nodes, before: Mapping[str, Array], after: Mapping[str, Array]
    ) -> Head | None:
        """Add a round to the trail. Return the head of the trail, which identifies its last entry.

        `before` and `after` are the global models before and after the round. If the entry cannot be written, the
        federation goes on. The next entry that can be written names the rounds that have no entry.
        """
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
        """Close the trail, so that other processes can write to it."""
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
    """Return the SHA-256 of everything that a client has sent: arrays, metrics and configs."""
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else repr(part).encode(errors="backslashreplace")
            digest.update(b"%d:" % len(data))  # without lengths, two different replies could give the same bytes
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
    except Exception:  # a client may send anything, which may cause any error
        return UNREADABLE
    return digest.hexdigest()


def model_digest(arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of a model. It covers the name, the type, the shape and the numbers of each array.

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
    """Return a number in a form that JSON can hold: None for NaN, and text for infinity."""
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else str(value)
