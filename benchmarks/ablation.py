"""Measures what each part of `Guard()` or `Fingerprint()` is good for, by leaving out one part at a time.

    python benchmarks/ablation.py [--filter guard] [--dataset digits] [--clients 50] [--without length copies]
                                  [--attacks all] [--ratios 0.2 0.8] [--threats first third] [--examples 0]
                                  [--seeds 1 2] [--rounds 50] [--jobs 2] [--data-dir DIR]

The parts of `Guard` are its traits, e.g. the direction of an update, and its searches for copies, long updates and
opposing clients. The modules of `flanders.filters.camps` explain them. The parts of `Fingerprint` are its
questions. The module `flanders.filters.fingerprint.questions` explains them. A part that is left out makes no
client suspicious. The limits of the other parts stay the same.

The data are divided by a Dirichlet distribution with alpha 0.5. There are two threats. `first`: the same clients
attack from round 1 on. `third`: different clients attack in each round from round 3 on. The server averages the
kept updates (FedAvg). The dataset digits has 50 clients and a learning rate of 0.01. The datasets mnist and
fashion-mnist have 100 clients and a learning rate of 0.001.

For each part the table has the mean accuracy of the last round, the share of malicious updates that were dropped,
and the share of honest updates that were dropped. The last column has the attacks under which the accuracy falls
most.

The filters have no switch for their parts. So this script replaces functions that the filters call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.attacks import Attack
from flanders.catalog import ATTACKS
from flanders.checks import InputError, check_number
from flanders.data import Dataset, Digits, Dirichlet, FashionMnist, Loader, Mnist
from flanders.filters import Fingerprint, Guard
from flanders.filters.camps import guard
from flanders.filters.camps.crafted import crafted_rows
from flanders.filters.camps.inputs import input_traits
from flanders.filters.camps.loud import loud_rows
from flanders.filters.camps.opposing import Opposing, opposing_rows
from flanders.filters.camps.traits import Trait, direction_traits, length_trait, own_traits
from flanders.filters.fingerprint import decision
from flanders.filters.fingerprint.questions import CHANNELS
from flanders.models import Mlp2, Mlp4, ModelSpec
from flanders.simulation import Data, Federation, Options, Setting, Simulation, Threat, Training, confusion
from flanders.simulation.setting import Server

NOTHING = "nothing"
"""The name of the runs in which nothing is left out."""
ASKED = [channel.removeprefix("any ") for channel in CHANNELS]
"""The question to which each column of answers belongs. "length" and "any length" are the same question, asked of
different clients."""
TRAITS = (
    "fingerprint",
    "novelty",
    "own length",
    "own course",
    "direction",
    "direction from the clients kept before",
    "direction in all rounds",
    "direction with the server's",
    "main direction",
    "length",
    "inputs",
)
"""The traits of `Guard`. A trait of a part of the model counts by its name without that part."""
SEARCHES = ("copies", "long updates", "opposing")
"""The other parts of `Guard`: what it searches for."""
PARTS = {"guard": (NOTHING, *TRAITS, *SEARCHES), "fingerprint": (NOTHING, *dict.fromkeys(ASKED))}
FILTERS = {"guard": Guard, "fingerprint": Fingerprint}
THREATS = {"first": (1, False), "third": (3, True)}
"""The first round with an attack, and whether different clients attack in each round."""
NOBODY = "none"
"""The name of the runs without an attack."""
SYBILS = "sybils"
"""The name of the attack agr-min-max by clients that have new ids in each round."""
TASKS: dict[str, tuple[Loader, ModelSpec, int, float]] = {
    "digits": (Digits(), Mlp2(), 50, 0.01),
    "mnist": (Mnist(), Mlp2(), 100, 0.001),
    "fashion-mnist": (FashionMnist(), Mlp4(), 100, 0.001),
}
"""The dataset, the model, the number of clients and the learning rate."""
WORST = 3
"""How many attacks the last column of the table has at most."""


@dataclass(frozen=True)
class Case:
    """One run: the filter, the part of it that is left out, and the federation."""

    filter: str
    without: str
    attack: str
    ratio: float
    """The share of malicious clients."""
    threat: str
    examples: int
    """The number of labelled examples that the server has."""
    clients: int
    """The number of clients; 0 for that of the dataset."""
    seed: int
    rounds: int
    dataset: str
    data_dir: Path | None


@dataclass(frozen=True)
class Found:
    """The result of one run."""

    recall: float
    """The share of malicious updates that were dropped."""
    dropped: float
    """The share of honest updates that were dropped."""
    accuracy: float
    """The accuracy after the last round."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--filter", default="guard", choices=list(PARTS))
    parser.add_argument("--dataset", default="digits", choices=list(TASKS))
    parser.add_argument("--clients", type=int, default=0, help="number of clients (default: that of the dataset)")
    parser.add_argument("--without", nargs="+", metavar="PART", help="only leave out these parts")
    parser.add_argument(
        "--attacks", nargs="+", default=["all"], choices=["all", NOBODY, SYBILS, *ATTACKS], metavar="NAME"
    )
    parser.add_argument("--ratios", nargs="+", type=float, default=[0.2, 0.8])
    parser.add_argument("--threats", nargs="+", default=list(THREATS), choices=list(THREATS), metavar="THREAT")
    parser.add_argument("--examples", nargs="+", type=int, default=[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-dir", type=Path, help="where the datasets' files are")
    options = parser.parse_args(arguments)
    try:
        parts = list(dict.fromkeys([NOTHING, *(options.without or PARTS[options.filter])]))
        if unknown := set(parts) - set(PARTS[options.filter]):
            names = ", ".join(PARTS[options.filter])
            raise InputError(f"--without {min(unknown)!r}: {options.filter} has no such part. It has {names}.")
        check_number("ablation", "--jobs", options.jobs, 1, whole=True)
        cases = [case for part in parts for case in cases_of(options, part)]
        with ProcessPoolExecutor(options.jobs) as pool:
            found = dict(zip(cases, pool.map(run, cases), strict=True))
    except InputError as error:
        print(f"ablation: {error}", file=sys.stderr)
        return 2
    print("| left out | accuracy | found | honest dropped | the cells that suffer most |")
    print("|---|---|---|---|---|")
    whole = by_cell(found, NOTHING, "accuracy")
    for part in parts:
        accuracy = by_cell(found, part, "accuracy")
        losses = sorted(((whole[cell] - accuracy[cell], cell) for cell in whole), reverse=True)
        told = [f"{cell}: {-loss:+.2f}" for loss, cell in losses[:WORST] if loss >= 0.02]
        means = [fmean(known(by_cell(found, part, what).values())) for what in ("accuracy", "recall", "dropped")]
        print(
            f"| {part} | {means[0]:.3f} | {means[1]:.3f} | {means[2]:.4f} | {', '.join(told) or '-'} |", flush=True
        )
    return 0


def cases_of(options: argparse.Namespace, part: str) -> Iterator[Case]:
    """Yield the runs in which a part is left out."""
    attacks = [NOBODY, *ATTACKS, SYBILS] if "all" in options.attacks else options.attacks
    for attack, examples, seed in product(attacks, options.examples, options.seeds):
        threats = [(0.0, "first")] if attack == NOBODY else product(options.ratios, options.threats)
        for ratio, threat in threats:
            yield Case(
                options.filter, part, attack, ratio, threat, examples, options.clients, seed, options.rounds,
                options.dataset, options.data_dir,
            )  # fmt: skip


def known(values: Iterable[float]) -> list[float]:
    """Return the numbers that are not NaN, or a zero if there are none: without an attack there is no recall."""
    return [value for value in values if value == value] or [0.0]


def by_cell(found: dict[Case, Found], without: str, what: str) -> dict[str, float]:
    """Return the mean of a measure over the seeds, for each federation, in words.

    `without` is the part that was left out. `what` is the measure, a field of `Found`.
    """
    values: dict[str, list[float]] = {}
    for case, result in found.items():
        if case.without == without:
            start = f" from round {THREATS[case.threat][0]}" if case.ratio else ""
            examples = f", {case.examples} examples" if case.examples else ""
            cell = f"{case.attack} {case.ratio:.0%}{start}{examples}"
            values.setdefault(cell, []).append(getattr(result, what))
    return {cell: fmean(of_it) for cell, of_it in values.items()}


def run(case: Case) -> Found:
    """Run a federation whose filter leaves out a part, and return the result."""
    torch.set_num_threads(1)
    data, model, clients, learning_rate = TASKS[case.dataset]
    threat, (start, rotating) = Threat(), THREATS[case.threat]
    if case.attack != NOBODY:
        attack: Attack = ATTACKS.make("agr-min-max" if case.attack == SYBILS else case.attack)
        sybils = case.attack == SYBILS
        threat = Threat(attack, fraction=case.ratio, start=start, rotating=rotating, sybils=sybils)
    setting = Setting(
        data=Data(data, Dirichlet(0.5)),
        model=model,
        training=Training(learning_rate=learning_rate),
        federation=Federation(num_clients=case.clients or clients, rounds=case.rounds, seed=case.seed),
        threat=threat,
        server=Server(case.examples),
        filter=FILTERS[case.filter](),
        run=Options(device="cpu"),
    )
    with leaving_out(case.filter, case.without):
        records = list(Simulation(setting, loaded(data, case.data_dir)).run())
    found = confusion(records, start)
    return Found(found.recall, found.false_positive_rate, records[-1].accuracy)


@contextmanager
def leaving_out(filter_: str, part: str) -> Iterator[None]:
    """Let the filter ignore one of its parts inside the `with` block."""
    with ExitStack() as stack:
        for module, name, replacement in replacements(filter_, part):
            stack.enter_context(patch.object(module, name, replacement))
        yield


def replacements(filter_: str, part: str) -> Iterator[tuple[ModuleType, str, Callable[..., Any]]]:
    """Yield the functions that are replaced, by module and name, and what replaces them."""
    if filter_ == "fingerprint":
        deviations = decision.deviations

        def without_question(*arguments: Any) -> FloatMatrix:
            away = deviations(*arguments)
            away[:, np.equal(ASKED, part)] = -np.inf
            return away

        yield decision, "deviations", without_question
    elif part == "copies":
        yield guard, "crafted_rows", lambda *arguments: crafted_rows(*arguments) & False
    elif part == "long updates":
        yield guard, "loud_rows", nothing_is_long
    elif part == "opposing":
        yield guard, "opposing_rows", nobody_opposes
    elif part == "length":
        yield guard, "length_trait", lambda lengths: length_trait(lengths * np.nan)
    else:
        yield guard, "own_traits", without_trait(own_traits, part)
        yield guard, "direction_traits", without_trait(direction_traits, part)
        yield guard, "input_traits", without_trait(input_traits, part)


def nothing_is_long(*arguments: Any) -> tuple[BoolVector, FloatVector]:
    """Return what `loud_rows` does, without a client."""
    loud, longer = loud_rows(*arguments)
    return loud & False, longer


def nobody_opposes(*arguments: Any, by_server: bool) -> Opposing:
    """Return what `opposing_rows` does, without a client."""
    found = opposing_rows(*arguments, by_server=by_server)
    return replace(found, rows=found.rows & False)


def without_trait(traits_of: Callable[..., list[Trait]], part: str) -> Callable[..., list[Trait]]:
    """Return a function that returns the same traits as `traits_of` but one."""

    def others(*arguments: Any) -> list[Trait]:
        return [trait for trait in traits_of(*arguments) if trait.name.partition(" in the ")[0] != part]

    return others


@cache
def loaded(data: Loader, folder: Path | None) -> Dataset:
    """Return the dataset. A process loads it only once."""
    return data.load(folder)


if __name__ == "__main__":
    sys.exit(main())
