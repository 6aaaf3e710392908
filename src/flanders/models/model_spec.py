"""`ModelSpec`, the base class of all models: a description from which a PyTorch module is built."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from flanders.checks import InputError, check_number


class ModelSpec(ABC):
    """A kind of model and its options, such as the number of hidden units. `build` makes a PyTorch module of it.

    To add a model, write a frozen dataclass with `make`, and add one line to `MODELS`. `torch.func.vmap` runs the
    module for all clients at once. So the module must not branch on the values of tensors or change tensors in
    place. Its layers must be registered in the order in which they run. From this order, attacks and filters find
    the last layer.
    """

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a freshly initialised module.

        It turns n examples `(n, *input_shape)` into logits `(n, num_classes)`. The weights are drawn from PyTorch's
        global random generator. Seed it first.
        """
        name = type(self).__name__
        check_number(name, "num_classes", num_classes, 2, whole=True)
        if not input_shape or any(not isinstance(n, int) or n < 1 for n in input_shape):
            raise InputError(f"{name} needs the shape of one example, e.g. (1, 28, 28), got {input_shape!r}.")
        return self.make(tuple(input_shape), num_classes)

    @abstractmethod
    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module. `build` has checked the arguments."""


def check_images(name: str, input_shape: tuple[int, ...], smallest: int, instead: str) -> tuple[int, int, int]:
    """Return the channels, height and width of images. Raise an error if `input_shape` is not a shape of images.

    Images must have sides of at least `smallest` pixels. The error advises to use `instead`, which names models
    that take smaller examples.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise InputError(
            f"{name} needs images (channels, height, width) of at least {smallest} x {smallest}, got examples of "
            f"shape {input_shape}. Use the model {instead}."
        )
    channels, height, width = input_shape
    return channels, height, width
