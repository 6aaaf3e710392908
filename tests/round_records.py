"""Records of rounds for tests, from one list for each field."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from flanders.record import ClientRecord, Fate, RoundRecord


def round_record(number, clients, *, kept=None, fates=None, **fields):
    """A round: lists for fields of `ClientRecord` go to its clients, the rest to the round. `kept` gives fates."""
    names = {field.name for field in dataclasses.fields(ClientRecord)}
    if fates is None:
        fates = [Fate.KEPT if k else Fate.DROPPED for k in (np.ones(len(clients)) if kept is None else kept)]
    lists = {name: fields.pop(name) for name in names & set(fields) if fields[name] is not None}
    fields = {name: value for name, value in fields.items() if name not in names}
    records = [
        ClientRecord(client, Fate(fate), **{name: plain(values[i]) for name, values in lists.items()})
        for i, (client, fate) in enumerate(zip(clients, fates, strict=True))
    ]
    return RoundRecord(number, tuple(records), **fields)


def with_clients(record, **changes):
    """The same round with other values in the records of its clients, a list for each field."""
    clients = [
        dataclasses.replace(client, **{name: plain(values[i]) for name, values in changes.items()})
        for i, client in enumerate(record.clients)
    ]
    return dataclasses.replace(record, clients=tuple(clients))


def plain(value):
    return value.item() if isinstance(value, np.generic) else math.nan if value is None else value
