"""Two partitions in which each client draws its mix of classes from a Dirichlet distribution.

A partition divides the training examples among clients. A mix of classes is a vector with the share of each class.
With `Dirichlet`, clients have different numbers of examples, as in the FLANDERS paper. With `DirichletEqual`, all
clients have the same number of examples, as in the code published with the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import FloatVector, IntVector
from flanders.checks import InputError, check_number
from flanders.data.dataset import rows_by_class
from flanders.data.partition import Partition


@dataclass(frozen=True)
class Dirichlet(Partition):
    r"""Give each client its own mix of classes, and split all examples of each class accordingly.

    Client c draws its mix :math:`q_c \sim \text{Dir}(\alpha p)`, where p has the share of each class in the data.
    Let :math:`q_{ck}` be the share of class k in this mix. The client gets the share
    :math:`q_{ck} / \sum_j q_{jk}` of all examples of class k, where j runs over all clients. All examples are given
    away, so clients have different numbers of examples. A client with fewer than `min_samples` examples gets random
    examples of the largest clients.

    A Dirichlet distribution has one parameter for each class. Here `alpha` is the sum of these parameters, as in
    the reference below and in the FLANDERS paper. In `DirichletEqual`, in the code of the FLANDERS paper, and in
    much other code, alpha is the parameter of each single class. With 10 classes of equal size, an alpha of 0.5 in
    that sense is the same as `alpha=5` here.

    References
    ----------
    Hsu et al., "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019.
    """

    alpha: float = 0.5
    min_samples: int = 1

    def __post_init__(self) -> None:
        check_number("Dirichlet", "alpha", self.alpha, 1e-6, 1e9)
        check_number("Dirichlet", "min_samples", self.min_samples, 1, whole=True)

    def assign(self, labels: IntVector, num_clients: int, rng: np.random.Generator) -> IntVector:
        """Divide the examples of each class in proportion to the clients' shares of this class."""
        if labels.size < num_clients * self.min_samples:
            raise InputError(
                f"Dirichlet(min_samples={self.min_samples}) needs {num_clients * self.min_samples} examples for "
                f"{num_clients} clients, got {labels.size}. Lower `min_samples` to at most "
                f"{labels.size // num_clients}."
            )
        p = np.bincount(labels) / labels.size
        q = draw_mixes(self.alpha * p, num_clients, rng)
        owners = np.empty(labels.size, dtype=np.int64)
        for k, rows in enumerate(rows_by_class(labels)):
            total = q[:, k].sum()
            shares = q[:, k] / total if total > 0 else np.full(num_clients, 1 / num_clients)
            cuts = np.rint(np.cumsum(shares) * rows.size)[:-1]
            owners[rows] = np.searchsorted(cuts, np.arange(rows.size), side="right")
        return fill_small_clients(owners, num_clients, self.min_samples)


@dataclass(frozen=True)
class DirichletEqual(Partition):
    r"""Give each client its own mix of classes and the same number of examples, as the FLANDERS paper's code does.

    The clients take examples one after the other. Each client draws a mix of classes
    :math:`q \sim \text{Dir}(\alpha, \ldots, \alpha)`. Then it takes `samples_per_client` examples, whose classes
    are drawn from q. No example is taken twice. Once a class has no examples left, the remaining clients draw from
    the other classes. Examples that no client has taken are not used.

    By default, `samples_per_client` is the number of examples divided by the number of clients, e.g. 600 for MNIST
    with 100 clients.

    References
    ----------
    Hsu et al., "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019.
    """

    alpha: float = 0.5
    samples_per_client: int | None = None

    def __post_init__(self) -> None:
        check_number("DirichletEqual", "alpha", self.alpha, 1e-6, 1e9)
        check_number("DirichletEqual", "samples_per_client", self.samples_per_client, 1, whole=True, optional=True)

    def assign(self, labels: IntVector, num_clients: int, rng: np.random.Generator) -> IntVector:
        """Draw how many examples of each class each client gets, and give them to the clients."""
        size = labels.size // num_clients if self.samples_per_client is None else self.samples_per_client
        if size * num_clients > labels.size:
            raise InputError(
                f"DirichletEqual(samples_per_client={size}) needs {size * num_clients} examples for {num_clients} "
                f"clients, got {labels.size}. Lower `samples_per_client` to at most {labels.size // num_clients}."
            )
        left = np.bincount(labels)
        q = draw_mixes(np.full(left.size, float(self.alpha)), num_clients, rng)
        counts = rng.multinomial(size, q)
        for mix, taken in zip(q, counts, strict=True):
            limit_to_available(left, mix, taken, rng)
            left -= taken
        owners = np.full(labels.size, -1, dtype=np.int64)
        for k, rows in enumerate(rows_by_class(labels)):
            given = np.repeat(np.arange(num_clients), counts[:, k])
            owners[rows[: given.size]] = given
        return owners


def draw_mixes(concentration: FloatVector, count: int, rng: np.random.Generator) -> FloatVector:
    """Draw `count` vectors from a Dirichlet distribution with the parameters `concentration`.

    If these parameters are very small, NumPy may return rows of zeros or NaN. Such a row is replaced by a mix with
    a single class, drawn at random, because with very small parameters nearly all mixes have a single class.
    """
    q = np.nan_to_num(rng.dirichlet(concentration, size=count), nan=0.0)
    only = rng.choice(concentration.size, size=count, p=concentration / concentration.sum())
    failed = ~(q.sum(axis=1) > 0.5)  # a valid row adds up to 1
    q[failed] = np.eye(concentration.size)[only[failed]]
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def limit_to_available(left: IntVector, mix: FloatVector, taken: IntVector, rng: np.random.Generator) -> None:
    """Change `taken`, in place, so that a client takes no more examples of a class than are `left` of this class.

    `taken` has the number of examples of each class that the client takes. The examples that a class lacks are
    drawn from the other classes instead, with the probabilities in `mix`. Each such draw either finds enough
    examples or uses up another class. So the loop ends after at most as many draws as there are classes.
    """
    while (taken > left).any():
        lacking = int(np.maximum(taken - left, 0).sum())
        np.minimum(taken, left, out=taken)
        available = taken < left
        weights = np.where(available, mix, 0.0)
        if not weights.sum() > 0:
            weights = np.where(available, left, 0).astype(np.float64)
        taken += rng.multinomial(lacking, weights / weights.sum())


def fill_small_clients(owners: IntVector, num_clients: int, least: int) -> IntVector:
    """Return new owners of the examples, such that every client has at least `least` examples.

    Clients with fewer examples get some from the largest clients. For this, the examples of each client are
    numbered from 0. The examples with the highest numbers are given away, since only large clients have them.
    """
    sizes = np.bincount(owners, minlength=num_clients)
    missing = np.maximum(least - sizes, 0)
    if not missing.any():
        return owners
    grouped = np.argsort(owners, kind="stable")
    number = np.empty_like(owners)
    number[grouped] = np.arange(owners.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    given_away = np.argsort(-number, kind="stable")[: missing.sum()]
    filled = owners.copy()
    filled[given_away] = np.repeat(np.arange(num_clients), missing)
    return filled
