"""`OwnModel`, with which a PyTorch module of the user becomes the model of a simulation."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from flanders.checks import InputError
from flanders.models.model_spec import ModelSpec

MakeModule = Callable[..., nn.Module]
"""A function that makes a module. It takes no arguments, or two: the shape of an example and the number of
classes."""


@dataclass(frozen=True)
class OwnModel(ModelSpec):
    """A PyTorch module of the user, or a function that makes one.

    If `source` is a module, its parameters are the initial global model of every run. If it is a function, it is
    called once for each run. Before the call, PyTorch's random generator is seeded with a number that depends on
    the seed of the run. So if the function draws its parameters at random, runs with different seeds begin with
    different parameters.

    Examples
    --------
    >>> OwnModel(nn.Linear(8, 2)).build((8,), 2)
    Linear(in_features=8, out_features=2, bias=True)
    """

    source: nn.Module | MakeModule

    def __post_init__(self) -> None:
        if not callable(self.source) or (isinstance(self.source, type) and issubclass(self.source, ModelSpec)):
            raise InputError(
                "A model must be a torch.nn.Module, a function that makes one, or a model of flanders.models. "
                f"Got {self.source!r} instead."
            )

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a copy of the module, or the module that the function makes."""
        if isinstance(self.source, nn.Module):
            module: object = copy.deepcopy(self.source)
        else:
            num_arguments = len(inspect.signature(self.source).parameters)
            module = self.source(input_shape, num_classes) if num_arguments >= 2 else self.source()
        if not isinstance(module, nn.Module):
            raise InputError(f"The function that makes the model must return a torch.nn.Module. Got {module!r}.")
        check_output(module, input_shape, num_classes)
        return module


def check_output(module: nn.Module, input_shape: tuple[int, ...], num_classes: int) -> None:
    """Raise an error unless a module turns n examples `(n, *input_shape)` into an array `(n, num_classes)`."""
    training = module.training
    try:
        with torch.no_grad():
            output = module.eval()(torch.zeros(2, *input_shape))
    except RuntimeError as error:
        raise InputError(
            f"{type(module).__name__} cannot take examples of shape {input_shape}: {str(error).splitlines()[0]}. "
            "Begin it with nn.Flatten(), for example, or change its first layer."
        ) from error
    finally:
        module.train(training)
    shape = tuple(getattr(output, "shape", ()))
    if shape != (2, num_classes):
        raise InputError(
            f"{type(module).__name__} must turn 2 examples into an array of shape (2, {num_classes}), one value "
            f"for each class. It returned {shape or type(output).__name__}."
        )


def as_model(model: object) -> object:
    """Wrap a module, or a function that makes one, in an `OwnModel`. Return anything else unchanged."""
    if isinstance(model, ModelSpec):
        return model
    return OwnModel(model) if callable(model) else model
