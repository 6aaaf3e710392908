"""The filter `SkyMask`. It trains a mask for each model on the server's examples, and compares the masks."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, BoolVector, FloatMatrix, FloatVector, IntVector, all_finite
from flanders.checks import InputError, check_number
from flanders.extras import needing
from flanders.filters.filter import Scores
from flanders.filters.stateless import Stateless
from flanders.linalg.masks import binary_masks, descended_masks, masked_mean, starting_masks
from flanders.linalg.products import gram, mean
from flanders.linalg.selection import take_rows
from flanders.linalg.spectral import principal_components
from flanders.round import Differentiable, Round

CHECKED, ENOUGH = 10, 0.01
"""Every `CHECKED` steps, training stops if the loss has fallen by less than `ENOUGH` since the last check. Both
numbers are those of the authors' code."""


@dataclass(frozen=True)
class SkyMask(Stateless):
    r"""Keep the clients whose models get masks like that of the server's own model (SkyMask).

    To the models of the clients, the server adds a model that it has trained on its own examples (the global model
    plus `Round.root`). Each model gets a mask, which has a weight :math:`\sigma(l)` for each parameter of the
    model. Here :math:`\sigma` is the logistic function, and the number l is trained. The masks are trained on the
    server's examples, so that the mean of the models, weighted by their masks, has a low loss. Then each weight is
    set to 1 if it is above a half, and otherwise to 0. A mixture of two Gaussians is fitted to the first two
    principal components of the masks. The server's mask belongs to one of the two Gaussians. The score of a client
    is the probability that its mask does not belong to this Gaussian. Clients with a score of at most a half are
    kept.

    The method works with any number of malicious clients, if the server's data are like those of the clients. If
    the loss of the mean model has no finite gradient, clients whose models have no finite loss are dropped and get
    no mask. If training fails, all clients are dropped. The filter needs scikit-learn, and a `Round.evaluate` with
    a gradient. The simulator provides the gradient.

    Parameters
    ----------
    steps
        The largest number of training steps. Training stops earlier if the loss falls by less than 0.01 in 10
        steps.
    rate
        The learning rate of l. One step changes l by at most 1.

    Examples
    --------
    >>> from flanders.attacks import Gauss
    >>> from flanders.simulation import Federation, Setting, Simulation, Threat
    >>> from flanders.simulation.setting import Server
    >>> setting = Setting(
    ...     federation=Federation(num_clients=10, rounds=1),
    ...     threat=Threat(Gauss(), fraction=0.3, rotating=False),
    ...     server=Server(examples=100),
    ...     filter=SkyMask(),
    ... )
    >>> (record,) = Simulation(setting).run()
    >>> [client.kept for client in record.clients if client.malicious]
    [False, False, False]

    References
    ----------
    Yan et al., "SkyMask: attack-agnostic robust federated learning with fine-grained learnable masks", ECCV 2024.
    The defaults are those of the authors' code.
    """

    steps: int = 20
    rate: float = 1e7

    def __post_init__(self) -> None:
        check_number("SkyMask", "steps", self.steps, 1, whole=True)
        check_number("SkyMask", "rate", self.rate, 0)

    @property
    def needs_examples(self) -> bool:
        """Whether the filter needs the server's examples. It does: it trains the masks on them."""
        return True

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by the probability that its mask is not like that of the server's model."""
        losses = round_.evaluate
        if round_.root is None or not isinstance(losses, Differentiable):
            raise InputError(
                "SkyMask needs the server's own update (`root`) and losses with a gradient (`evaluate`), and "
                "this round does not have both. Give the server examples, or choose a filter that needs none."
            )
        order = round_.by_client()  # so that the order of the clients in the round does not matter
        usable = order[self._testable(round_, order, losses)]
        values = np.ones(order.size)
        masks = self._masks(round_, usable, losses) if usable.size else None
        if masks is not None:
            values[usable] = other_component(principal_components(gram(masks)))[:-1]
        return Scores(round_.clients, values, suspects=values > 0.5)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with a score of at most a half."""
        return np.flatnonzero(scores.values <= 0.5)

    def _testable(self, round_: Round, order: IntVector, losses: Differentiable) -> BoolVector:
        """Return which models get a mask: all models if the gradient at their mean is finite.

        Otherwise only the models with a finite loss get a mask.
        """
        if all_finite(losses.gradient(mean(round_.updates))):
            return np.ones(order.size, dtype=bool)
        return np.array([bool(np.all(np.isfinite(losses(round_.updates[int(i), :])))) for i in order])

    def _masks(self, round_: Round, order: IntVector, losses: Differentiable) -> Array | None:
        """Return the trained masks of the clients in `order`. The last mask is that of the server's model.

        Return None if training fails because a gradient is not finite.
        """
        xp = array_api_compat.array_namespace(round_.updates)
        server_model = (round_.global_model + round_.root)[None, :]
        rows = xp.concat([take_rows(round_.updates, order), server_model])
        loss_before, logits = math.inf, starting_masks(rows)
        for number in range(self.steps):
            middle = masked_mean(rows, logits)
            slope = losses.gradient(middle)
            if not all_finite(slope):
                return None
            logits = descended_masks(rows, logits, middle, slope, self.rate)
            if number % CHECKED == 0:
                loss = float(np.mean(losses(middle)))
                if loss_before - loss < ENOUGH:
                    break
                loss_before = loss
        return binary_masks(logits)


def other_component(points: FloatMatrix) -> FloatVector:
    """Fit two Gaussians. Return the probability that a point does not belong to the Gaussian of the last point."""
    if np.ptp(points, axis=0).max() == 0:
        return np.zeros(points.shape[0])
    with needing("sim"):
        from sklearn.mixture import GaussianMixture
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns if the fit has not converged: it is used as it is
        probabilities = GaussianMixture(n_components=2, random_state=0).fit(points).predict_proba(points)
    return np.asarray(1.0 - probabilities[:, np.argmax(probabilities[-1])], dtype=np.float64)
