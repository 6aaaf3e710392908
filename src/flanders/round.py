"""The class `Round`: the models that the clients of one round have sent. Filters and aggregators work on it.

Everywhere in this package, m is the number of clients and d is the number of parameters of the model. The models of
a round are an array of shape `(m, d)`, with a row for each client and a column for each parameter. The FLANDERS
paper writes the transpose, d x m.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, runtime_checkable

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, all_finite, index_like, without_graph
from flanders.checks import InputError
from flanders.client_ids import ClientId, by_name, check_clients

Evaluate = Callable[[Array], FloatVector | float]
"""A function that takes a model `(d,)` and returns its loss on each of the server's examples, or the mean loss."""
Predict = Callable[[Array, int, int], FloatMatrix]
"""A function that takes a model `(d,)`, a seed and a number n. It returns the class probabilities `(n, classes)`
that the model predicts for n random inputs."""


@runtime_checkable
class Differentiable(Protocol):
    """An `Evaluate` that also has a gradient. Filters that train on the server's examples need it."""

    def __call__(self, model: Array, /) -> FloatVector | float:
        """Return the losses of a model on the server's examples."""

    def gradient(self, model: Array, /) -> Array:
        """Return the gradient of the mean loss at a model, `(d,)`."""


@dataclass(frozen=True, eq=False, init=False)
class Round:
    """What the server has at the end of a round: the clients' models, the global model, and what else it knows.

    Parameters
    ----------
    updates
        The models that the clients have trained, `(m, d)`, float32 or float64. If clients send the difference
        from the global model instead, pass the differences and leave `global_model` out.
    clients
        The id of the client of each row: unique ints or strings. Default: the row numbers.
    weights
        How much each client counts, usually its number of examples. Default: ones.
    global_model
        The model the round started from, `(d,)`. Default: zeros.
    root
        The server's own update: a model that the server has trained on its own examples, minus `global_model`. Its
        shape is `(d,)`. The aggregators `fltrust` and `zeno++` and the filter `skymask` need it. Other filters can
        use it. Default: None, which means that the server has trained no model.
    layers
        A table with the name of each tensor of the model, and its number of parameters. The tensors stand in the
        table in the same order as in a row. Filters use the table to say in which layer an update is abnormal, or
        to look at some layers only. Default: the layers are unknown.
    evaluate
        A function that takes a model `(d,)` and returns its losses on examples of the server: a vector with one
        loss for each example, or the mean loss. A filter can use it to find out which of two groups of clients
        improves the model. If the function is a `Differentiable`, filters can also train with it. Default: None,
        which means that the server has no examples.
    outputs
        A function that takes a model `(d,)`, a seed and a number n. It draws n random inputs from the seed, and
        returns the class probabilities that the model predicts for them, `(n, classes)`. The filter `deepsight`
        uses this function if it is given. Default: None.
    check_later
        If true, the caller makes sure that the global model is finite, and calls `check_global_model` if it may not
        be. On a GPU, the host waits for such a check.
    """

    updates: Array
    clients: tuple[ClientId, ...]
    weights: FloatVector
    global_model: Array
    root: Array
    layers: Mapping[str, int]
    evaluate: Evaluate | None
    outputs: Predict | None

    def __init__(
        self,
        updates: Array,
        clients: Iterable[ClientId] | None = None,
        weights: Iterable[float] | None = None,
        global_model: Array = None,
        root: Array = None,
        layers: Mapping[str, int] | None = None,
        evaluate: Evaluate | None = None,
        outputs: Predict | None = None,
        *,
        check_later: bool = False,
    ) -> None:
        xp, device = check_matrix(updates)
        m, d = updates.shape
        set_ = object.__setattr__
        set_(self, "updates", without_graph(updates))
        set_(self, "clients", check_clients(clients, m))
        set_(self, "weights", check_weights(weights, m))
        if global_model is None:
            set_(self, "global_model", xp.zeros(d, dtype=updates.dtype, device=device))
        else:
            set_(self, "global_model", check_shape(global_model, "global_model", updates))
            if not check_later:
                self.check_global_model()
        set_(self, "root", None if root is None else check_vector(root, "root", updates))
        set_(self, "layers", check_layers(layers, d))
        if evaluate is not None and not callable(evaluate):
            raise InputError(
                "`evaluate` must be a function that takes a model of shape (parameters,) and returns its losses on "
                f"the server's examples. Got {evaluate!r} instead."
            )
        if outputs is not None and not callable(outputs):
            raise InputError(
                "`outputs` must be a function that takes a model of shape (parameters,), a seed and a number n. It "
                f"returns class probabilities on n random inputs. Got {outputs!r} instead."
            )
        set_(self, "evaluate", evaluate)
        set_(self, "outputs", outputs)

    def check_global_model(self) -> None:
        """Raise an `InputError` unless the global model is finite."""
        check_finite(self.global_model, "global_model")

    def by_client(self) -> IntVector:
        """Return the indices of the rows, sorted by the ids of the clients."""
        return by_name(self.clients)

    def take(self, rows: Sequence[int] | IntVector) -> Round:
        """Return a round with only these rows, in this order. `rows` are indices, or a boolean for each row.

        If all chosen rows have weight zero, each gets weight one.
        """
        index = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows, dtype=np.int64)
        if index.shape == (len(self.clients),) and bool(np.all(index == np.arange(index.size))):
            return self
        xp = array_api_compat.array_namespace(self.updates)
        return self.replace(
            updates=xp.take(self.updates, index_like(index, self.updates), axis=0),
            clients=tuple(self.clients[i] for i in index),
            weights=self.weights[index] if self.weights[index].any() else np.ones(index.size),
        )

    def replace(
        self,
        updates: Array,
        clients: tuple[ClientId, ...] | None = None,
        weights: FloatVector | None = None,
    ) -> Round:
        """Return a round with other updates. By default, its clients and weights are those of this round."""
        names, shares = self.clients if clients is None else clients, self.weights if weights is None else weights
        if not alike(updates, self.updates):
            known = self.global_model, self.root, self.layers, self.evaluate, self.outputs
            return Round(updates, names, shares, *known)
        new, m = copy.copy(self), updates.shape[0]  # the vectors of this round fit, and were checked before
        check_matrix(updates)
        object.__setattr__(new, "updates", without_graph(updates))
        object.__setattr__(new, "clients", check_clients(names, m))
        object.__setattr__(new, "weights", check_weights(shares, m))
        return new


def alike(one: Array, other: Array) -> bool:
    """Whether two arrays have the same library, type, device and number of columns."""
    return (
        type(one) is type(other)
        and one.dtype == other.dtype
        and one.shape[1:] == other.shape[1:]
        and array_api_compat.device(one) == array_api_compat.device(other)
    )


def check_matrix(updates: Array) -> tuple[ModuleType, object]:
    """Return the array namespace and the device of `updates`. A namespace is the module with a library's functions.

    Raise an `InputError` unless `updates` are floats of shape `(m, d)`.
    """
    if not array_api_compat.is_array_api_obj(updates):
        raise InputError(
            f"`updates` must be an (m, d) array of NumPy, PyTorch, CuPy or JAX, got {type(updates).__name__}. "
            "Stack the flattened models first, e.g. numpy.stack(models)."
        )
    xp = array_api_compat.array_namespace(updates)
    if updates.ndim != 2:
        raise InputError(
            f"`updates` must have shape (clients, parameters), got {tuple(updates.shape)}. "
            "Flatten each client's model into one row."
        )
    m, d = updates.shape
    if m == 0 or d == 0:
        raise InputError(
            f"`updates` must hold at least one client and one parameter, got shape {(m, d)}. "
            "Skip the round, or keep the previous global model."
        )
    if updates.dtype not in (xp.float32, xp.float64):
        raise InputError(f"`updates` must be float32 or float64, got {updates.dtype}. Cast them before the round.")
    return xp, array_api_compat.device(updates)


def check_vector(vector: Array, name: str, updates: Array) -> Array:
    """Return `vector` in the dtype of `updates`. `name` is what error messages call `vector`.

    Raise an `InputError` unless `vector` has shape `(d,)`, is finite, and is of the library and device of
    `updates`.
    """
    vector = check_shape(vector, name, updates)
    check_finite(vector, name)
    return vector


def check_finite(vector: Array, name: str) -> None:
    """Raise an `InputError` unless all numbers of `vector` are finite. `name` is what the message calls it."""
    if not all_finite(vector):
        raise InputError(f"`{name}` holds NaN or infinite values. Restart from the last finite model.")


def check_shape(vector: Array, name: str, updates: Array) -> Array:
    """Return `vector` in the dtype of `updates`. `name` is what error messages call `vector`.

    Raise an `InputError` unless `vector` has shape `(d,)`, and is of the library and device of `updates`.
    """
    d = updates.shape[1]
    if not array_api_compat.is_array_api_obj(vector) or tuple(vector.shape) != (d,):
        shape = getattr(vector, "shape", type(vector).__name__)
        raise InputError(
            f"`{name}` must have shape (parameters,)=({d},), got {shape}. "
            "It is one flattened model, as long as a row of `updates`."
        )
    return check_same_kind(vector, name, updates)


def check_same_kind(array: Array, name: str, updates: Array) -> Array:
    """Return `array` in the dtype of `updates`. `name` is what error messages call `array`.

    Raise an `InputError` unless `array` and `updates` are of the same library and on the same device.
    """
    try:
        xp = array_api_compat.array_namespace(updates, array)
    except TypeError as error:
        raise InputError(
            f"`{name}` must be the same kind of array as `updates`, got "
            f"{type(array).__module__} and {type(updates).__module__}."
        ) from error
    if array_api_compat.device(array) != array_api_compat.device(updates):
        raise InputError(
            f"`{name}` is on {array_api_compat.device(array)} but `updates` are on "
            f"{array_api_compat.device(updates)}. Move one of them."
        )
    return xp.astype(without_graph(array), updates.dtype, copy=False)


def check_continued(round_: Round, remembered: Array) -> None:
    """Raise an `InputError` unless `remembered` fits this round.

    `remembered` is a vector from an earlier round. It must have the size and the array library of the global model.
    """
    now, before = (
        f"{type(vector).__module__.partition('.')[0]} arrays of {vector.shape[0]} parameters"
        for vector in (round_.global_model, remembered)
    )
    if now != before:
        raise InputError(
            f"This round's models are {now}, but the remembered models are {before}. Go on with the same model and "
            "array library, or start with an empty memory."
        )


def check_same_size(updates: Array, remembered: Array) -> None:
    """Raise an `InputError` unless `updates`, `(m, d)`, have as many parameters as a model of an earlier round."""
    now, before = updates.shape[1], remembered.shape[0]
    if now != before:
        raise InputError(
            f"The models of this round have {now} parameters, but those of earlier rounds had {before}. Go on with "
            "the same model, or start with a new Defense."
        )


def check_layers(layers: Mapping[str, int] | None, d: int) -> Mapping[str, int]:
    """Return the sizes of the layers. Raise an `InputError` unless they are whole numbers that add up to `d`."""
    if not layers:
        return {}
    sizes = list(layers.values()) if isinstance(layers, Mapping) else []
    if not sizes or not all(isinstance(size, int | np.integer) and size >= 0 for size in sizes):
        raise InputError(f"`layers` must map each layer's name to its number of parameters. Got {layers!r}.")
    if sum(sizes) != d:
        raise InputError(
            f"`layers` must cover all {d} parameters of a row, but the sizes in it add up to {sum(sizes)}. Leave "
            "`layers` out, or list all tensors of the model in their order."
        )
    return layers


def check_weights(weights: Iterable[float] | None, m: int) -> FloatVector:
    """Return the weights as float64.

    Raise an `InputError` unless they are `m` finite numbers, none is negative, and at least one is positive.
    """
    if weights is None:
        return np.ones(m)
    try:
        vector = np.array([float(w) for w in weights], dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"`weights` must be {m} numbers, one per client, got {weights!r}.") from error
    if vector.shape != (m,):
        raise InputError(f"`weights` must be {m} numbers, one per client, got {vector.size}.")
    with np.errstate(over="ignore"):
        total = vector.sum()
    if not np.isfinite(total) or np.any(vector < 0) or total <= 0:
        raise InputError(
            "`weights` must be finite, not negative, and not all zero. Pass numbers of examples, or leave them out."
        )
    return vector
