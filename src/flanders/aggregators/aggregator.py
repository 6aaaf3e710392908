"""The base classes of aggregators and pre-aggregators, and checks that all aggregators share.

The class `Chain` puts a pre-aggregator in front of an aggregator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, all_finite, copied
from flanders.checks import InputError, resolve_count
from flanders.linalg.products import mean, usable_rows
from flanders.round import Round

M = TypeVar("M")


class Aggregator(ABC):
    """Turns the models of a round into one model.

    A new aggregator is a frozen dataclass with the method `aggregate`, and an entry in `flanders.catalog`. An
    aggregator that remembers earlier rounds derives from `Remembering`.
    """

    @property
    def needs_root(self) -> bool:
        """Whether the aggregator needs an update that the server has trained on its own examples (`Round.root`)."""
        return False

    @property
    def shows_bad_rows(self) -> bool:
        """Whether NaN or infinity in a row with a weight above zero always makes the result NaN or infinite."""
        return False

    @property
    def checks_products(self) -> bool:
        """Whether `aggregate` calls `check_products`, so that the rows and the result need no other check."""
        return False

    @abstractmethod
    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the new global model, `(d,)`, as the same kind of array as the updates."""

    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, object]:
        """Return the new global model and the memory for the next round. `memory` is None in the first round."""
        return self.aggregate(round_, rng), memory

    def __call__(
        self,
        updates: Array,
        weights: FloatVector | None = None,
        *,
        global_model: Array | None = None,
        root: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> Array:
        """Aggregate an `(m, d)` array without a filter; see `Round` for the arguments. All rows must be finite."""
        shown = self.checks_products or self.shows_bad_rows
        round_ = Round(updates, weights=weights, global_model=global_model, root=root, check_later=shown)
        # Checking all rows takes time, and on a GPU the host waits for each check. Float32 rows need no check
        # before the aggregation if their products are checked, or if NaN and infinity show in the result: their
        # squares never overflow in float64. The rows and the global model are checked only if the products or the
        # result are not finite, to say what is wrong.
        check_later = shown and is_single(updates) and bool(round_.weights.all())
        if not check_later:
            if shown:
                round_.check_global_model()
            check_rows(self, round_)
        with np.errstate(over="ignore", invalid="ignore") if check_later else nullcontext():
            model = self.aggregate(round_, np.random.default_rng() if rng is None else rng)
        if check_later and not self.checks_products and not all_finite(model, round_.global_model):
            check_inputs(self, round_)
        return model


class Remembering(Aggregator):
    """An aggregator with a memory of earlier rounds. A subclass defines only `step`.

    A `Defense` stores the memory between rounds. `aggregate` has no memory: it treats each round as the first one.
    A direct call of the aggregator does the same.
    """

    @abstractmethod
    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, object]:
        """Return the new global model and the memory for the next round. `save_state` can save this memory."""

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the new global model, as if this were the first round."""
        return self.step(None, round_, rng)[0]


class PreAggregator(ABC):
    """Prepares the models of a round for an aggregator. `Nnm(2) | Krum(2)` applies `Nnm`, then `Krum`."""

    @property
    def checks_products(self) -> bool:
        """Whether `prepare` calls `check_products`, so that the rows need no check of their own."""
        return False

    @abstractmethod
    def prepare(self, round_: Round, rng: np.random.Generator) -> Round:
        """Return the round with new rows. The number of rows may change."""

    def __or__(self, then: Aggregator) -> Aggregator:
        return Chain(self, then) if isinstance(then, Aggregator) else NotImplemented

    def __call__(
        self,
        updates: Array,
        weights: FloatVector | None = None,
        *,
        global_model: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> Array:
        """Return the new rows for an `(m, d)` array, without a filter. All rows must be finite."""
        shown = self.checks_products
        round_ = Round(updates, weights=weights, global_model=global_model, check_later=shown)
        check_later = shown and is_single(updates)
        if not check_later:
            if shown:
                round_.check_global_model()
            check_rows(self, round_)
        with np.errstate(over="ignore", invalid="ignore") if check_later else nullcontext():
            prepared = self.prepare(round_, np.random.default_rng() if rng is None else rng)
        return copied(updates) if prepared is round_ else prepared.updates


@dataclass(frozen=True)
class Chain(Aggregator):
    """A pre-aggregator in front of an aggregator. The aggregator may be another chain."""

    first: PreAggregator
    then: Aggregator

    @property
    def needs_root(self) -> bool:
        """Whether the aggregator needs the server's own update."""
        return self.then.needs_root

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the result of the aggregator for the prepared round."""
        return self.then.aggregate(self.first.prepare(round_, rng), rng)

    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, object]:
        """Return the result of the aggregator for the prepared round, and the new memory of the aggregator."""
        return self.then.step(memory, self.first.prepare(round_, rng), rng)


def is_single(updates: Array) -> bool:
    """Whether the updates are float32."""
    return bool(updates.dtype == array_api_compat.array_namespace(updates).float32)


def check_inputs(caller: Aggregator | PreAggregator, round_: Round) -> None:
    """Raise an error if the global model is not finite, or if the rows fail `check_rows`."""
    round_.check_global_model()
    check_rows(caller, round_)


def check_rows(caller: Aggregator | PreAggregator, round_: Round) -> None:
    """Raise an error if a row has numbers that are not finite, or whose squares overflow in float64."""
    bad = np.flatnonzero(~usable_rows(round_.updates))
    if bad.size:
        raise InputError(
            f"{type(caller).__name__} needs finite rows whose squares do not overflow. These rows cannot be used: "
            f"{', '.join(map(str, bad))}. Leave them out, or let Defense aggregate the round: it drops them."
        )


def check_products(caller: Aggregator | PreAggregator, round_: Round, products: FloatMatrix) -> None:
    """Raise an error if inner products or distances of the rows are not finite because of the round itself.

    The products or distances must be those of the differences from the global model. The distance of a single row
    from itself shows nothing.
    """
    if len(products) == 1 or not np.isfinite(products).all():
        check_inputs(caller, round_)


def check_model(aggregator: Aggregator, model: object, round_: Round) -> None:
    """Raise an error unless an aggregator has returned a model of the right shape, with finite numbers."""
    d = round_.updates.shape[1]
    got = tuple(getattr(model, "shape", ())) if array_api_compat.is_array_api_obj(model) else type(model).__name__
    if got != (d,):
        raise InputError(
            f"{type(aggregator).__name__} must return one model, an array of shape ({d},). Got {got} instead."
        )
    if not all_finite(model):
        raise FloatingPointError(f"{type(aggregator).__name__} returned a model that is not finite")


def mean_of(round_: Round, rows: IntVector, *, weighted: bool) -> Array:
    """Return the mean of some rows. Without `weighted`, or if all weights are zero, all rows count the same."""
    chosen = np.zeros(round_.updates.shape[0])
    chosen[rows] = round_.weights[rows] if weighted and round_.weights[rows].any() else 1.0
    return mean(round_.updates, chosen)


def check_minority(caller: str, num_malicious: float, m: int) -> int:
    """Return the number b of malicious clients. Raise an error if b is at least half of the m clients."""
    b = resolve_count(num_malicious, m)
    if 2 * b >= m:
        raise InputError(
            f"{caller}(num_malicious={num_malicious}) needs more than {2 * b} updates, got {m}. "
            f"Lower `num_malicious` to at most {(m - 1) // 2}, or let the filter keep more clients."
        )
    return b


def recalled(caller: Aggregator, memory: object, kind: type[M]) -> M:
    """Return `memory`, which must be of the type `kind`. If it is None, return an empty memory."""
    if memory is None:
        return kind()
    if not isinstance(memory, kind):
        raise InputError(
            f"{type(caller).__name__} needs the {kind.__name__} that its `step` returned in the round before. "
            f"Got {type(memory).__name__} instead. Pass None in the first round."
        )
    return memory


def check_root(caller: str, round_: Round) -> None:
    """Raise an error if a round does not have the server's own update (`Round.root`)."""
    if round_.root is None:
        raise InputError(
            f"{caller} needs the server's own update (`root`), and this round has none. "
            "Train the global model on the server's own examples and pass `root=trained - global_model`."
        )
