"""The base class `Partition`, and two simple partitions.

A partition divides the training examples of a dataset among clients. `Iid` divides them at random. `Shards` sorts
them by class, cuts them into blocks, and gives each client a few blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from flanders.arrays import IntVector
from flanders.checks import InputError, check_number


class Partition(ABC):
    """The base class of all partitions. A partition decides which client gets which training examples.

    Every client gets at least one example, and no example goes to two clients. To add a partition, write a frozen
    dataclass with the method `assign`, and add one line to `PARTITIONS`.
    """

    def split(self, labels: ArrayLike, num_clients: int, rng: np.random.Generator) -> list[IntVector]:
        """Return, for each client, the row numbers of its examples, in random order.

        Parameters
        ----------
        labels
            The classes of the examples, `(n,)` whole numbers.
        num_clients
            How many clients there are, at most n.
        rng
            The random generator. A generator in the same state gives the same result.
        """
        name = type(self).__name__
        check_number(name, "num_clients", num_clients, 1, whole=True)
        classes = np.asarray(labels)
        if classes.ndim != 1 or classes.dtype.kind not in "iu":
            raise InputError(
                f"{name}.split needs the classes of the examples, (n,) whole numbers, "
                f"got {classes.dtype} of shape {classes.shape}."
            )
        if classes.size < num_clients:
            raise InputError(
                f"{name}.split needs an example for each of {num_clients} clients. There are only {classes.size}. "
                "Use fewer clients (`num_clients`, or federation.num_clients in a spec), or a larger dataset."
            )
        order = rng.permutation(classes.size)
        _, numbered = np.unique(classes[order], return_inverse=True)
        owners = self.assign(numbered.astype(np.int64), num_clients, rng)
        # `assign` may leave the examples of a client sorted by class, so shuffle again.
        mixed = rng.permutation(classes.size)
        return rows_of_owners(order[mixed], owners[mixed], num_clients)

    @abstractmethod
    def assign(self, labels: IntVector, num_clients: int, rng: np.random.Generator) -> IntVector:
        """Return the client of each example, or -1 if no client gets the example.

        `labels` has the classes of the examples. The examples are in random order. The classes are numbered from 0
        without gaps.
        """


@dataclass(frozen=True)
class Iid(Partition):
    """Divide the examples at random. The numbers of examples of the clients differ by at most one.

    Examples
    --------
    >>> [rows.size for rows in Iid().split([0, 1] * 5, 3, np.random.default_rng(0))]
    [4, 3, 3]
    """

    def assign(self, labels: IntVector, num_clients: int, rng: np.random.Generator) -> IntVector:
        """Give the examples to the clients in turn. The examples are in random order already."""
        return np.arange(labels.size, dtype=np.int64) % num_clients


@dataclass(frozen=True)
class Shards(Partition):
    """Sort the examples by class, cut them into equal shards, and give each client `shards_per_client` shards.

    The shards of a client are drawn at random. With two shards per client, most clients have examples of two
    classes.

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017.
    """

    shards_per_client: int = 2

    def __post_init__(self) -> None:
        check_number("Shards", "shards_per_client", self.shards_per_client, 1, whole=True)

    def assign(self, labels: IntVector, num_clients: int, rng: np.random.Generator) -> IntVector:
        """Give random shards to the clients. The sizes of the shards differ by at most one."""
        n, count = labels.size, num_clients * self.shards_per_client
        if n < count:
            raise InputError(
                f"Shards(shards_per_client={self.shards_per_client}) needs {count} examples for {num_clients} "
                f"clients, got {n}. Lower `shards_per_client` to at most {n // num_clients}."
            )
        owner_of_shard = rng.permutation(count) % num_clients
        owners = np.empty(n, dtype=np.int64)
        owners[np.argsort(labels, kind="stable")] = owner_of_shard[np.arange(n) * count // n]
        return owners


def natural_rows(owners: IntVector, num_clients: int, rng: np.random.Generator) -> list[IntVector]:
    """Return the row numbers of each client, in random order, for a dataset with `owners`.

    `owners` has the client that each example belongs to. So no partition is needed.
    """
    num_owners = int(owners.max()) + 1
    sizes = np.bincount(owners, minlength=num_clients)
    if num_owners != num_clients:
        raise InputError(
            f"The data belong to {num_owners} clients, but `num_clients` is {num_clients}. "
            f"Set Federation(num_clients={num_owners}), or federation.num_clients in a spec."
        )
    if not sizes.all():
        raise InputError(
            f"Client {int(np.argmin(sizes))} has no example left, since the server holds all of its examples. "
            "Lower `server.examples`."
        )
    order = rng.permutation(owners.size)
    return rows_of_owners(order, owners[order], num_clients)


def rows_of_owners(order: IntVector, owners: IntVector, num_clients: int) -> list[IntVector]:
    """Return the row numbers of each client. `order` has the row numbers of all clients, and its order is kept.

    `owners` has the client of each row in `order`, or -1 for a row that no client gets.
    """
    sizes = np.bincount(owners[owners >= 0], minlength=num_clients)
    grouped = order[np.argsort(owners, kind="stable")][order.size - sizes.sum() :]
    return np.split(grouped, np.cumsum(sizes)[:-1])
