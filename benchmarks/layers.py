"""Measures what the default filter, `Guard`, loses if it does not know the layers of the model.

    python benchmarks/layers.py [--clients 10 20 40] [--attacks sign-flip own-pull] [--seeds 93 94 95] [--rounds 30]

The federation learns the dataset digits: partition Dir(0.5), the model mlp2, two epochs of SGD with the learning
rate 0.1. A fifth of the clients attack from round 1 on, and the server has no examples. The table has the share of
malicious updates that were dropped, the share of honest updates that were dropped, and the accuracy of the last
round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

import torch

from flanders.catalog import ATTACKS
from flanders.checks import InputError
from flanders.data import Digits, Dirichlet
from flanders.filters import Guard, Scores
from flanders.filters.camps.guard import GuardState
from flanders.models import Mlp2
from flanders.report.text import print_table
from flanders.round import Round
from flanders.simulation import Data, Federation, Options, Setting, Simulation, Threat, Training, confusion

SHARE = 0.2
"""The share of malicious clients."""


@dataclass(frozen=True)
class WithoutLayers(Guard):
    """`Guard`, for rounds whose layers are not known."""

    def score(self, state: GuardState, round_: Round) -> Scores:
        """Decide as `Guard` does if a round has no `layers`."""
        return super().score(state, replace(round_, layers={}))


def run(filter_: Guard, clients: int, attack: str, seed: int, rounds: int) -> tuple[float, float, float]:
    """Return recall, the share of honest updates that were dropped, and the accuracy of the last round."""
    setting = Setting(
        data=Data(Digits(), Dirichlet(0.5)),
        model=Mlp2(),
        training=Training(optimizer="sgd", learning_rate=0.1, epochs=2),
        federation=Federation(num_clients=clients, rounds=rounds, seed=seed),
        threat=Threat(ATTACKS.make(attack), fraction=SHARE, rotating=False),
        filter=filter_,
        run=Options(device="cpu"),
    )
    records = list(Simulation(setting).run())
    found = confusion(records, 1)
    return found.recall, found.false_positive_rate, records[-1].accuracy


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all federations, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 20, 40])
    parser.add_argument(
        "--attacks", nargs="+", choices=list(ATTACKS), default=["sign-flip", "own-pull"], metavar="NAME"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[93, 94, 95])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        lines = measured(options)
    except InputError as error:
        print(f"layers: {error}", file=sys.stderr)
        return 2
    print_table(lines, ["clients", "attack", "layers", "recall", "honest dropped", "accuracy"])
    return 0


def measured(options: argparse.Namespace) -> list[list[str]]:
    """Run all federations, and return the lines of the table."""
    lines = []
    for clients, attack in product(options.clients, options.attacks):
        for name, filter_ in (("with", Guard()), ("without", WithoutLayers())):
            found = [run(filter_, clients, attack, seed, options.rounds) for seed in options.seeds]
            means = [fmean(values) for values in zip(*found, strict=True)]
            lines.append([str(clients), attack, name, f"{means[0]:.2f}", f"{means[1]:.3f}", f"{means[2]:.2f}"])
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
