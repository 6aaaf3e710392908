"""Adam and stochastic gradient descent for n clients at once.

The parameters of the clients are stacked: each parameter is one tensor `(n, ...)`. Both optimizers call PyTorch's
own fused kernels. All clients of a call have taken the same number of steps, so each client gets the same result as
if it trained alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's decay rates and epsilon: the defaults of PyTorch."""


class Optimizer(Protocol):
    """Changes parameters according to their gradients. It may remember averages of earlier gradients."""

    def reset(self) -> None:
        """Forget everything. This is called before each round of local training."""

    def tick(self, step: int) -> None:
        """Set how many steps the clients of the next `update` have taken so far."""

    def update(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], clients: slice) -> None:
        """Change the parameters of these clients by one step, in place."""


class StackedAdam:
    """The optimizer Adam.

    References
    ----------
    Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        self._rate = learning_rate
        self._means = [torch.zeros_like(p) for p in parameters]
        self._squares = [torch.zeros_like(p) for p in parameters]
        self._steps = torch.zeros(len(parameters), device=parameters[0].device)
        self._step_counters = list(self._steps.unbind())

    def reset(self) -> None:
        """Forget the means of the gradients and of their squares."""
        torch._foreach_zero_(self._means)
        torch._foreach_zero_(self._squares)

    def tick(self, step: int) -> None:
        """Set the number of steps so far. Adam's bias correction uses it."""
        self._steps.fill_(step)

    def update(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], clients: slice) -> None:
        """Take one step."""
        adam(
            list(parameters),
            list(gradients),
            [m[clients] for m in self._means],
            [s[clients] for s in self._squares],
            [],
            self._step_counters,
            fused=True,
            amsgrad=False,
            beta1=BETA1,
            beta2=BETA2,
            lr=self._rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )


class StackedSgd:
    """Stochastic gradient descent with momentum."""

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float, momentum: float) -> None:
        self._rate, self._momentum = learning_rate, momentum
        self._velocities = [torch.zeros_like(p) for p in parameters] if momentum else []

    def reset(self) -> None:
        """Forget the velocities: the sums of earlier gradients that momentum uses."""
        if self._velocities:
            torch._foreach_zero_(self._velocities)

    def tick(self, step: int) -> None:
        """Do nothing, since SGD does not depend on the number of steps."""

    def update(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], clients: slice) -> None:
        """Take one step."""
        velocities: list[Tensor | None] = [v[clients] for v in self._velocities]
        sgd(
            list(parameters),
            list(gradients),
            velocities or [None] * len(parameters),
            fused=True,
            weight_decay=0.0,
            momentum=self._momentum,
            lr=self._rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
