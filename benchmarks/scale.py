"""Measures how time and memory grow with the number of clients, parameters, client ids and rounds.

    python benchmarks/scale.py [--parts many clients parameters ids devices ages stream] [--csv results/scale.csv]
                               [--figure docs/figures/scale.svg] [--small]

Parts
-----
many         one round of up to 10,000 clients with 100,000 parameters, and the Gram product of the updates
clients      one round of 100 to 1,000 clients with 10,000 parameters
parameters   one round of 20 clients with 10,000 to a million parameters
ids          1,000 rounds of 100 clients and 30 rounds of 1,000 clients, drawn from 100,000 ids, 1,000 parameters
stream       one round of ten models of a billion parameters, read in pieces; the aim is at most 1 GB of memory
devices      what the default filter finds in simulations with 100 to 100,000 clients, 100 of them in each round
ages         what the default filter finds in simulations with clients that start from old global models

How it measures
---------------
- Seconds are CPU time of this process, with one thread. Memory is the most that NumPy and Python allocate in
  addition to the updates (tracemalloc). `remembered` is the size of what the defense saves between rounds.
- The updates of `many`, `clients`, `parameters` and `ids` are random: the sum of a common step, a step of each
  client's own, and noise. In the first three of these parts, the third round is measured, since a filter needs
  earlier rounds.
- In `devices`, clients train a logistic regression on 20 examples each. Recall and false positives are those of all
  rounds together.
- `known` is the share of the clients of a round that the filter remembers from earlier rounds.
- The memory of `stream` is the largest resident set of the process, minus the models that the benchmark makes up.
  So run this part alone.
- With `--small`, everything is tiny. This is only to try the script. Rows of the CSV file that are not measured
  again stay.
"""

from __future__ import annotations

import argparse
import csv
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from flanders import (
    CenteredClipping,
    Defense,
    FedAvg,
    Flanders,
    Guard,
    KeepAll,
    Krum,
    Median,
    ModelFile,
    MultiKrum,
    StreamedDefense,
)
from flanders.aggregators import Aggregator
from flanders.client_ids import ClientId
from flanders.experiments.spec import parse_spec
from flanders.filters import Filter
from flanders.linalg.products import gram
from flanders.results.confusion import Confusion
from flanders.simulation.simulation import Simulation
from flanders.simulation.stale_trainer import StaleTrainer
from flanders.simulation.thread_limits import computing_with
from flanders.state import state_to_bytes

ATTACKS = ("none", "sign-flip", "lie", "own-pull")
"""The attacks of the part `devices`. A fifth of the clients are malicious."""
SUBJECTS: dict[str, Callable[[], tuple[Filter[Any], Aggregator]]] = {
    "guard": lambda: (Guard(), FedAvg()),
    "flanders": lambda: (Flanders(keep=0.8), FedAvg()),
    "fedavg": lambda: (KeepAll(), FedAvg()),
    "median": lambda: (KeepAll(), Median()),
    "krum": lambda: (KeepAll(), Krum(num_malicious=0.2)),
    "multi-krum": lambda: (KeepAll(), MultiKrum(num_malicious=0.2)),
    "centered-clipping": lambda: (KeepAll(), CenteredClipping()),
}
MOST = {"guard": 4000, "multi-krum": 10_000, "fedavg": 10_000, "median": 10_000, "centered-clipping": 10_000}
"""The most clients of each defense in the part `many`. With 10,000 clients, `guard` would take half an hour, and 16
GB of memory beside the updates."""
EXAMPLES = 20
"""The number of examples of each client in the part `devices`."""


@dataclass(frozen=True)
class Measured:
    """One row of the table. A value that does not apply to a part is None."""

    part: str
    subject: str
    """The defense, the attack or the computation that is measured."""
    clients: int
    """The number of clients in a round."""
    parameters: int
    ids: int
    """The number of clients in the whole federation. The clients of a round are drawn from them."""
    round: int
    """The number of the measured round, or of the last measured round."""
    seconds: float | None = None
    """The CPU seconds of a round. If several rounds are measured, the median."""
    megabytes: float | None = None
    """The most memory in addition to the updates, in MB."""
    remembered: float | None = None
    """The size of what the defense saves between rounds, in MB."""
    known: float | None = None
    """The share of the clients of a round that the filter remembers."""
    recall: float | None = None
    """The share of malicious updates that were dropped."""
    false_positives: float | None = None
    """The share of honest updates that were dropped."""
    accuracy: float | None = None
    """The accuracy after the last round."""

    @property
    def key(self) -> tuple[object, ...]:
        """The values that identify the row."""
        return self.part, self.subject, self.clients, self.parameters, self.ids, self.round


class RandomClients:
    """Honest clients whose updates are a common step, plus a step of each client's own, plus noise."""

    def __init__(self, d: int, seed: int = 0) -> None:
        self.d, self.seed = d, seed
        self._common = np.random.default_rng(seed).standard_normal(d, dtype=np.float32)

    def updates(self, clients: Sequence[int], number: int) -> NDArray[np.float32]:
        """Return the updates of the given clients in a round."""
        rows = np.empty((len(clients), self.d), dtype=np.float32)
        for row, client in zip(rows, clients, strict=True):
            row[:] = np.random.default_rng([self.seed, client]).standard_normal(self.d, dtype=np.float32)
        rows += self._common
        noise = np.random.default_rng([self.seed, 1, number])
        for row in rows:  # row by row, so that there is no second matrix in memory
            row += noise.standard_normal(self.d, dtype=np.float32)
        return rows


def one_round(part: str, subject: str, m: int, d: int) -> Measured:
    """Return the row of a defense, measured in its third round with m clients and d parameters."""
    senders, defense = RandomClients(d), Defense(*SUBJECTS[subject](), seed=0)
    zeros = np.zeros(d, dtype=np.float32)
    for number in () if isinstance(defense.filter, KeepAll) else (1, 2):
        defense(senders.updates(range(m), number), global_model=zeros)
    updates = senders.updates(range(m), 3)
    tracemalloc.start()
    began = time.process_time()
    defense(updates, global_model=zeros)
    seconds = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return Measured(part, subject, m, d, m, 3, seconds, peak, len(state_to_bytes(defense.memory)) / 1e6)


def clients(small: bool) -> Iterator[Measured]:
    for m in (20, 40) if small else (100, 300, 1000):
        for subject in SUBJECTS:
            yield one_round("clients", subject, m, 100 if small else 10_000)


def parameters(small: bool) -> Iterator[Measured]:
    for d in (100, 1000) if small else (10_000, 100_000, 1_000_000):
        for subject in SUBJECTS:
            yield one_round("parameters", subject, 20, d)


def ids(small: bool) -> Iterator[Measured]:
    """Yield a row for every few rounds of a long run with many client ids."""
    population = 1000 if small else 100_000
    for m, rounds, every in ((20, 20, 2),) if small else ((100, 1000, 100), (1000, 30, 5)):
        d = 50 if small else 1000
        senders, defense = RandomClients(d), Defense(Guard(), seed=0)
        rng, spent, known = np.random.default_rng(5), list[float](), list[float]()
        for number in range(1, rounds + 1):
            chosen = rng.choice(population, m, replace=False).tolist()
            updates = senders.updates(chosen, number)
            remembered = clients_known(defense)
            known.append(sum(client in remembered for client in chosen) / m)
            began = time.process_time()
            defense(updates, chosen, global_model=np.zeros(d, dtype=np.float32))
            spent.append(time.process_time() - began)
            if number % every == 0:
                size = len(state_to_bytes(defense.memory)) / 1e6
                some = slice(number - every, number)
                row = Measured("ids", "guard", m, d, population, number, float(np.median(spent[some])))
                yield replace_fields(row, remembered=size, known=float(np.mean(known[some])))


def ages(small: bool) -> Iterator[Measured]:
    """Yield what the default filter finds if clients start from old global models.

    Four of 20 clients send the opposite of their step.
    """
    rounds, seeds = (3, range(40, 41)) if small else (15, range(40, 43))
    for age in (0, 2) if small else (0, 1, 3, 8):
        total, accuracies, parameters = Confusion(), list[float](), 0
        for seed in seeds:
            (run,) = parse_spec(
                {
                    "data": {"partition": {"name": "iid"}},
                    "federation": {"num_clients": 20, "rounds": rounds, "seed": seed},
                    "threat": {"attack": "sign-flip", "fraction": 0.2, "start": 2, "rotating": False},
                    "filter": {"name": "guard"},
                    "run": {"device": "cpu", "threads": 1},
                }
            )
            simulation = Simulation(run.setting, run.setting.data.dataset.load(None))
            simulation.trainer = StaleTrainer(simulation.trainer, max_age=age)
            parameters = simulation.model.shape[0]
            records = list(simulation.run())
            total = sum((Confusion.of(record.malicious, record.kept) for record in records), total)
            accuracies.append(records[-1].accuracy)
        found = Measured("ages", f"sign-flip, oldest start {age}", 20, parameters, 20, rounds)
        yield replace_fields(
            found,
            recall=total.caught / max(1, total.caught + total.missed),
            false_positives=total.wronged / max(1, total.passed + total.wronged),
            accuracy=float(np.mean(accuracies)),
        )


def many(small: bool) -> Iterator[Measured]:
    """Yield the times of one round with many clients, and of the Gram product of its updates."""
    d = 100 if small else 100_000
    for m in (20, 40) if small else (1000, 2000, 4000, 10_000):
        if m <= MOST["multi-krum"]:
            updates = RandomClients(d).updates(range(m), 3)
            began = time.process_time()
            gram(updates, np.zeros(d, dtype=np.float32))
            yield Measured("many", "gram product", m, d, m, 3, time.process_time() - began)
            del updates
        for subject, most in MOST.items():
            if m <= most:
                yield one_round("many", subject, m, d)


def devices(small: bool) -> Iterator[Measured]:
    """Yield what the default filter finds if clients are rarely seen twice."""
    m, rounds = (10, 4) if small else (100, 30)
    for population in (10, 40) if small else (100, 10_000, 100_000):
        for attack in ATTACKS[1:2] if small else ATTACKS:
            (run,) = parse_spec(
                {
                    "data": {
                        "dataset": {"name": "synthetic", "num_samples": EXAMPLES * population},
                        "partition": {"name": "iid"},
                    },
                    "model": {"name": "logistic"},
                    "training": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 10},
                    "federation": {"num_clients": population, "clients_per_round": m, "rounds": rounds},
                    "threat": {} if attack == "none" else {"attack": attack, "fraction": 0.2},
                    "filter": {"name": "guard"},
                    "run": {"device": "cpu", "threads": 1},
                }
            )
            data = run.setting.data.dataset.load(None)
            total, known, spent, last = Confusion(), list[float](), list[float](), float("nan")
            simulation = Simulation(run.setting, data)
            before = clients_known(simulation.defense)
            for record in simulation.run():
                total += Confusion.of(record.malicious, record.kept)
                known.append(sum(client in before for client in record.ids) / m)
                before = clients_known(simulation.defense)
                spent.append(record.seconds["filter"])
                last = record.accuracy
            honest = total.passed + total.wronged
            yield Measured(
                "devices", attack, m, simulation.model.shape[0], population, rounds,
                float(np.median(spent)), known=float(np.mean(known)),
                recall=total.caught / max(1, total.caught + total.missed),
                false_positives=total.wronged / max(1, honest), accuracy=last,
            )  # fmt: skip


class RepeatedModel:
    """A model of any size that takes little memory, since it repeats four pieces of random numbers."""

    PIECE = 2**20

    def __init__(self, size: int, client: int, sign: float = 1.0) -> None:
        self.shape, self.sign = (size,), sign
        common = np.random.default_rng(0).standard_normal((4, self.PIECE), dtype=np.float32)
        own = np.random.default_rng([1, client]).standard_normal((4, self.PIECE), dtype=np.float32)
        self._pieces = common + own

    def __getitem__(self, columns: slice) -> NDArray[np.float32]:
        number, offset = divmod(columns.start, self.PIECE)
        piece = self._pieces[number % len(self._pieces), offset : offset + columns.stop - columns.start]
        return np.float32(self.sign) * piece

    def __setitem__(self, columns: slice, numbers: NDArray[np.floating]) -> None:
        raise TypeError("the model of a client cannot be changed")


def stream(small: bool) -> Iterator[Measured]:
    """Yield a round of ten models that would not fit into memory. Two of the clients send the opposite step."""
    size, m = 3_000_000 if small else 1_000_000_000, 10
    models = [RepeatedModel(size, client, -1.0 if client < 2 else 1.0) for client in range(m)]
    held = sum(model._pieces.nbytes for model in models) / 1e6  # the memory of the models that are made up
    with tempfile.TemporaryDirectory() as folder:
        server, defense = ModelFile(Path(folder) / "model.bin", size), StreamedDefense(width=4096, seed=0)
        began = time.process_time()
        outcome = defense(models, server, global_model=server)
        seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - held
    recall, wronged = (len(set(outcome.dropped) & some) / len(some) for some in ({0, 1}, set(range(2, m))))
    memory = len(state_to_bytes(defense.defense.memory)) / 1e6
    yield Measured("stream", "guard", m, size, m, 1, seconds, peak, memory, None, recall, wronged)


def clients_known(defense: Defense) -> set[ClientId]:
    """Return the clients that the filter `Guard` remembers."""
    return set(defense.state.signatures.clients)


def replace_fields(row: Measured, **changes: float) -> Measured:
    return Measured(**{**asdict(row), **changes})


PARTS: dict[str, Callable[[bool], Iterator[Measured]]] = {
    "many": many,
    "clients": clients,
    "parameters": parameters,
    "ids": ids,
    "devices": devices,
    "ages": ages,
    "stream": stream,
}


def read_rows(path: Path) -> list[Measured]:
    """Return the rows of a file that `write_rows` wrote. Without a file, return an empty list."""
    kinds = {field.name: str if field.name in ("part", "subject") else float for field in fields(Measured)}
    whole = ("clients", "parameters", "ids", "round")
    rows = []
    if path.exists():
        with open(path, newline="") as file:
            for line in csv.DictReader(file):
                values = {k: None if v == "" else int(v) if k in whole else kinds[k](v) for k, v in line.items()}
                rows.append(Measured(**values))  # type: ignore[arg-type]
    return rows


def write_rows(path: Path, rows: Sequence[Measured]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measured)])
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in asdict(row).items()})


def draw(path: Path, rows: Sequence[Measured]) -> None:
    """Draw time and memory against the number of clients, of parameters and of rounds."""
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "flanders"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(13, 5.5), layout="constrained")
    for column, (part, axis) in enumerate((("clients",) * 2, ("many", "clients"), ("parameters",) * 2)):
        for subject in (*SUBJECTS, "gram product"):
            some = [row for row in rows if row.part == part and row.subject == subject]
            x = [getattr(row, axis) for row in some]
            style = ":k" if subject == "gram product" else "o-"
            axes[0, column].loglog(x, [row.seconds or 1e-3 for row in some], style, ms=3, label=subject)
            if subject in SUBJECTS:
                axes[1, column].loglog(x, [row.megabytes or 1e-3 for row in some], style, ms=3)
    for m in sorted({row.clients for row in rows if row.part == "ids"}):
        some = [row for row in rows if row.part == "ids" and row.clients == m]
        x = [100 * row.round / some[-1].round for row in some]
        axes[0, 3].plot(x, [row.seconds for row in some], "o-", ms=3, label=f"m = {m}")
        axes[1, 3].plot(x, [row.remembered for row in some], "o-", ms=3)
    axes[0, 3].set(ylim=(0, None), yscale="linear")
    titles = ("10,000 parameters", "100,000 parameters", "20 clients", "100,000 ids")
    labels = ("clients m", "clients m", "parameters d", "rounds, in percent")
    for column, (title, label) in enumerate(zip(titles, labels, strict=True)):
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel(label)
    axes[0, 0].set_ylabel("CPU seconds a round")
    axes[1, 0].set_ylabel("MB beyond the updates")
    axes[1, 3].set_ylabel("MB remembered")
    figure.legend(*axes[0, 1].get_legend_handles_labels(), loc="outside lower center", ncols=8, fontsize=8)
    axes[0, 3].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--csv", type=Path, default=Path("results/scale.csv"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args(arguments)
    rows = {row.key: row for row in read_rows(options.csv)}
    with computing_with(1):
        for part in options.parts:
            for row in PARTS[part](options.small):
                print(row, flush=True)
                rows[row.key] = row
                write_rows(options.csv, list(rows.values()))
    if options.figure is not None:
        draw(options.figure, list(rows.values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
