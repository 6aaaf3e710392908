"""The replies of a round as NVFLARE hands them over, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import array_api_compat
import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from flanders.arrays import Array, to_numpy
from flanders.hosts.claims import capped_at_median, check_weight, is_finite_number, short
from flanders.hosts.model_arrays import BadReply, HostArrays, Numbers, Vector, is_buffer
from flanders.hosts.unscored import far_clients, largest_difference
from flanders.record import ClientRecord, Fate
from flanders.round import ClientId, by_name

NO_NAME = "unknown"
"""What a reply is called whose sender NVFLARE does not name."""


@dataclass(frozen=True, eq=False)
class UsableReply:
    """A reply that has passed all checks."""

    row: Vector
    """The model that the client sent, as one vector of the arrays that filters see."""
    unscored: Mapping[str, Numbers]
    """The other arrays of that model."""
    weight: float
    metrics: Mapping[str, float]


class StartModel:
    """The global model that a round starts from.

    Parameters
    ----------
    params
        The arrays by name, of NumPy or PyTorch.
    """

    def __init__(self, params: Mapping[str, Array]) -> None:
        self.params = params
        self.numbers = {name: numbers_of(name, value) for name, value in params.items()}
        self.arrays = HostArrays.of(self.numbers, is_buffer)
        self.float_type = self.arrays.float_type(self.numbers)
        self.row = self.arrays.flatten(self.numbers, self.float_type)

    def read(self, reply: FLModel, max_steps: float | None) -> UsableReply:
        """Return what a client sent, or raise `BadReply` if it cannot be used.

        A reply may hold a whole model or its difference from the global model. Both are turned into a model.
        """
        params = reply.params
        if not isinstance(params, Mapping):
            raise BadReply(f"its params are a {type(params).__name__} instead of arrays by name")
        if not all(isinstance(name, str) for name in params):
            raise BadReply("its params have names that are not strings")
        if difference := self.arrays.difference_of_names(params):
            raise BadReply(f"arrays with other names: {difference}")
        row = np.empty(self.arrays.size, dtype=self.float_type)
        unscored = {}
        with np.errstate(over="ignore"):
            for place in self.arrays.arrays:
                numbers = place.check(numbers_of(place.name, params[place.name]))
                if reply.params_type == ParamsType.DIFF:
                    numbers = place.check(np.asarray(np.add(self.numbers[place.name], numbers)))
                if place.scored:
                    row[place.columns] = numbers.ravel()
                else:
                    place.check_variance(numbers, self.numbers[place.name])
                    unscored[place.name] = numbers
        if not np.isfinite(row).all():
            raise BadReply("a number is too large")
        steps = meta_of(reply).get(FLMetaKey.NUM_STEPS_CURRENT_ROUND)
        name = f"meta {FLMetaKey.NUM_STEPS_CURRENT_ROUND!r}"
        weight = 1.0 if steps is None else check_weight(name, plain_value(steps), max_steps)
        return UsableReply(row, unscored, weight, usable_metrics(reply.metrics))

    def params_of(self, row: Vector, unscored: Mapping[str, Numbers]) -> dict[str, Array]:
        """Return a flat model as arrays by name, of the same library and types as the global model."""
        found = {**self.numbers, **self.arrays.cut(row, self.numbers), **unscored}
        return {name: as_given(found[name], value) for name, value in self.params.items()}


@dataclass
class ReceivedReplies:
    """The replies of a round so far."""

    usable: dict[ClientId, UsableReply] = field(default_factory=dict)
    refused: dict[ClientId, ClientRecord] = field(default_factory=dict)

    def add(self, client: ClientId, reply: FLModel, start: StartModel, max_steps: float | None) -> bool:
        """Check a reply and keep it if it can be used. Return whether it can."""
        try:
            if client in self.usable or client in self.refused:
                raise BadReply("more than one reply")
            self.usable[client] = start.read(reply, max_steps)
        except BadReply as why:
            self.usable.pop(client, None)
            self.refused[client] = ClientRecord(client, Fate.REFUSED, reason=short(str(why)))
            return False
        return True

    def refuse_far(self, start: StartModel) -> None:
        """Refuse replies with arrays that the filter does not see, if these are far off."""
        unseen = [place for place in start.arrays.arrays if not place.scored]
        away = {
            client: [largest_difference(reply.unscored[place.name], start.numbers[place.name]) for place in unseen]
            for client, reply in self.usable.items()
        }
        for client, why in far_clients(unseen, start.numbers, away).items():
            del self.usable[client]
            self.refused[client] = ClientRecord(client, Fate.REFUSED, reason=short(why))

    def cap_weights(self, times_median: float | None) -> None:
        """Let no client count for more than this many times the median of the round."""
        weights = capped_at_median([reply.weight for reply in self.usable.values()], times_median)
        pairs = zip(self.usable.items(), weights, strict=True)
        self.usable = {client: replace(reply, weight=weight) for (client, reply), weight in pairs}

    def sort(self) -> None:
        """Sort the replies by client, so that sums do not depend on the order of arrival."""
        names = list(self.usable)
        self.usable = {names[i]: self.usable[names[i]] for i in by_name(names)}


def numbers_of(name: str, value: Array) -> Numbers:
    """Return an array of NumPy or PyTorch, or one that NVFLARE has left on disk, as an array of NumPy."""
    try:
        load = getattr(value, "materialize", None)
        value = load() if callable(load) else value
        if array_api_compat.is_torch_array(value):
            whole = "bfloat16" in str(value.dtype)  # NumPy does not have this type
            return to_numpy(value.float() if whole else value)
    except Exception as error:  # a client may send anything, so that any error is possible
        raise BadReply(f"array {name!r} is not readable ({type(error).__name__})") from error
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise BadReply(f"array {name!r} is a {type(value).__name__}")
    return np.asarray(value)  # an array that hides some of its numbers shows all of them here


def meta_of(reply: FLModel) -> Mapping[str, object]:
    """Return what a reply says besides its arrays; nothing if that is no table."""
    return reply.meta if isinstance(reply.meta, Mapping) else {}


def client_of(name: object) -> ClientId:
    """Return a name that NVFLARE gives for a client, if it is one."""
    return name if isinstance(name, str) and name else NO_NAME


def as_given(numbers: Numbers, value: Array) -> Array:
    """Return an array of NumPy as an array of the library, type and device of `value`."""
    if array_api_compat.is_torch_array(value):
        xp = array_api_compat.array_namespace(value)
        return xp.asarray(np.ascontiguousarray(numbers)).to(dtype=value.dtype, device=value.device)
    return numbers


def plain_value(value: object) -> object:
    """Return a number of NumPy as a number of Python. Any other value is returned as it is."""
    return value.item() if isinstance(value, np.generic) else value


def usable_metrics(metrics: object) -> dict[str, float]:
    """Return the metrics of a reply that are finite numbers."""
    found = metrics.items() if isinstance(metrics, dict) else ()
    numbers = {name: plain_value(value) for name, value in found if isinstance(name, str)}
    return {name: float(n) for name, n in numbers.items() if isinstance(n, int | float) and is_finite_number(n)}


def mean_metrics(replies: list[UsableReply]) -> dict[str, float] | None:
    """Return the weighted means of the metrics that all these replies have; None if there are none."""
    if not replies:
        return None
    names = [name for name in replies[0].metrics if all(name in reply.metrics for reply in replies)]
    weights = np.array([reply.weight for reply in replies])
    share = weights / weights.sum()
    means = {name: float(share @ np.array([reply.metrics[name] for reply in replies])) for name in names}
    return means or None
