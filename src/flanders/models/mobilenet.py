"""The model MobileNet, and layers for batch normalisation that can be run for many clients at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.models.model_spec import ModelSpec, check_images

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""The number of output channels and the stride of each depthwise separable convolution."""


@dataclass(frozen=True)
class MobileNet(ModelSpec):
    """MobileNet for small images, the FLANDERS paper's model for CIFAR-100.

    For CIFAR-100, it has 3,315,428 parameters. Its batch normalisation has 21,915 more values in buffers, which are
    not trained. As in the code of the FLANDERS paper, the first convolution keeps the size of the image, and the
    pointwise (1 x 1) convolutions have a bias.

    References
    ----------
    Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision applications", 2017.
    """

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module. Images need at least 17 x 17 pixels, which four strides of 2 reduce to 2 x 2."""
        return make_mobilenet("mobilenet", input_shape, num_classes, BatchNorm2d)


@dataclass(frozen=True)
class MobileNetReference(ModelSpec):
    """MobileNet whose clients also send the running statistics of batch normalisation, as parameters.

    So does the code published with the FLANDERS paper. There, attackers change these statistics, and filters look
    at them. With `MobileNet`, the statistics are only averaged over the kept clients. For CIFAR-100, this model has
    3,337,343 parameters and no buffers. Training does not change the statistics by gradients.

    References
    ----------
    The code published with Gabrielli et al., "Protecting federated learning from extreme model poisoning attacks
    via multidimensional time series anomaly detection".
    """

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the module. Images need at least 17 x 17 pixels, as for `MobileNet`."""
        return make_mobilenet("mobilenet-reference", input_shape, num_classes, SentBatchNorm2d)


def make_mobilenet(
    name: str, input_shape: tuple[int, ...], num_classes: int, norm: Callable[[int], nn.Module]
) -> nn.Module:
    """Return a MobileNet. `norm` makes a batch normalisation layer from a number of channels."""
    channels, _, _ = check_images(name, input_shape, 17, "'small-cnn' or 'mlp2'")
    layers: list[nn.Module] = [nn.Conv2d(channels, 32, 3, padding=1, bias=False), norm(32), nn.ReLU()]
    before = 32
    for width, stride in BLOCKS:
        layers += [
            nn.Conv2d(before, before, 3, stride=stride, padding=1, groups=before, bias=False),
            *(norm(before), nn.ReLU()),
            nn.Conv2d(before, width, 1),
            *(norm(width), nn.ReLU()),
        ]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes))


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation that stores its running statistics in new tensors.

    PyTorch's own layer changes the running statistics in place. `torch.func.vmap` refuses such a change if all
    clients share the same buffers. Inside `torch.func.grad`, the changed values are lost. This layer assigns new
    tensors instead. `functional_call` then writes the new tensors into the dict of parameters and buffers that it
    was given.
    """

    num_batches_tracked: Tensor | None

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input.

        In training, the statistics of the batch are used. In a test, the running statistics are used.
        """
        mean, var, momentum = self.running_mean, self.running_var, self.momentum
        if not self.training or mean is None or var is None or momentum is None or self.num_batches_tracked is None:
            return super().forward(input)
        batch_mean, batch_var = input.new_zeros(input.shape[1]), input.new_zeros(input.shape[1])
        normalised = functional.batch_norm(
            input, batch_mean, batch_var, self.weight, self.bias, training=True, momentum=1.0, eps=self.eps
        )
        self.running_mean = (1 - momentum) * mean + momentum * batch_mean.detach()
        self.running_var = (1 - momentum) * var + momentum * batch_var.detach()
        self.num_batches_tracked = self.num_batches_tracked + 1
        return normalised


class SentBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation whose running statistics are parameters, so that clients send them.

    The simulator updates the statistics when clients train. `forward` uses them in a test, and never changes them.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)
        self.running_mean = nn.Parameter(torch.zeros(channels))
        self.running_var = nn.Parameter(torch.ones(channels))
        self.num_batches_tracked = nn.Parameter(torch.zeros(()))
