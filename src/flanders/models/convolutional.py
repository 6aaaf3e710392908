"""Two small convolutional models for images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from flanders.checks import check_number
from flanders.models.model_spec import ModelSpec, check_images


@dataclass(frozen=True)
class Cnn6(ModelSpec):
    """Two convolutions and three linear layers, the FLANDERS paper's model for CIFAR-10.

    For CIFAR-10, it has 62,006 parameters. The convolutions have 6 and 16 channels and 5 x 5 windows. ReLU and max
    pooling follow each convolution. The linear layers have 120 units, 84 units and one unit per class.
    """

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module. A convolution makes each side of an image 4 pixels shorter, and pooling halves it."""
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
    """Two 3 x 3 convolutions with max pooling and one linear layer, for images of at least 4 x 4 pixels.

    The first convolution has `channels` output channels, and the second has twice as many.
    """

    channels: int = 16

    def __post_init__(self) -> None:
        check_number("SmallCnn", "channels", self.channels, 1, whole=True)

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module. Pooling halves the sides of the image twice."""
        in_channels, height, width = check_images("small-cnn", input_shape, 4, "'mlp2'")
        c = self.channels
        return nn.Sequential(
            *(nn.Conv2d(in_channels, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            nn.Linear(2 * c * (height // 4) * (width // 4), num_classes),
        )
