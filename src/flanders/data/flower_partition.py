"""The partition `flower`, which uses the optional package Flower Datasets.

A *partitioner* is a class of Flower Datasets that divides a dataset into parts. Here each client gets one part.
Flower Datasets calls such a part a partition. In this package, a partition is what divides the dataset.
"""

from __future__ import annotations

import inspect
import tomllib
from dataclasses import dataclass
from typing import Any

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import InputError, did_you_mean
from flanders.data.partition import Partition
from flanders.extras import MissingExtra

ROW, LABEL = "row", "label"
"""The columns of the table that a partitioner divides: the row numbers of the examples, and their classes."""
FILLED_IN = ("num_partitions", "partition_by", "seed")
"""The parameters of partitioners that the user cannot set. Their values are, in this order, the number of clients,
the column of the classes, and a seed."""
UNFIT = {
    "DistributionPartitioner": "needs an array",
    "IdToSizeFncPartitioner": "needs a function",
    "VerticalEvenPartitioner": "divides columns, not examples",
    "VerticalSizePartitioner": "divides columns, not examples",
}
"""The partitioners that cannot be used here, and the reason for each of them. Options are text in a spec, so they
cannot hold an array or a function."""


@dataclass(frozen=True)
class FlowerPartition(Partition):
    """Use a partitioner of Flower Datasets (`pip install "flanders-fl[download]"`).

    The partitioner sees only the number of examples and their classes. It must make as many parts as there are
    clients. The examples are shuffled before the partitioner divides them. So the parts depend on the seed of the
    run, even if the partitioner has no seed. The division takes about a millisecond per client.

    Parameters
    ----------
    partitioner
        The name of a class in `flwr_datasets.partitioner`.
    options
        The parameters of this class, written like a TOML inline table without the braces. If a spec (the TOML file
        that describes runs) has a list of such strings, there are runs for each string. The parameters in
        `FILLED_IN` cannot be given here.

    Examples
    --------
    >>> FlowerPartition("PathologicalPartitioner", "num_classes_per_partition = 2")
    FlowerPartition(partitioner='PathologicalPartitioner', options='num_classes_per_partition = 2')
    >>> FlowerPartition("SizePartitioner", "partition_sizes = [10, 20, 30]").options
    'partition_sizes = [10, 20, 30]'
    """

    partitioner: str
    options: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.partitioner, str):
            raise InputError(
                "The `partitioner` parameter of FlowerPartition must be the name of a class in "
                f"flwr_datasets.partitioner. Got {self.partitioner!r} instead."
            )
        for name in read_options(self.options):
            if name in FILLED_IN:
                raise InputError(
                    f"The `options` of FlowerPartition cannot set {name}: the number of clients, the classes and "
                    "the seed of the run are filled in. Leave it out."
                )

    def assign(self, labels: IntVector, num_clients: int, rng: np.random.Generator) -> IntVector:
        """Give the classes to the partitioner, and return the client of each row."""
        kind, dataset = find_partitioner(self.partitioner)
        filled = dict(zip(FILLED_IN, (num_clients, LABEL, int(rng.integers(2**31))), strict=True))
        arguments = self._arguments(inspect.signature(kind).parameters, filled)
        try:
            partitioner = kind(**arguments)
            partitioner.dataset = dataset.from_dict({ROW: np.arange(labels.size), LABEL: labels})
            parts = [partitioner.load_partition(i) for i in range(partitioner.num_partitions)]
            rows = [np.array(part[ROW][:], dtype=np.int64) for part in parts]
        except Exception as error:  # each partitioner has its own kinds of error
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            raise InputError(
                f"{self} cannot divide {labels.size} examples of {np.unique(labels).size} classes among "
                f"{num_clients} clients ({reason})."
            ) from error
        return self._owners(rows, labels.size, num_clients)

    def _arguments(self, known: Any, filled: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments for the partitioner: the options, and those in `filled` that it accepts."""
        options = read_options(self.options)
        settable = [name for name in known if name not in FILLED_IN]
        has = f"It has: {', '.join(settable)}." if settable else "It has none."
        for name in options:
            if name not in settable:
                raise InputError(f"{self.partitioner} has no option {name!r}.{did_you_mean(name, settable)} {has}")
        missing = [n for n in settable if known[n].default is inspect.Parameter.empty and n not in options]
        if missing:
            raise InputError(
                f"{self.partitioner} needs a value for {', '.join(missing)}. "
                f'Give it in the options, e.g. options = "{missing[0]} = ...". {has}'
            )
        return options | {name: value for name, value in filled.items() if name in known}

    def _owners(self, rows: list[IntVector], n: int, num_clients: int) -> IntVector:
        """Return the client of each example, or -1 if no client gets the example.

        `rows` has the row numbers of each client. Raise an error if a client has no example, or if an example has
        several clients.
        """
        if len(rows) != num_clients:
            raise InputError(
                f"{self} divides these data into {len(rows)} parts, but there are {num_clients} clients. "
                "There must be one part for each client. Change the options, or the number of clients."
            )
        empty = [str(client) for client, own in enumerate(rows) if own.size == 0]
        if empty:
            raise InputError(
                f"{self} leaves {len(empty)} of {num_clients} clients without examples ({', '.join(empty[:5])}"
                f"{', ...' if len(empty) > 5 else ''}). Change the options, or lower the number of clients."
            )
        taken = np.concatenate(rows)
        if np.unique(taken).size < taken.size:
            raise InputError(f"{self} gives the same example to several clients. Choose another partitioner.")
        owners = np.full(n, -1, dtype=np.int64)
        owners[taken] = np.repeat(np.arange(num_clients), [own.size for own in rows])
        return owners


def read_options(text: object) -> dict[str, Any]:
    """Return the values of a TOML inline table that is written without its braces."""
    problem = "is not a string"
    if isinstance(text, str):
        try:
            return dict(tomllib.loads(f"options = {{ {text} }}")["options"])
        except tomllib.TOMLDecodeError as error:
            problem = str(error)
    raise InputError(
        "The `options` parameter of FlowerPartition must be a string as in "
        '"alpha = 0.5, self_balancing = true", with single quotes around values that are text. '
        f"Got {text!r} ({problem})."
    )


def find_partitioner(name: str) -> tuple[Any, Any]:
    """Return the class of the partitioner, and the class of the tables that it divides, `datasets.Dataset`."""
    try:
        from datasets import Dataset
        from flwr_datasets import partitioner
    except ImportError as error:
        raise MissingExtra(
            f"The partition 'flower' needs Flower Datasets, which cannot be imported ({error}): "
            'pip install "flanders-fl[download]".'
        ) from error
    known = {
        key: kind
        for key, kind in vars(partitioner).items()
        if key not in UNFIT and inspect.isclass(kind) and issubclass(kind, partitioner.Partitioner)
        if not inspect.isabstract(kind)
    }
    if name in UNFIT:
        raise InputError(f"{name} {UNFIT[name]}, so it cannot be used here. Known: {', '.join(known)}.")
    if name not in known:
        raise InputError(
            f"Flower Datasets has no partitioner {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}."
        )
    return known[name], Dataset
