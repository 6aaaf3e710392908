"""A table of bad inputs by name. A bad input is what a client sends to the server in place of an honest reply."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from numpy.typing import DTypeLike

from hardening.targets.replies import packed, pickled

Spoil = Callable[[RecordDict], None]
"""A function that changes, in place, what an honest client would send."""
Send = Callable[[Message, RecordDict], list[Message]]
"""A function from the message of the server and the content of an honest reply to the messages that are sent."""


def filled(value: float, dtype: DTypeLike = np.float32) -> Spoil:
    """Return a bad input: every float has the same value."""

    def spoil(content: RecordDict) -> None:
        for name, array in list(content.array_records["arrays"].items()):
            if array.numpy().dtype.kind == "f":
                content.array_records["arrays"][name] = packed(np.full(array.shape, value, dtype))

    return spoil


def typed(dtype: DTypeLike) -> Spoil:
    """Return a bad input: the honest floats are sent in another type."""

    def spoil(content: RecordDict) -> None:
        for name, array in list(content.array_records["arrays"].items()):
            if array.numpy().dtype.kind == "f":
                content.array_records["arrays"][name] = packed(array.numpy().astype(dtype))

    return spoil


def with_array(name: str, array: Array) -> Spoil:
    """Return a bad input: one array is replaced or added."""

    def spoil(content: RecordDict) -> None:
        content.array_records["arrays"][name] = array

    return spoil


def one_number(content: RecordDict) -> None:
    """Replace a single number by NaN."""
    numbers = content.array_records["arrays"]["0.weight"].numpy().copy()
    numbers[0, 0] = np.nan
    content.array_records["arrays"]["0.weight"] = Array(numbers)


def without_array(content: RecordDict) -> None:
    """Leave one array out."""
    del content.array_records["arrays"]["1.weight"]


def without_arrays(content: RecordDict) -> None:
    """Leave all arrays out."""
    content["arrays"] = ArrayRecord()


def with_metric(name: str, value: float | list[float] | None) -> Spoil:
    """Return a bad input: one metric is replaced or added. If the value is None, the metric is left out."""

    def spoil(content: RecordDict) -> None:
        record = content.metric_records["metrics"]
        if value is None:
            del record[name]
        else:
            record[name] = value

    return spoil


def with_more_metrics(content: RecordDict) -> None:
    """Add a second record of metrics."""
    content["more"] = MetricRecord({"num-examples": 5})


EXAMPLES = "num-examples"
CONTENTS: dict[str, Spoil] = {
    "all NaN": filled(np.nan),
    "one NaN": one_number,
    "infinite": filled(np.inf),
    "-3e38": filled(-3e38),
    "1e30": filled(1e30),
    "1e300 in float64": filled(1e300, np.float64),
    "1e4000 in longdouble": filled(np.longdouble("1e4000"), np.longdouble),  # type: ignore[arg-type]
    "honest, in float64": typed(np.float64),
    "honest, in float16": typed(np.float16),
    "complex numbers": typed(np.complex64),
    "running_var = 1e300": with_array("bn.running_var", Array(np.full(6, 1e300))),
    "counter = 2^62": with_array("bn.num_batches_tracked", Array(np.array(2**62))),
    "array of another shape": with_array("0.bias", Array(np.ones(7, np.float32))),
    "array of shape (1,)": with_array("0.bias", Array(np.full(1, 1e9, np.float32))),
    "one array missing": without_array,
    "one array more": with_array("more", Array(np.ones(3, np.float32))),
    "no arrays": without_arrays,
    "array of random bytes": with_array("0.bias", Array("float32", (6,), "numpy.ndarray", b"\x93NUMPY\x01\x00xx")),
    "array of pickled objects": with_array("0.bias", Array("object", (1,), "numpy.ndarray", pickled())),
    "0 examples": with_metric(EXAMPLES, 0),
    "-690 examples": with_metric(EXAMPLES, -690),
    "NaN examples": with_metric(EXAMPLES, np.nan),
    "2^53 examples": with_metric(EXAMPLES, 2**53),
    "examples missing": with_metric(EXAMPLES, None),
    "a list of examples": with_metric(EXAMPLES, [1.0, 2.0]),
    "one metric more": with_metric("more", 1.0),
    "loss = NaN": with_metric("train_loss", np.nan),
    "two records of metrics": with_more_metrics,
}
"""Bad inputs that change the content of a reply."""


def spoilt(spoil: Spoil) -> Send:
    """Return a function that sends one reply with the content that `spoil` has changed."""

    def send(message: Message, content: RecordDict) -> list[Message]:
        spoil(content)
        return [Message(content, reply_to=message)]

    return send


def impostor(message: Message, content: RecordDict) -> list[Message]:
    """Send a huge model under the id of the next node."""
    filled(1e6)(content)
    reply = Message(content, reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id + 1
    return [reply]


MESSAGES: dict[str, Send] = {
    "two replies": lambda message, content: [Message(content, reply_to=message) for _ in range(2)],
    "an error": lambda message, content: [Message(Error(2, "\x1b[2Jout of memory"), reply_to=message)],
    "no reply": lambda message, content: [],
    "noise in the name of another node": impostor,
}
"""Bad inputs that change how a reply is sent."""
INPUTS: dict[str, Send] = {**{name: spoilt(spoil) for name, spoil in CONTENTS.items()}, **MESSAGES}
"""All bad inputs."""
