"""The replies of clients that NVFLARE passes to `FilteredAggregator`, and their checks.

An array of a model is *scored* if the filter looks at it. Integers and the buffers of batch normalisation are not
scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import array_api_compat
import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from flanders.arrays import Array, FloatVector, to_numpy
from flanders.client_ids import ClientId, by_name
from flanders.hosts.claimed_weights import capped_at_median, check_weight, is_finite_number, short
from flanders.hosts.model_arrays import BadReply, HostArrays, Numbers, Vector, is_buffer
from flanders.hosts.unscored import far_clients, largest_difference
from flanders.record import ClientRecord, Fate

FAR = 3.0
"""A metric is moved if it is this many widths of the middle half away from the middle half. If metrics are normally
distributed, one in 400,000 is so far away."""
NO_NAME = "unknown"
"""The client id of a reply without the name of a client."""


@dataclass(frozen=True, eq=False)
class UsableReply:
    """A reply that has passed all checks."""

    row: Vector
    """The scored arrays of the client's model, as one vector."""
    unscored: Mapping[str, Numbers]
    """The other arrays of the client's model, by name."""
    weight: float
    """The number of training steps that the client reports; 1 if it does not report this number."""
    metrics: Mapping[str, float]
    """The metrics that are finite numbers."""


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
        """The same arrays, as arrays of NumPy."""
        self.arrays = HostArrays.of(self.numbers, is_buffer)
        self.float_type = self.arrays.float_type(self.numbers)
        self.row = self.arrays.flatten(self.numbers, self.float_type)

    def read(self, reply: FLModel, max_steps: float | None) -> UsableReply:
        """Return the checked reply of a client. Raise `BadReply` if it cannot be used.

        A reply holds a whole model, or the difference from the global model. A difference is turned into a model.
        `max_steps` is the most training steps that a client may report; see `check_weight`.
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
        """Return a model as arrays by name, of the same library and types as the global model.

        `row` has the scored arrays of the model, and `unscored` has its other arrays. An array that is missing in
        `unscored` is taken from the global model.
        """
        numbers = {**self.numbers, **self.arrays.cut(row, self.numbers), **unscored}
        return {name: as_given(numbers[name], value) for name, value in self.params.items()}


@dataclass
class ReceivedReplies:
    """The replies of a round so far, by client."""

    usable: dict[ClientId, UsableReply] = field(default_factory=dict)
    refused: dict[ClientId, ClientRecord] = field(default_factory=dict)

    def add(self, client: ClientId, reply: FLModel, start: StartModel, max_steps: float | None) -> bool:
        """Check a reply, and store it if it can be used. Return whether it can be used.

        If a client replies more than once, all its replies are refused.
        """
        try:
            if client in self.usable or client in self.refused:
                raise BadReply("more than one reply")
            self.usable[client] = start.read(reply, max_steps)
        except Exception as error:  # a client may send anything, which may cause any error
            why = str(error) if isinstance(error, BadReply) else f"not readable ({type(error).__name__})"
            self.usable.pop(client, None)
            self.refused[client] = ClientRecord(client, Fate.REFUSED, reason=short(why))
            return False
        return True

    def refuse_far(self, start: StartModel) -> None:
        """Refuse replies with an unscored array that changes too much; see `far_clients`."""
        places = [place for place in start.arrays.arrays if not place.scored]
        away = {
            client: [largest_difference(reply.unscored[place.name], start.numbers[place.name]) for place in places]
            for client, reply in self.usable.items()
        }
        for client, why in far_clients(places, start.numbers, away).items():
            del self.usable[client]
            self.refused[client] = ClientRecord(client, Fate.REFUSED, reason=short(why))

    def cap_weights(self, times_median: float | None) -> None:
        """Lower the weights that are above `times_median` times the median weight; see `capped_at_median`."""
        weights = capped_at_median([reply.weight for reply in self.usable.values()], times_median)
        pairs = zip(self.usable.items(), weights, strict=True)
        self.usable = {client: replace(reply, weight=weight) for (client, reply), weight in pairs}

    def sort(self) -> None:
        """Sort the replies by client, so that the rounding of sums does not depend on the order of arrival."""
        names = list(self.usable)
        self.usable = {names[i]: self.usable[names[i]] for i in by_name(names)}


def numbers_of(name: str, value: Array) -> Numbers:
    """Return the array `value` as an array of NumPy. `name` is its name in the model.

    `value` may be an array of NumPy or PyTorch, or an array that NVFLARE keeps on disk. Raise `BadReply` if it is
    something else.
    """
    try:
        load = getattr(value, "materialize", None)
        value = load() if callable(load) else value
        if array_api_compat.is_torch_array(value):
            is_bfloat = "bfloat16" in str(value.dtype)  # NumPy does not have this type
            return to_numpy(value.float() if is_bfloat else value)
    except Exception as error:  # a client may send anything, which may cause any error
        raise BadReply(f"array {name!r} is not readable ({type(error).__name__})") from error
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise BadReply(f"array {name!r} is a {type(value).__name__} instead of an array")
    return np.asarray(value)  # a masked array becomes a plain one, in which no number is hidden


def meta_of(reply: FLModel) -> Mapping[str, object]:
    """Return the metadata of a reply, or an empty table if the client sent something else in its place."""
    return reply.meta if isinstance(reply.meta, Mapping) else {}


def client_of(name: object) -> ClientId:
    """Return the client id for a name that NVFLARE gives; `NO_NAME` if the name is empty or not a string."""
    return name if isinstance(name, str) and name else NO_NAME


def as_given(numbers: Numbers, value: Array) -> Array:
    """Convert an array of NumPy to the library of `value`, which is NumPy or PyTorch.

    If `value` is a tensor, the result has the type of `value`, and is on the same device.
    """
    if array_api_compat.is_torch_array(value):
        xp = array_api_compat.array_namespace(value)
        return xp.asarray(np.ascontiguousarray(numbers)).to(dtype=value.dtype, device=value.device)
    return numbers


def plain_value(value: object) -> object:
    """Return a number of NumPy as a number of Python. Any other value is returned as it is."""
    return value.item() if isinstance(value, np.generic) else value


def usable_metrics(metrics: object) -> dict[str, float]:
    """Return the metrics of a reply that are finite numbers."""
    pairs = metrics.items() if isinstance(metrics, dict) else ()
    numbers = {name: plain_value(value) for name, value in pairs if isinstance(name, str)}
    return {name: float(n) for name, n in numbers.items() if isinstance(n, int | float) and is_finite_number(n)}


def mean_metrics(replies: list[UsableReply]) -> dict[str, float] | None:
    """Return the weighted mean of each metric that most replies have; None if there is no such metric.

    NVFLARE may end the job if a metric is good enough. So a single client must not be able to set a mean with a
    huge value, or to remove a metric by leaving it out.
    """
    counts = Counter(name for reply in replies for name in reply.metrics)
    means = {}
    for name in (name for name, count in counts.items() if 2 * count > len(replies)):
        having = [reply for reply in replies if name in reply.metrics]
        weights = np.array([reply.weight for reply in having])
        values = without_outliers(np.array([reply.metrics[name] for reply in having]))
        means[name] = float((weights / weights.sum()) @ values)
    return {name: value for name, value in means.items() if is_finite_number(value)} or None


def without_outliers(values: FloatVector) -> FloatVector:
    """Return numbers, with those far outside the middle half moved to the nearest limit.

    The limits are `FAR` times the width of the middle half away from it. One or two numbers have no middle half.

    Examples
    --------
    >>> without_outliers(np.array([0.5, 0.6, 0.7, 0.8, 1e9])).round(3).tolist()
    [0.5, 0.6, 0.7, 0.8, 1.4]
    """
    if values.size <= 2:
        return values
    low, high = np.quantile(values, 0.25, method="higher"), np.quantile(values, 0.75, method="lower")
    with np.errstate(over="ignore"):  # an infinite limit is no limit
        width = FAR * (high - low)
        return np.clip(values, low - width, high + width)
