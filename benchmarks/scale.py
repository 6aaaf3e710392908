"""How cost grows with the clients of a round, with the parameters, and with the number of ids and rounds.

    python benchmarks/scale.py [--parts many clients parameters ids devices ages stream] [--csv results/scale.csv]
                               [--figure docs/figures/scale.svg] [--small]

Parts
-----
many         one round of m clients, 100,000 parameters, next to the product of the updates with each other
clients      one round of m clients, 10,000 parameters
parameters   one round of 20 clients, d parameters
ids          1,000 rounds of 100 clients and 30 rounds of 1,000 clients, drawn from 100,000 ids, 1,000 parameters
stream       one round of ten models of a billion parameters, in pieces; the process may take 1 GB of memory
devices      the simulator with 100 to 100,000 clients, 100 of them in each round: what the default filter finds
ages         the simulator with clients that start from models of different ages: what the default filter finds

How it measures
---------------
- Seconds are CPU time of this process, with one thread. Memory is what NumPy and Python allocate at most beyond the
  updates (tracemalloc). `remembered` is the size of the saved memory of the defense.
- The updates of the first three parts are random: a common step, a step of each client's own, and noise. A filter
  sees two rounds before the measured one.
- `devices` is real training: logistic regression on 20 examples of each client. The rates are over all rounds.
- `known` is the share of a round's clients of which the filter remembers something.
- The memory of `stream` is the most that the process ever held, less the models that the benchmark makes up. So
  measure this part alone.
- With `--small` everything is tiny, to try the script out. Rows of the CSV file that are not measured again stay.
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
from flanders.experiments.spec import parse_spec
from flanders.filters import Filter
from flanders.linalg.products import gram
from flanders.results.confusion import Confusion
from flanders.round import ClientId
from flanders.simulation.simulation import Simulation
from flanders.simulation.stale_trainer import StaleTrainer
from flanders.simulation.thread_limits import computing_with
from flanders.state import state_to_bytes

ATTACKS = ("none", "sign-flip", "lie", "own-pull")
"""The attacks of the part `devices`, by a fifth of the clients."""
SUBJECTS: dict[str, Callable[[], tuple[Filter[Any], Aggregator]]] = {
    "guard": lambda: (Guard(), FedAvg()),
    "flanders": lambda: (Flanders(keep=0.8), FedAvg()),
    "fedavg": lambda: (KeepAll(), FedAvg()),
    "median": lambda: (KeepAll(), Median()),
    "krum": lambda: (KeepAll(), Krum(num_malicious=0.2)),
    "multi-krum": lambda: (KeepAll(), MultiKrum(num_malicious=0.2)),
    "centered-clipping": lambda: (KeepAll(), CenteredClipping()),
}
MOST = {"guard": 2000, "multi-krum": 4000, "fedavg": 10_000, "median": 10_000, "centered-clipping": 10_000}
"""The most clients in the part `many`. Larger rounds of the first two take minutes, and those of `guard` 8 GB."""
EXAMPLES = 20
"""The examples of each client in the part `devices`."""


@dataclass(frozen=True)
class Measured:
    """One row of the table. What does not apply is empty."""

    part: str
    subject: str
    clients: int
    """The clients of a round."""
    parameters: int
    ids: int
    """All clients that there are."""
    round: int
    seconds: float | None = None
    """CPU seconds of the round, the median of the last rounds."""
    megabytes: float | None = None
    """The most memory beyond the updates."""
    remembered: float | None = None
    """Megabytes that are saved between rounds."""
    known: float | None = None
    recall: float | None = None
    false_positives: float | None = None
    """The share of honest clients that were dropped."""
    accuracy: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this row from all others."""
        return self.part, self.subject, self.clients, self.parameters, self.ids, self.round


class Crowd:
    """Honest clients whose updates have a common part, a part of their own, and noise."""

    def __init__(self, d: int, seed: int = 0) -> None:
        self.d, self.seed = d, seed
        self._common = np.random.default_rng(seed).standard_normal(d, dtype=np.float32)

    def updates(self, clients: Sequence[int], number: int) -> NDArray[np.float32]:
        """Return what these clients send in a round."""
        rows = np.empty((len(clients), self.d), dtype=np.float32)
        for row, client in zip(rows, clients, strict=True):
            row[:] = np.random.default_rng([self.seed, client]).standard_normal(self.d, dtype=np.float32)
        rows += self._common
        noise = np.random.default_rng([self.seed, 1, number])
        for row in rows:  # one at a time, so that no second matrix is in memory
            row += noise.standard_normal(self.d, dtype=np.float32)
        return rows


def one_round(part: str, subject: str, m: int, d: int) -> Measured:
    """Measure the third round of a defense."""
    crowd, defense = Crowd(d), Defense(*SUBJECTS[subject](), seed=0)
    zeros = np.zeros(d, dtype=np.float32)
    for number in () if isinstance(defense.filter, KeepAll) else (1, 2):
        defense(crowd.updates(range(m), number), global_model=zeros)
    updates = crowd.updates(range(m), 3)
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
    """Yield a row from time to time."""
    population = 1000 if small else 100_000
    for m, rounds, every in ((20, 20, 2),) if small else ((100, 1000, 100), (1000, 30, 5)):
        d = 50 if small else 1000
        crowd, defense = Crowd(d), Defense(Guard(), seed=0)
        rng, spent, known = np.random.default_rng(5), list[float](), list[float]()
        for number in range(1, rounds + 1):
            chosen = rng.choice(population, m, replace=False).tolist()
            updates = crowd.updates(chosen, number)
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
    """Yield what the default filter finds if clients start from old models. Four of 20 clients flip their steps."""
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
    """Yield one round of many clients, and the product of its updates with each other."""
    d = 100 if small else 100_000
    for m in (20, 40) if small else (1000, 2000, 4000, 10_000):
        if m <= MOST["multi-krum"]:
            updates = Crowd(d).updates(range(m), 3)
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
    """A model of any size that takes little memory: a few pieces of random numbers, over and over."""

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
        raise TypeError("what a client has sent is not changed")


def stream(small: bool) -> Iterator[Measured]:
    """Yield rounds of ten models that would not fit into memory. Two of the clients send the opposite step."""
    size, m = 3_000_000 if small else 1_000_000_000, 10
    models = [RepeatedModel(size, client, -1.0 if client < 2 else 1.0) for client in range(m)]
    held = sum(model._pieces.nbytes for model in models) / 1e6  # what this benchmark itself keeps in memory
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
    """Return the clients of which `Guard` remembers something."""
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
    """Read a table that `write_rows` wrote."""
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
    """Draw time and memory against m, d and rounds."""
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "flanders"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(10, 5.5), layout="constrained")
    for column, part in enumerate(("clients", "parameters")):
        for subject in SUBJECTS:
            some = [row for row in rows if row.part == part and row.subject == subject]
            x = [getattr(row, part) for row in some]
            axes[0, column].loglog(x, [row.seconds or 1e-3 for row in some], "o-", ms=3, label=subject)
            axes[1, column].loglog(x, [row.megabytes or 1e-3 for row in some], "o-", ms=3)
    for m in sorted({row.clients for row in rows if row.part == "ids"}):
        some = [row for row in rows if row.part == "ids" and row.clients == m]
        x = [100 * row.round / some[-1].round for row in some]
        axes[0, 2].plot(x, [row.seconds for row in some], "o-", ms=3, label=f"m = {m}")
        axes[1, 2].plot(x, [row.remembered for row in some], "o-", ms=3)
    axes[0, 2].set(ylim=(0, None), yscale="linear")
    for axis, title in zip(axes[0], ("10,000 parameters", "20 clients", "100,000 ids"), strict=True):
        axis.set_title(title)
    for axis, label in zip(axes[1], ("clients m", "parameters d", "rounds, in percent"), strict=True):
        axis.set_xlabel(label)
    axes[0, 0].set_ylabel("CPU seconds a round")
    axes[1, 0].set_ylabel("MB beyond the updates")
    axes[1, 2].set_ylabel("MB remembered")
    axes[0, 0].legend(fontsize=7)
    axes[0, 2].legend(fontsize=7)
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
