"""PoisonedFL: an attack that pushes the model in the same direction in every round, so that the pushes add up.

Every `period` rounds the attacker tests whether the model has moved in this direction. If it has not, the attacker
pushes less.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, copied, like, to_numpy
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, norm
from flanders.checks import check_number
from flanders.state import saveable

SURE = 2.326
"""The limit of the attacker's test. The attacker counts the parameters that have moved in its direction. If they
moved at random, the count would be more than SURE standard deviations above its mean in only 1% of the tests."""
SHRINK, SMALLEST = 0.7, 0.5
"""If the test shows no effect, the strength is multiplied by SHRINK, unless the product is below SMALLEST. Both
values are those of the authors."""


@saveable
@dataclass(frozen=True, eq=False)
class Campaign:
    """What PoisonedFL remembers from round to round."""

    signs: Array
    """The direction of the attack: +1 or -1 for each parameter."""
    model: Array
    """The last global model."""
    sent: Array
    """The last malicious step. Zeros if no malicious step was sent yet."""
    tested: Array
    """The global model at the last test. Before the first test: the first global model that the attacker saw."""
    strength: float
    """The factor c in the formula of `PoisonedFL`."""
    rounds: int = 0
    """The number of rounds since the last test."""


@dataclass(frozen=True)
class PoisonedFL(Attack):
    r"""Push the model in the same random direction in all rounds, c times as far as the model's last step.

    .. math:: x = g + \lambda\, v \odot s, \qquad \lambda = c \|\Delta\|, \qquad
              v = \frac{|\Delta - \|\Delta\| k / \|k\||}{\|\Delta - \|\Delta\| k / \|k\|\|}

    All malicious clients send x. g is the global model. A step is the difference of two models: :math:`\Delta` is
    the last step of the global model, and k is the last step that malicious clients sent. The vector s has random
    signs that stay the same in all rounds. In the numerator of v, the bars take the absolute value of each
    parameter. The sign :math:`\odot` multiplies two vectors parameter by parameter. The attacker needs no honest
    model.

    Every `period` rounds the attacker tests its effect. It counts the parameters that have moved in the direction
    of s since the last test. The effect is clear if the count is above a limit that pure chance would exceed in
    only 1% of the tests. If it is not clear, the strength c is multiplied by 0.7, unless the product is below 0.5.
    In the first round that the attacker sees, there is no step of the global model yet. The attacker then sends its
    honest models.

    Parameters
    ----------
    strength
        The factor c at the start. The paper uses 8.
    period
        The number of rounds from one test to the next. The paper uses 50.

    Examples
    --------
    >>> attack = PoisonedFL(strength=2.0)
    >>> first = View(own=np.array([[0.5, 0.5]]), global_model=np.zeros(2), num_clients=4)
    >>> memory = attack.remember(first, attack(first))
    >>> second = View(np.array([[0.5, 0.5]]), np.array([3.0, 4.0]), 4, memory=memory)
    >>> np.abs(attack(second) - second.global_model)
    array([[6., 8.]])

    References
    ----------
    Xie, Fang and Gong, "Model poisoning attacks to federated learning via multi-round consistency", CVPR 2025.
    """

    strength: float = 8.0
    period: int = 50

    def __post_init__(self) -> None:
        check_number("PoisonedFL", "strength", self.strength, 0)
        check_number("PoisonedFL", "period", self.period, 1, whole=True)

    def rests(self, view: View) -> bool:
        """True in the first round that the attacker sees: there is no step of the global model yet."""
        return view.memory is None

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the pushed model."""
        if view.memory is None:
            return copied(view.own)
        return copies(view.global_model + self._step(view), view.num_malicious)

    def remember(self, view: View, sent: Array) -> Campaign:
        """Keep the direction, the global model and the malicious step. Test the effect every `period` rounds."""
        g, past = view.global_model, view.memory
        xp = array_api_compat.array_namespace(g)
        if past is None:
            coins = np.random.default_rng(seed_of(g)).integers(0, 2, size=g.shape[0])
            return Campaign(like(2.0 * coins - 1.0, g), copied(g), xp.zeros_like(g), copied(g), self.strength)
        strength, rounds, tested = self._strength(view), past.rounds + 1, past.tested
        if rounds == self.period:
            rounds, tested = 0, copied(g)
        return Campaign(past.signs, copied(g), sent[0, :] - g, tested, strength, rounds)

    def _step(self, view: View) -> Array:
        past = view.memory
        xp = array_api_compat.array_namespace(view.global_model)
        delta, k = view.global_model - past.model, past.sent
        delta_length, k_length = norm(delta), norm(k)
        v = xp.abs(delta - k * (delta_length / k_length if k_length > 0 else 0.0))
        v_length = norm(v)
        return self._strength(view) * delta_length / (v_length if v_length > 0 else 1.0) * v * past.signs

    def _strength(self, view: View) -> float:
        """Return the strength c for this round. Every `period` rounds a test may lower it."""
        past = view.memory
        if past.rounds + 1 < self.period:
            return float(past.strength)
        xp = array_api_compat.array_namespace(view.global_model)
        moved = view.global_model - past.tested
        d = view.global_model.shape[0]
        aligned = int(xp.count_nonzero(xp.sign(moved) == past.signs))
        smaller = past.strength * SHRINK
        return (
            smaller if aligned < d / 2 + SURE * math.sqrt(d) / 2 and smaller >= SMALLEST else float(past.strength)
        )


def seed_of(model: Array) -> int:
    """Return a seed computed from the first 64 parameters of a model. The same model gives the same seed."""
    return zlib.crc32(to_numpy(model[: min(64, model.shape[0])]).tobytes())
