"""Functions that turn models into the rows that a `Defense` takes, and a row back into a model.

A model is a `state_dict` (arrays by name) or a list of arrays. The arrays may be those of NumPy, PyTorch, CuPy or
JAX. A row is a vector of all numbers of a model.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import array_api_compat

from flanders.arrays import Array, without_graph
from flanders.checks import InputError
from flanders.layers import tensors_of

Model = Mapping[str, Array] | Sequence[Array]
"""The arrays of one model: a table of arrays by name, or a list of arrays."""
log = logging.getLogger("flanders")


def pack(models: Sequence[Model], like: Model | None = None) -> Array:
    """Return models as the array that a `Defense` takes: a row for each model, with all numbers of the model.

    Parameters
    ----------
    models
        One model for each client: a `state_dict`, or a list of arrays. Integers are packed as floats.
    like
        A model with the expected names and shapes, usually the global model. If a client's model has other names or
        shapes, its row is filled with NaN, and the log says why. A `Defense` refuses this row. Without `like`, it
        is an error if a model has other names or shapes than the first model.

    Examples
    --------
    >>> import numpy as np
    >>> pack([[np.array([[1., 2.]]), np.array([3.])], [np.array([[4., 5.]]), np.array([6.])]])
    array([[1., 2., 3.],
           [4., 5., 6.]])
    """
    if isinstance(models, Mapping) or not models or not all(isinstance(x, Mapping | Sequence) for x in models):
        raise InputError(
            "pack needs a list with one model for each client. A model is a state_dict or a list of arrays. "
            f"Got {type(models).__name__} instead. For a single model, write pack([model])."
        )
    pattern = named_arrays(models[0] if like is None else like)
    rows = []
    for number, model in enumerate(models):
        problem = _difference(model, pattern)
        if not problem:
            rows.append(_row(named_arrays(model)))
            continue
        if like is None:
            raise InputError(
                f"Model {number} does not have the arrays of model 0: {problem}. Pack models of one kind, or pass "
                "the global model as `like`. Then a model that does not fit is refused, and the round goes on."
            )
        log.warning("flanders: the model in row %s is refused: %s", number, problem)
        row = _row(pattern)
        rows.append(row * math.nan)
    xp = array_api_compat.array_namespace(*rows)
    wide = any(row.dtype == xp.float64 for row in rows)
    return xp.stack([xp.astype(row, xp.float64 if wide else xp.float32, copy=False) for row in rows])


def unpack(vector: Array, like: Model) -> dict[str, Array] | list[Array]:
    """Return a vector of all numbers of a model as a model with the names, shapes and types of `like`.

    `vector` is, for example, `outcome.model`. The numbers of integer arrays are rounded.

    Examples
    --------
    >>> import numpy as np
    >>> unpack(np.array([1., 2., 3.]), like={"weight": np.zeros((1, 2)), "steps": np.array([7])})
    {'weight': array([[1., 2.]]), 'steps': array([3])}
    """
    pattern = named_arrays(like)
    sizes = {name: math.prod(array.shape) for name, array in pattern.items()}
    if getattr(vector, "shape", None) != (sum(sizes.values()),):
        given = tuple(getattr(vector, "shape", ())) or type(vector).__name__
        raise InputError(
            f"unpack needs a vector of {sum(sizes.values())} numbers, as many as `like` has. Got {given} instead."
        )
    xp = array_api_compat.array_namespace(vector)
    arrays, start = {}, 0
    for name, array in pattern.items():
        piece = xp.reshape(vector[start : start + sizes[name]], tuple(array.shape))
        is_float = xp.isdtype(array.dtype, "real floating")
        arrays[name] = xp.astype(piece if is_float else xp.round(piece), array.dtype)
        start += sizes[name]
    return arrays if isinstance(like, Mapping) else list(arrays.values())


def layers_of(model: Model) -> dict[str, int]:
    """Return the name and the size of each array of a model, as the table that a `Defense` takes as `layers=`.

    The names of a `state_dict` tell which arrays belong to the same layer. The arrays of a list get such names by
    their shapes.

    Examples
    --------
    >>> import numpy as np
    >>> layers_of({"fc.weight": np.zeros((2, 3)), "fc.bias": np.zeros(2)})
    {'fc.weight': 6, 'fc.bias': 2}
    >>> layers_of([np.zeros((4, 3)), np.zeros(4), np.zeros((2, 4)), np.zeros(2)])
    {'0.weight': 12, '0.bias': 4, '2.weight': 8, '2.bias': 2}
    """
    return tensors_of({name: tuple(array.shape) for name, array in named_arrays(model).items()})


def named_arrays(model: Model) -> dict[str, Array]:
    """Return the arrays of a model by name. The arrays of a list are named "0", "1" and so on."""
    pairs = model.items() if isinstance(model, Mapping) else ((str(i), x) for i, x in enumerate(model))
    named = {str(name): array for name, array in pairs}
    for name, array in named.items():
        if not array_api_compat.is_array_api_obj(array):
            raise InputError(f"A model is made of arrays, but {name!r} is {type(array).__name__}.")
    if not named:
        raise InputError("A model needs at least one array. Got an empty one.")
    return named


def _row(arrays: Mapping[str, Array]) -> Array:
    """Return the numbers of all arrays as one vector, in float64 if any array is float64, else in float32."""
    xp = array_api_compat.array_namespace(*arrays.values())
    wide = any(array.dtype == xp.float64 for array in arrays.values())
    dtype = xp.float64 if wide else xp.float32
    return xp.concat([xp.astype(xp.reshape(without_graph(array), (-1,)), dtype) for array in arrays.values()])


def _difference(model: Model, pattern: Mapping[str, Array]) -> str:
    """Return in words how the arrays of a model differ from `pattern`; "" if names and shapes are the same."""
    try:
        arrays = named_arrays(model)
    except InputError as error:
        return str(error)
    if list(arrays) != list(pattern):
        if set(arrays) == set(pattern):
            return "its arrays are in another order"
        other = sorted(set(arrays) ^ set(pattern))
        return f"missing or unexpected arrays: {', '.join(other[:5])}"
    for name, array in arrays.items():
        if tuple(array.shape) != tuple(pattern[name].shape):
            return f"{name!r} has shape {tuple(array.shape)} instead of {tuple(pattern[name].shape)}"
    return ""
