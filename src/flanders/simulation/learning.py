"""Data poisons that learn from the global model before every round.

`A3fl` learns a trigger, which is a patch on images. `DynamicFlip` learns labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from flanders.checks import check_number
from flanders.simulation.data_poison import DataPoison, Scope
from flanders.simulation.laboratory import Laboratory
from flanders.simulation.triggers import Backdoor

BATCH = 64
"""The batch size with which `A3fl` trains a copy of the model to unlearn the patch, as in the authors' code."""
RATE, MOMENTUM, DECAY = 0.01, 0.9, 5e-4
"""The learning rate, momentum and weight decay with which `A3fl` trains this copy, as in the authors' code."""


@dataclass(frozen=True)
class A3fl(Backdoor):
    r"""Before every round, learn a patch that honest training hardly undoes, and use it in a backdoor (A3FL).

    .. math:: \delta \leftarrow \delta - \alpha \operatorname{sign} \nabla_\delta \left[ L(x \oplus \delta, t;
              \theta) + \lambda L(x \oplus \delta, t; \theta') \right], \qquad
              \lambda = \lambda_0 \cos(\theta', \theta)

    :math:`\delta` is the patch, and :math:`x \oplus \delta` are the images of all malicious clients with the patch
    on them. L is the cross-entropy, t the target class, and :math:`\theta` the global model. :math:`\theta'` is a
    copy of :math:`\theta` that has unlearned the patch: it was trained on images with the patch and the right
    labels. :math:`\alpha` is `rate`, and :math:`\lambda_0` is `weight`. Each round continues with the patch of the
    round before. The first patch is grey. For :math:`\lambda`, the paper and this class use the cosine between the
    two models. The authors' code uses the cosine between gradients.

    Parameters
    ----------
    target, size, share
        As in `Backdoor`.
    boost
        As in `Backdoor`. The paper does not scale up what clients send, so the default is 1.
    steps
        The number of steps of :math:`\delta` before each round. The authors' code takes 200.
    rate
        How much each pixel of the patch changes in a step, as a share of the range of values in the data.
    weight
        The factor :math:`\lambda_0`. The default is the value in the authors' code.
    unlearning
        The number of epochs for which :math:`\theta'` is trained. It is trained anew every ten steps of
        :math:`\delta`. The authors' code trains it anew in every step.

    Examples
    --------
    >>> images, classes = torch.zeros(1, 1, 1, 3, 3), torch.ones(1, 1, dtype=torch.int64)
    >>> learned = torch.full((1, 3, 3), 0.7)
    >>> scope = Scope(num_classes=10, highest=1.0, learned=learned)
    >>> A3fl(size=2, share=1.0).change(images, classes, classes, torch.tensor([0]), scope)[0][0, 0, 0]
    tensor([[0.0000, 0.0000, 0.0000],
            [0.0000, 0.7000, 0.7000],
            [0.0000, 0.7000, 0.7000]])

    References
    ----------
    Zhang et al., "A3FL: adversarially adaptive backdoor attacks to federated learning", NeurIPS 2023.
    """

    boost: float | None = 1.0
    steps: int = 20
    rate: float = 0.05
    weight: float = 0.01
    unlearning: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("A3fl", "steps", self.steps, 1, whole=True)
        check_number("A3fl", "rate", self.rate, 0, 1)
        check_number("A3fl", "weight", self.weight, 0)
        check_number("A3fl", "unlearning", self.unlearning, 0, whole=True)

    @property
    def learns(self) -> bool:
        """Return True, since the patch is learned."""
        return True

    def prepare(self, x: Tensor, y: Tensor, scope: Scope) -> Tensor | None:
        """Return a grey image. Only its pixels at the place of the patch are used."""
        return torch.full_like(x[0], (scope.lowest + scope.highest) / 2)

    def learn(self, lab: Laboratory, scope: Scope) -> Tensor:
        """Return the patch after `steps` more steps."""
        patch = scope.learned.clone() if scope.learned is not None else torch.full_like(lab.x[0], scope.highest)
        where = self.patch(lab.x.shape[1:], lab.x.device)
        target = torch.full_like(lab.y, self._checked_target(scope))
        step_length = self.rate * (scope.highest - scope.lowest)
        for step in range(self.steps):
            if step % 10 == 0:
                unlearned = self._unlearned(lab, where, patch)
                cosine = float(functional.cosine_similarity(unlearned, lab.model, dim=0))
            trial = patch.detach().requires_grad_()
            shown = torch.where(where, trial, lab.x)
            loss = functional.cross_entropy(lab.logits(shown), target)
            loss = loss + self.weight * cosine * functional.cross_entropy(lab.logits(shown, unlearned), target)
            (gradient,) = torch.autograd.grad(loss, trial)
            patch = (patch - step_length * gradient.sign()).clamp(scope.lowest, scope.highest)
        return patch.detach()

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Put the patch on all images. Images of the target class itself do not count."""
        target = self._checked_target(scope)
        return self._shown(x, scope), torch.full_like(y, target), y != target

    def _marked(self, x: Tensor, clients: Tensor, scope: Scope) -> Tensor:
        return self._shown(x, scope)

    def _shown(self, x: Tensor, scope: Scope) -> Tensor:
        """Return the examples with the learned patch, or with a bright patch if none is learned yet."""
        if scope.learned is None:
            return torch.where(self.patch(x.shape[1:], x.device), scope.highest, x)
        return torch.where(self.patch(scope.learned.shape, x.device), scope.learned, x)

    def _unlearned(self, lab: Laboratory, where: Tensor, patch: Tensor) -> Tensor:
        """Return the global model after training on images with the patch and the right labels."""
        model, velocity = lab.model.detach().clone(), torch.zeros_like(lab.model)
        shown = torch.where(where, patch, lab.x)
        for _ in range(self.unlearning):
            for start in range(0, len(shown), BATCH):
                part = slice(start, start + BATCH)
                trial = model.detach().requires_grad_()
                loss = functional.cross_entropy(lab.logits(shown[part], trial), lab.y[part])
                (gradient,) = torch.autograd.grad(loss, trial)
                velocity = MOMENTUM * velocity + gradient + DECAY * model
                model = model - RATE * velocity
        return model.detach()


@dataclass(frozen=True)
class DynamicFlip(DataPoison):
    r"""Train on wrong labels: in every round, an example gets the wrong label that the model finds least likely.

    .. math:: y \mapsto \arg\min_{k \ne y} f_k(x; \theta)

    y is the right class of example x. :math:`f_k(x; \theta)` is the logit of class k, and :math:`\theta` is the
    global model, which every client gets. The paper instead uses the logits of a model that the attacker has
    trained on its own data.

    Examples
    --------
    >>> scope = Scope(num_classes=10, highest=1.0, learned=torch.tensor([7, 1, 4]))
    >>> images, classes = torch.zeros(1, 2, 1, 8, 8), torch.tensor([[0, 3]])
    >>> DynamicFlip().change(images, classes, torch.tensor([[2, 0]]), torch.tensor([0]), scope)[1]
    tensor([[4, 7]])

    References
    ----------
    Shejwalkar et al., "Back to the drawing board: a critical evaluation of poisoning attacks on production
    federated learning", IEEE S&P 2022.
    """

    @property
    def learns(self) -> bool:
        """Return True, since the labels depend on the global model of the round."""
        return True

    def prepare(self, x: Tensor, y: Tensor, scope: Scope) -> Tensor | None:
        """Return a first label for each training example: with C classes, class y gets label C - 1 - y."""
        return scope.num_classes - 1 - y

    def learn(self, lab: Laboratory, scope: Scope) -> Tensor:
        """Return the labels of all training examples. The attacker's examples get the least likely wrong labels."""
        labels = lab.y.new_zeros(0) if scope.learned is None else scope.learned.clone()
        with torch.no_grad():
            logits = lab.logits(lab.x)
            logits[torch.arange(len(lab.y), device=lab.y.device), lab.y] = torch.inf
        labels[lab.examples] = logits.argmin(1)
        return labels

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Give each example its learned label."""
        return x, scope.num_classes - 1 - y if scope.learned is None else scope.learned[examples]
