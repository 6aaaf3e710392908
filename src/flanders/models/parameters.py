"""`Layout`, which turns the tensors of a PyTorch module into one flat vector and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flanders.checks import InputError


@dataclass(frozen=True)
class Layout:
    """The order of a module's tensors in a flat vector: first the parameters, then the buffers.

    Both are in the order in which the module names them. Tensors and vectors may have additional axes in front,
    which are kept. So the same layout works for a single model of d values `(d,)` and for the models of m clients
    `(m, d)`.

    Examples
    --------
    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> layout.names, layout.shapes, layout.size
    (('weight', 'bias'), ((2, 3), (2,)), 8)
    >>> {name: tuple(tensor.shape) for name, tensor in layout.unflatten(torch.zeros(5, 8)).items()}
    {'weight': (5, 2, 3), 'bias': (5, 2)}
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, module: nn.Module, *, parameters: bool = True, buffers: bool = False) -> Layout:
        """Return the layout of the parameters of a module, of its buffers, or of both.

        In the code of the FLANDERS paper, clients send the parameters and the buffers of batch normalisation. Pass
        `buffers=True` for a layout of both.
        """
        tensors: dict[str, Tensor] = {}
        if parameters:
            tensors.update(module.named_parameters())
        if buffers:
            tensors.update(module.named_buffers())
        shapes = tuple(tuple(tensor.shape) for tensor in tensors.values())
        return cls(tuple(tensors), shapes, tuple(tensor.dtype for tensor in tensors.values()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values in each tensor."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """The length d of the vector."""
        return sum(self.sizes)

    def flatten(self, tensors: Mapping[str, Tensor] | nn.Module) -> Tensor:
        """Return the tensors of a module, or named tensors `(..., *shape)`, as a new vector `(..., d)`."""
        if isinstance(tensors, nn.Module):
            own = {**dict(tensors.named_parameters()), **dict(tensors.named_buffers())}
            tensors = {name: own[name].detach() for name in self.names if name in own}
        missing = [name for name in self.names if name not in tensors]
        if missing:
            raise InputError(f"To flatten a model, all its tensors are needed. These are missing: {missing}.")
        if not self.names:
            raise InputError("There is nothing to flatten: the layout has no tensors.")
        dtype = next((t for t in self.dtypes if t.is_floating_point), torch.float32)
        pieces = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            tensor = tensors[name]
            leading = tensor.shape[: tensor.ndim - len(shape)]
            if tuple(tensor.shape[len(leading) :]) != shape:
                raise InputError(
                    f"{name!r} must have shape (..., {', '.join(map(str, shape))}), got {tuple(tensor.shape)}."
                )
            pieces.append(tensor.reshape((*leading, math.prod(shape))).to(dtype))
        return torch.cat(pieces, dim=-1)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a vector `(..., d)` as named tensors `(..., *shape)`.

        Tensors of floats are views of the vector. Tensors of integers are rounded copies.
        """
        if vector.shape[-1] != self.size:
            raise InputError(f"A flat model must have shape (..., {self.size}), got {tuple(vector.shape)}.")
        tensors = {}
        pieces = torch.split(vector, list(self.sizes), dim=-1)
        for name, shape, dtype, piece in zip(self.names, self.shapes, self.dtypes, pieces, strict=True):
            tensor = piece.reshape((*vector.shape[:-1], *shape))
            tensors[name] = tensor if dtype.is_floating_point else tensor.round().to(dtype)
        return tensors


def tensor_sizes(module: nn.Module) -> dict[str, int]:
    """Return the number of values of each parameter tensor, by its name, in the order of the flat vector."""
    layout = Layout.of(module)
    return dict(zip(layout.names, layout.sizes, strict=True))
