"""Measures what each question of the filter `Fingerprint()` is good for, by leaving out one question at a time.

    python benchmarks/ablation.py [--dataset digits] [--without fingerprint company] [--attacks all]
                                  [--ratios 0.2 0.8] [--seeds 1 2] [--rounds 50] [--jobs 2] [--data-dir DIR]

The filter asks six questions about each update, e.g. whether it is as long as the client's updates usually are. The
module `flanders.filters.fingerprint.questions` explains them. A question that is left out makes no client
suspicious. The limits of the other questions stay the same.

The data are divided by a Dirichlet distribution with alpha 0.5. From the third round on, different clients attack
in each round. The server averages the kept updates (FedAvg). The dataset digits has 50 clients and a learning rate
of 0.01. The datasets mnist and fashion-mnist have 100 clients and a learning rate of 0.001.

For each question the table has the mean accuracy of the last round, the share of malicious updates that were
dropped, and the share of honest updates that were dropped. The last column has the attacks under which the accuracy
falls most.

The filter has no switch for its questions. So this script replaces the function `deviations` in
`fingerprint/decision.py`. The filter uses it to compare the answers with the usual answers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from flanders.arrays import FloatMatrix
from flanders.attacks import Attack
from flanders.catalog import ATTACKS
from flanders.checks import InputError, check_number
from flanders.data import Dataset, Digits, Dirichlet, FashionMnist, Loader, Mnist
from flanders.filters import Fingerprint
from flanders.filters.fingerprint import decision
from flanders.filters.fingerprint.questions import CHANNELS
from flanders.models import Mlp2, Mlp4, ModelSpec
from flanders.simulation import Data, Federation, Options, Setting, Simulation, Threat, Training, confusion

NOTHING = "nothing"
"""The name of the runs in which no question is left out."""
ASKED = [channel.removeprefix("any ") for channel in CHANNELS]
"""The question to which each column of answers belongs. "length" and "any length" are the same question, asked of
different clients."""
QUESTIONS = (NOTHING, *dict.fromkeys(ASKED))
SYBILS = "sybils"
"""The name of the attack agr-min-max by clients that have new ids in each round."""
TASKS: dict[str, tuple[Loader, ModelSpec, int, float]] = {
    "digits": (Digits(), Mlp2(), 50, 0.01),
    "mnist": (Mnist(), Mlp2(), 100, 0.001),
    "fashion-mnist": (FashionMnist(), Mlp4(), 100, 0.001),
}
"""The dataset, the model, the number of clients and the learning rate."""
START = 3
"""The first round with an attack."""
WORST = 3
"""How many attacks the last column of the table has at most."""


@dataclass(frozen=True)
class Case:
    """One run: the question that is left out, and the federation."""

    without: str
    attack: str
    ratio: float
    """The share of malicious clients."""
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
    parser.add_argument("--dataset", default="digits", choices=list(TASKS))
    parser.add_argument(
        "--without", nargs="+", default=list(QUESTIONS), choices=list(QUESTIONS), metavar="QUESTION"
    )
    parser.add_argument("--attacks", nargs="+", default=["all"], choices=["all", SYBILS, *ATTACKS], metavar="NAME")
    parser.add_argument("--ratios", nargs="+", type=float, default=[0.2, 0.8])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-dir", type=Path, help="where the datasets' files are")
    options = parser.parse_args(arguments)
    attacks = [*ATTACKS, SYBILS] if "all" in options.attacks else options.attacks
    cells, questions = list(product(attacks, options.ratios)), list(dict.fromkeys([NOTHING, *options.without]))
    rest = (options.rounds, options.dataset, options.data_dir)
    cases = [Case(q, *cell, seed, *rest) for q in questions for cell in cells for seed in options.seeds]
    try:
        check_number("ablation", "--jobs", options.jobs, 1, whole=True)
        with ProcessPoolExecutor(options.jobs) as pool:
            found = dict(zip(cases, pool.map(run, cases), strict=True))
    except InputError as error:
        print(f"ablation: {error}", file=sys.stderr)
        return 2
    print("| left out | accuracy | found | honest dropped | the cells that suffer most |")
    print("|---|---|---|---|---|")
    whole = by_cell(found, NOTHING, "accuracy")
    for question in questions:
        accuracy = by_cell(found, question, "accuracy")
        losses = sorted(((whole[cell] - accuracy[cell], cell) for cell in cells), reverse=True)
        told = [f"{name} {ratio:.0%}: {-loss:+.2f}" for loss, (name, ratio) in losses[:WORST] if loss >= 0.02]
        means = [fmean(by_cell(found, question, what).values()) for what in ("accuracy", "recall", "dropped")]
        print(f"| {question} | {means[0]:.3f} | {means[1]:.3f} | {means[2]:.4f} | {', '.join(told) or '-'} |")
    return 0


def by_cell(found: dict[Case, Found], without: str, what: str) -> dict[tuple[str, float], float]:
    """Return the mean of a measure over the seeds, for each attack and ratio.

    `without` is the question that was left out. `what` is the measure, a field of `Found`.
    """
    values: dict[tuple[str, float], list[float]] = {}
    for case, result in found.items():
        if case.without == without:
            values.setdefault((case.attack, case.ratio), []).append(getattr(result, what))
    return {cell: fmean(of_it) for cell, of_it in values.items()}


def run(case: Case) -> Found:
    """Run a federation whose filter leaves out a question, and return the result."""
    torch.set_num_threads(1)
    data, model, clients, learning_rate = TASKS[case.dataset]
    attack: Attack = ATTACKS.make("agr-min-max" if case.attack == SYBILS else case.attack)
    setting = Setting(
        data=Data(data, Dirichlet(0.5)),
        model=model,
        training=Training(learning_rate=learning_rate),
        federation=Federation(num_clients=clients, rounds=case.rounds, seed=case.seed),
        threat=Threat(attack, fraction=case.ratio, start=START, sybils=case.attack == SYBILS),
        filter=Fingerprint(),
        run=Options(device="cpu"),
    )
    with leaving_out(case.without):
        records = list(Simulation(setting, loaded(data, case.data_dir)).run())
    found = confusion(records, START)
    return Found(found.recall, found.false_positive_rate, records[-1].accuracy)


@contextmanager
def leaving_out(question: str) -> Iterator[None]:
    """Let the filter ignore the answers to a question inside the `with` block."""
    original = decision.deviations

    def without_question(*arguments: Any) -> FloatMatrix:
        away = original(*arguments)
        away[:, np.equal(ASKED, question)] = -np.inf
        return away

    with patch.object(decision, "deviations", without_question):
        yield


@cache
def loaded(data: Loader, folder: Path | None) -> Dataset:
    """Return the dataset. A process loads it only once."""
    return data.load(folder)


if __name__ == "__main__":
    sys.exit(main())
