"""Compares what this package, Flower, ByzFL and NVFLARE do if one of ten clients sends a bad input.

    python -m hardening.peers [--json FILE]

Every input of `hardening.bad_inputs` is tried in one round with nine honest clients. A defence survives an input if
the new model is finite and near the average of the nine honest models. Near means: at most three times as far from
this average as the farthest honest model.

Flower's strategies and this package's wrapper get messages. `Defense`, the rules of ByzFL and the aggregators of
NVFLARE get decoded arrays, so only inputs that change arrays or weights are tried on them. Packages that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import random
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import Bulyan, FedAvg, FedMedian, FedTrimmedAvg, Krum, MultiKrum, Strategy
from numpy.typing import NDArray

from flanders.defense import Defense
from flanders.flower import FilteredStrategy
from hardening.bad_inputs import CONTENTS, INPUTS
from hardening.federation import LocalGrid, Reply, honest_content, honest_node, quiet, start_model, train
from hardening.nvflare_peers import Round, nvflare_rounds

CLIENTS = 10
FIRST = 100
FAR = 3.0
"""A model counts as taken over if its distance from the honest average is more than this many times the distance of
the farthest honest model."""
Vector = NDArray[np.float64]
Aggregate = Callable[[list[RecordDict]], dict[str, Any]]
"""A function from the decoded replies to a model."""

NOT_FOR_ARRAYS = ("metric", "loss", "bytes", "pickled")
"""Words in the names of bad inputs that cannot be passed to a function of arrays."""


class Survival(StrEnum):
    """The result of a bad input."""

    SURVIVED = "survived"
    ENDED = "run ended"
    """An error ended the run."""
    BROKEN = "not finite"
    """The new global model is not finite, or its arrays have other shapes."""
    TAKEN = "taken over"
    """The new global model is far from the average of the honest models."""


@dataclass(frozen=True)
class Peer:
    """A defence, and the result of each bad input."""

    name: str
    found: Mapping[str, Survival]

    def count(self, survival: Survival) -> int:
        """Return how many inputs had this result."""
        return Counter(self.found.values())[survival]


def nodes(send: str | None) -> dict[int, Reply]:
    """Return nine honest nodes. If `send` names a bad input, also return a node that sends it."""
    found = {FIRST + client: honest_node(client) for client in range(1, CLIENTS)}
    if send is not None:
        found[FIRST] = lambda message: INPUTS[send](message, honest_content(message, 0))
    return found


def flat(arrays: Mapping[str, Any]) -> Vector:
    """Return the numbers of a model as one vector, in the order of the start model."""
    parts = [
        np.asarray(arrays[name], dtype=np.float64).reshape(first.shape).ravel() for name, first in start().items()
    ]
    return np.concatenate(parts)


def start() -> dict[str, NDArray[Any]]:
    """Return the start model as arrays."""
    return {name: array.numpy() for name, array in start_model().items()}


def numbers_of(record: ArrayRecord) -> dict[str, Any]:
    """Return the arrays of a record."""
    return {name: array.numpy() for name, array in record.items()}


def honest_replies() -> list[RecordDict]:
    """Return what the nine honest clients send in the first round."""
    return [honest_content(first_message(FIRST + client), client) for client in range(1, CLIENTS)]


def first_message(node: int) -> Message:
    """Return the server's message to a node in the first round."""
    LocalGrid({})
    content = RecordDict({"arrays": start_model(), "config": ConfigRecord({"server-round": 1})})
    return Message(content, node, "train")


class Judge:
    """Compares models with the average of the honest models."""

    def __init__(self) -> None:
        rows = [flat(numbers_of(content.array_records["arrays"])) for content in honest_replies()]
        self.model: Vector = np.mean(rows, axis=0)
        self.farthest = max(float(np.linalg.norm(row - self.model)) for row in rows)

    def judge(self, make: Callable[[], Mapping[str, Any] | None]) -> Survival:
        """Return the result of an input. `make` returns the new model, or None if the old model stays."""
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                made = make()
            except Exception:
                return Survival.ENDED
            try:
                found = flat(start() if made is None else made)
                types_fit = flat({n: np.asarray(a).astype(start()[n].dtype) for n, a in (made or start()).items()})
            except (ValueError, TypeError, KeyError):
                return Survival.BROKEN
            if not np.isfinite(found).all() or not np.isfinite(types_fit).all():
                return Survival.BROKEN
            far = made is not None and np.linalg.norm(found - self.model) > FAR * self.farthest
            return Survival.TAKEN if far else Survival.SURVIVED


def through_flower(make: Callable[[], Strategy], name: str) -> dict[str, Any] | None:
    """Return the model after one round of a strategy with a bad input."""
    random.seed(0)  # Flower asks the nodes in a random order, which can change the result of some strategies
    with quiet(), contextlib.redirect_stdout(io.StringIO()):
        found = train(make(), LocalGrid(nodes(name)), 1, start_model())
    return None if found is None else numbers_of(found)


def through_arrays(aggregate: Aggregate, name: str) -> dict[str, Any]:
    """Return the model that a function computes from the decoded replies, one of which is bad."""
    bad = honest_content(first_message(FIRST), 0)
    CONTENTS[name](bad)
    return aggregate([bad, *honest_replies()])


def strategies() -> dict[str, Callable[[], Strategy]]:
    """Return the strategies to compare."""
    return {
        "FilteredStrategy(FedAvg())": lambda: FilteredStrategy(FedAvg()),
        "FilteredStrategy(FedMedian())": lambda: FilteredStrategy(FedMedian()),
        "Flower FedAvg": FedAvg,
        "Flower FedMedian": FedMedian,
        "Flower FedTrimmedAvg": FedTrimmedAvg,
        "Flower Krum": partial(Krum, num_malicious_nodes=1),
        "Flower MultiKrum": partial(MultiKrum, num_malicious_nodes=1, num_nodes_to_select=8),
        "Flower Bulyan": partial(Bulyan, num_malicious_nodes=1),
    }


def own_rules() -> dict[str, Aggregate]:
    """Return this package's `Defense` as a function of arrays."""

    def aggregate(replies: list[RecordDict]) -> dict[str, Any]:
        rows = np.stack([row_of(reply) for reply in replies])
        weights: Any = [reply.metric_records["metrics"]["num-examples"] for reply in replies]
        return unflat(np.asarray(Defense()(rows, weights=weights, global_model=flat(start())).model))

    return {"Defense()": aggregate}


def row_of(reply: RecordDict) -> NDArray[Any]:
    """Return the arrays of a reply as one vector."""
    return np.concatenate([array.ravel() for array in numbers_of(reply.array_records["arrays"]).values()])


def unflat(vector: NDArray[Any]) -> dict[str, Any]:
    """Return a vector as the arrays of a model."""
    model, place = {}, 0
    for name, first in start().items():
        model[name] = vector[place : place + first.size].reshape(first.shape)
        place += first.size
    return model


def byzfl_rules() -> dict[str, Aggregate]:
    """Return the rules of ByzFL to compare. Empty if ByzFL is not installed."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None:
        return {}
    if "byzfl" not in sys.modules:  # its `__init__` imports packages that are not needed here
        package = types.ModuleType("byzfl")
        package.__path__ = list(spec.submodule_search_locations or [])
        sys.modules["byzfl"] = package
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rules: Any = importlib.import_module("byzfl.aggregators.aggregators")
    chosen = {
        "Average": rules.Average(),
        "Median": rules.Median(),
        "TrMean": rules.TrMean(f=1),
        "Krum": rules.Krum(f=1),
        "MultiKrum": rules.MultiKrum(f=1),
        "GeometricMedian": rules.GeometricMedian(),
    }

    def aggregate(rule: Any, replies: list[RecordDict]) -> dict[str, Any]:
        return unflat(np.asarray(rule([row_of(reply) for reply in replies])))

    return {f"ByzFL {name}": partial(aggregate, rule) for name, rule in chosen.items()}


def nvflare_rules() -> dict[str, Aggregate]:
    """Return the aggregators for NVFLARE. Empty if NVFLARE is not installed."""

    def aggregate(step: Round, replies: list[RecordDict]) -> dict[str, Any]:
        return step(
            start(),
            [
                (numbers_of(reply.array_records["arrays"]), reply.metric_records["metrics"].get("num-examples"))
                for reply in replies
            ],
        )

    return {name: partial(aggregate, step) for name, step in nvflare_rounds().items()}


def compare() -> list[Peer]:
    """Try every bad input on every defence, and return the results."""
    judge = Judge()
    found = [
        Peer(who, {name: judge.judge(partial(through_flower, make, name)) for name in INPUTS})
        for who, make in strategies().items()
    ]
    for who, aggregate in {**own_rules(), **byzfl_rules(), **nvflare_rules()}.items():
        names = [name for name in CONTENTS if not any(word in name for word in NOT_FOR_ARRAYS)]
        found.append(Peer(who, {name: judge.judge(partial(through_arrays, aggregate, name)) for name in names}))
    return found


def summary(peers: list[Peer]) -> str:
    """Return a table in Markdown with the number of inputs that had each result, for each defence."""
    lines = [
        "| | inputs | survived | run ended | model not finite | model taken over |",
        "|---|---|---|---|---|---|",
    ]
    for peer in peers:
        counts = [len(peer.found), *(peer.count(each) for each in Survival)]
        lines.append(f"| {peer.name} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main() -> int:
    """Read the command line, compare, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m hardening.peers", description="Try the same bad inputs on several libraries."
    )
    parser.add_argument("--json", type=Path, help="also write the result of every input to this file")
    options = parser.parse_args()
    peers = compare()
    print(summary(peers))
    for peer in peers[:2]:
        for name, end in peer.found.items():
            if end is not Survival.SURVIVED:
                print(f"{peer.name}, {name}: {end}")
    if options.json is not None:
        options.json.write_text(json.dumps({peer.name: peer.found for peer in peers}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
