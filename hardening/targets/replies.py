"""The target `replies`: hostile replies of clients, in rounds of the Flower wrapper."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, FedTrimmedAvg, Krum, MultiKrum, Strategy

from flanders.filters import Camps, Filter, Fingerprint, Flanders, Guard
from flanders.flower import Ban, FilteredStrategy
from flanders.record import Fate
from hardening.choices import FLOATS, INTS, TEXTS, Choices, damaged
from hardening.federation import LocalGrid, Reply, honest_content, is_finite, quiet, start_model, train
from hardening.targets.target import Target
from hardening.verdicts import HonestRefused, NonFiniteModel

CLIENTS, ROUNDS = 8, 3
FIRST = 100
"""The id of the first node."""
TYPES = ("f2", "f4", "f8", "g", ">f4", ">f8", "i1", "u1", "i8", "u8", "?", "F", "D", "U3", "S3", "M8[s]", "f4,i4")
STRATEGIES: tuple[Callable[[], Strategy], ...] = (
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
    MultiKrum,
    FedAdam,
    FedAvgM,
)
FILTERS: tuple[Callable[[], Filter[Any]], ...] = (Guard, Guard, Fingerprint, Camps, lambda: Flanders(keep=0.5))


class Replies(Target):
    """Rounds in which one to three of eight clients send hostile replies."""

    name = "replies"
    reads_files = False

    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Carry out three rounds."""
        with quiet(), tempfile.TemporaryDirectory(dir=self.folder) as folder:
            return self.rounds(choices, Path(folder))

    def rounds(self, choices: Choices, folder: Path) -> int:
        """Carry out three rounds. Raise an error if the model is not finite or an honest client is refused."""
        strategy = FilteredStrategy(
            choices.pick(STRATEGIES)(),
            choices.pick(FILTERS)(),
            state_dir=folder / "state" if choices.chance(30) else None,
            results=folder / "results.sqlite" if choices.chance(30) else None,
            audit=folder / "audit.jsonl" if choices.chance(30) else None,
            ban=Ban(2, 2) if choices.chance(30) else None,
            fallback=FedMedian() if choices.chance(50) else None,
            sketch=64 if choices.chance(20) else None,
            seed=0,
        )
        hostile = 1 + choices.below(3)
        grid = LocalGrid(nodes_of(choices, hostile))
        arrays, tried = start_model(), 0
        for number in range(1, ROUNDS + 1):
            new = train(strategy, grid, number, arrays)
            arrays = arrays if new is None else new
            if not is_finite(arrays):
                raise NonFiniteModel(f"round {number}, {type(strategy.strategy).__name__}")
            record, tried = strategy.last_round, tried + hostile
            for client in () if record is None else record.having(Fate.REFUSED):
                if int(client.client) >= FIRST + hostile:
                    raise HonestRefused(client.reason)
        return tried


def nodes_of(choices: Choices, hostile: int) -> dict[int, Reply]:
    """Return the nodes of a federation. The first `hostile` of them are hostile."""

    def node(client: int) -> Reply:
        def reply(message: Message) -> list[Message]:
            honest = honest_content(message, client)
            return hostile_reply(choices, message, honest) if client < hostile else [answer(message, honest)]

        return reply

    return {FIRST + client: node(client) for client in range(CLIENTS)}


def answer(message: Message, content: RecordDict) -> Message:
    """Return a reply with this content."""
    return Message(content, reply_to=message)


def hostile_reply(choices: Choices, message: Message, content: RecordDict) -> list[Message]:
    """Return what a malicious client sends in place of an honest reply."""
    for _ in range(1 + choices.below(2)):
        choices.pick((spoil_array, spoil_array, spoil_array, spoil_names, spoil_metrics, spoil_records))(
            choices, content
        )
    kind = choices.below(12)
    if kind == 11:
        return [Message(Error(choices.pick((0, 1, 2, 999)), str(choices.pick(TEXTS))), reply_to=message)]
    if kind == 10:
        return [answer(message, content), answer(message, content)]
    if kind == 9:
        return []
    found = answer(message, content)
    if kind == 8:
        found.metadata.__dict__["_src_node_id"] = choices.pick((0, 1, FIRST + CLIENTS - 1, 2**64 - 1))
    if kind == 7:
        found.metadata.__dict__["_reply_to_message_id"] = choices.pick(("", "unknown", "\x1b[2J"))
    return [found]


def spoil_array(choices: Choices, content: RecordDict) -> None:
    """Replace one array by a hostile one."""
    for record in content.array_records.values():
        if record:
            name = choices.pick(list(record))
            record[name] = hostile_array(choices, record[name])


def hostile_array(choices: Choices, array: Array) -> Array:
    """Return an array that no honest client sends."""
    try:
        numbers = array.numpy()
    except Exception:  # the array was already made unreadable
        numbers = np.zeros(3)
    if numbers.dtype.kind not in "biuf":
        numbers = np.zeros(3)
    kind = choices.below(10)
    with np.errstate(all="ignore"):
        if kind == 0:
            return Array(np.full(numbers.shape, choices.pick(FLOATS), dtype=choices.pick(("f4", "f8", "g", "f2"))))
        if kind == 1:
            spoilt = numbers.astype(np.float64).reshape(-1)
            spoilt[choices.below(max(spoilt.size, 1)) % max(spoilt.size, 1)] = choices.pick(FLOATS)
            return Array(spoilt.reshape(numbers.shape).astype(choices.pick(("f4", "f8"))))
        if kind == 2:
            return packed(np.zeros(numbers.shape, dtype=choices.pick(TYPES)))
        if kind == 3:
            shape = choices.pick(
                ((), (0,), (1,), numbers.shape[::-1], (*numbers.shape, 1), (numbers.size,), (10**6,))
            )
            return Array(np.ones(shape, np.float32))
        if kind == 4:
            return Array("float32", tuple(numbers.shape), "numpy.ndarray", damaged(array.data, choices))
    if kind == 5:
        return Array("float32", tuple(numbers.shape), str(choices.pick(("", "torch.Tensor", "pickle"))), array.data)
    if kind == 6:
        return Array(str(choices.pick(TEXTS))[:50], (choices.pick(INTS) % 2**31,), "numpy.ndarray", array.data)
    if kind == 7:
        return Array("float32", tuple(numbers.shape), "numpy.ndarray", lying_header(choices, numbers))
    if kind == 8:
        return packed(np.asfortranarray(numbers).astype(choices.pick(("<f4", ">f4", "f2", "f8"))))
    return Array("object", (1,), "numpy.ndarray", pickled())


def packed(numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Array:
    """Return an array of any type, as bytes in NumPy's format."""
    file = io.BytesIO()
    np.save(file, numbers, allow_pickle=False)
    return Array(str(numbers.dtype), tuple(numbers.shape), "numpy.ndarray", file.getvalue())


def lying_header(choices: Choices, numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    """Return bytes in NumPy's format with a header that does not describe the data after it."""
    shape = choices.pick(
        ("(10000000000,)", "(-1,)", "(3, 1000000000, 1000000000)", "((),)", "()", "(1e3,)", "[3]", "x")
    )
    kind = choices.pick(("'<f4'", "'|O'", "'<V1000000000'", "'<f3'", "[('a','<f4')]", "1", "'<f4', 'x': 1"))
    text = (
        f"{{'descr': {kind}, 'fortran_order': {choices.pick(('False', 'True', '1', 'None'))}, 'shape': {shape}, }}"
    )
    header = text.encode("latin1").ljust(118) + b"\n"
    version = choices.pick((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"))
    length = len(header).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + length + header + numbers.tobytes()


def pickled() -> bytes:
    """Return an array of objects in NumPy's format. Reading it would need pickle."""
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return file.getvalue()


def spoil_names(choices: Choices, content: RecordDict) -> None:
    """Remove, add, rename or reorder arrays."""
    for record in content.array_records.values():
        kind = choices.below(4)
        if kind == 0 and record:
            record.pop(choices.pick(list(record)))
        elif kind == 1:
            record[str(choices.pick(TEXTS))[:1000]] = Array(np.ones(3, np.float32))
        elif kind == 2 and record:
            record["0.weight "] = record.pop(choices.pick(list(record)))
        else:
            for name in list(record):
                record[name] = record.pop(name)
                break


def spoil_metrics(choices: Choices, content: RecordDict) -> None:
    """Claim a wrong number of examples, or send other hostile metrics."""
    for record in content.metric_records.values():
        kind = choices.below(5)
        if kind == 0:
            record["num-examples"] = choices.pick((*FLOATS, *(n for n in INTS if -(2**63) <= n < 2**63)))
        elif kind == 1:
            record["num-examples"] = [choices.pick(FLOATS)] * choices.below(4)
        elif kind == 2:
            record.pop("num-examples", None)
        elif kind == 3:
            record[str(choices.pick(TEXTS))[:1000]] = choices.pick(FLOATS)
        else:
            record["train_loss"] = [choices.pick(FLOATS)] * choices.pick((0, 1, 2, 1000))


def spoil_records(choices: Choices, content: RecordDict) -> None:
    """Add, remove or empty whole records."""
    kind = choices.below(6)
    if kind == 0:
        content["more"] = ArrayRecord({"w": Array(np.ones(2, np.float32))})
    elif kind == 1:
        content["more"] = MetricRecord({"num-examples": 10**6})
    elif kind == 2:
        content["more"] = ConfigRecord({"a": str(choices.pick(TEXTS)), "b": b"\0" * 10})
    elif kind == 3 and "arrays" in content:
        del content["arrays"]
    elif kind == 4 and "metrics" in content:
        del content["metrics"]
    elif kind == 5:
        content["arrays"] = ArrayRecord()
