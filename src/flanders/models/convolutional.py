"""Small convolutional models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from flanders.checks import check_number
from flanders.models.spec import ModelSpec, check_images


@dataclass(frozen=True)
class Cnn6(ModelSpec):
    """Two convolutions and three linear layers, the paper's model for CIFAR-10: 62,006 parameters.

    6 and 16 channels with 5 x 5 windows, each followed by ReLU and pooling; then 120-84-classes. The paper counts
    six layers.
    """

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module; each convolution takes 4 pixels off, each pooling halves what is left."""
        channels, height, width = check_images("cnn6", input_shape, 16, "'small-cnn' or 'mlp2'")
        height, width = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        return nn.Sequential(
            *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            *(nn.Linear(16 * height * width, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU()),
            nn.Linear(84, num_classes),
        )


@dataclass(frozen=True)
class SmallCnn(ModelSpec):
    """Two 3 x 3 convolutions with pooling and one linear layer, for images down to 4 x 4."""

    channels: int = 16

    def __post_init__(self) -> None:
        check_number("SmallCnn", "channels", self.channels, 1, whole=True)

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module; the second convolution has twice the channels of the first."""
        channels, height, width = check_images("small-cnn", input_shape, 4, "'mlp2'")
        c = self.channels
        return nn.Sequential(
            *(nn.Conv2d(channels, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            nn.Linear(2 * c * (height // 4) * (width // 4), num_classes),
        )
