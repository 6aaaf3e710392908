"""Attacks that hide: they grow slowly, pause, keep most of the honest step, or add noise to identical models.

In the formulas, g is the global model. theta_c is what client c has honestly trained, and x_c is what it sends. The
step of a client is its model minus g.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flanders.arrays import Array, copied, like, normals_like
from flanders.attacks.agr import AgrMinMax
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import direction_against, is_honest
from flanders.attacks.statistical import little_is_enough_z
from flanders.checks import check_instance, check_number
from flanders.linalg.columns import column_moments
from flanders.linalg.products import squared_norms
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class Drift:
    """What `SlowDrift` remembers: its direction, and the number of rounds that it has poisoned."""

    direction: Array | None = None
    rounds: int = 0


@dataclass(frozen=True)
class SlowDrift(Attack):
    r"""Pull each honest step in a fixed harmful direction, a little more in each round.

    .. math:: x_c = \theta_c + \min(t \rho, \kappa)\,\|\theta_c - g\|\, v

    t counts the poisoned rounds, from 1. The unit vector v is the direction of the pull. It is opposite to the mean
    honest step of the first round that the attacker saw. The pull changes little from one round to the next. A
    filter that learns from accepted models may get used to the pull, and in the end accept even a long one.

    Parameters
    ----------
    rate
        How much longer the pull gets in each round, :math:`\rho`, as a multiple of the length of the honest step.
    cap
        The length of the longest pull, :math:`\kappa`, as a multiple of the length of the honest step.

    Examples
    --------
    >>> attack, rng = SlowDrift(rate=0.1, cap=1.0), np.random.default_rng(0)
    >>> first = View(own=np.array([[10.0, 0.0]]), global_model=np.zeros(2), num_clients=4)
    >>> attack.craft(first, rng)
    array([[9., 0.]])
    >>> memory = attack.remember(first, attack.craft(first, rng))
    >>> second = View(own=np.array([[0.0, 10.0]]), global_model=np.zeros(2), num_clients=4, memory=memory)
    >>> attack.craft(second, rng)
    array([[-2., 10.]])

    References
    ----------
    This package.
    """

    rate: float = 0.1
    cap: float = 1.0

    def __post_init__(self) -> None:
        check_number("SlowDrift", "rate", self.rate, 0)
        check_number("SlowDrift", "cap", self.cap, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the honest models with this round's pull."""
        past = view.memory or Drift()
        v = direction_against(view) if past.direction is None else past.direction
        if v is None:
            return copied(view.own)
        pull = min((past.rounds + 1) * self.rate, self.cap)
        lengths = like(pull * np.sqrt(squared_norms(view.own, view.global_model)), view.own)
        return view.own + lengths[:, None] * v[None, :]

    def remember(self, view: View, sent: Array) -> Drift:
        """Keep the direction once it is known, and count the poisoned rounds."""
        past = view.memory or Drift()
        v = direction_against(view) if past.direction is None else past.direction
        return Drift(v, past.rounds + (not is_honest(view, sent)))


@saveable
@dataclass(frozen=True, eq=False)
class Phase:
    """What `OnOff` remembers: the number t of its formula, and the memory of its base attack."""

    rounds: int = 0
    base: object = None


@dataclass(frozen=True)
class OnOff(Attack):
    r"""Attack for some rounds, then be honest for some rounds to regain trust, and so on.

    .. math:: x_c = \begin{cases} \text{what the base attack crafts} & t \bmod (n_1 + n_0) < n_1 \\
              \theta_c & \text{otherwise} \end{cases}

    t counts the rounds in which a client of the attacker takes part. It is 0 in the first poisoned round.
    :math:`n_1` is `on`, and :math:`n_0` is `off`.

    Parameters
    ----------
    on
        How many rounds to attack, :math:`n_1`.
    off
        How many rounds to be honest after that, :math:`n_0`.
    base
        The attack of the poisoned rounds.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from flanders.attacks import SignFlip
    >>> attack, rng = OnOff(on=1, off=1, base=SignFlip()), np.random.default_rng(0)
    >>> view = View(own=np.array([[3.0, 1.0]]), global_model=np.zeros(2), num_clients=4)
    >>> attack.craft(view, rng)
    array([[-3., -1.]])
    >>> attack.craft(replace(view, memory=attack.remember(view, attack.craft(view, rng))), rng)
    array([[3., 1.]])

    References
    ----------
    This package.
    """

    on: int = 2
    off: int = 2
    base: Attack = field(default_factory=AgrMinMax)

    def __post_init__(self) -> None:
        check_number("OnOff", "on", self.on, 1, whole=True)
        check_number("OnOff", "off", self.off, 0, whole=True)
        check_instance(type(self).__name__, "base", self.base, Attack, "AgrMinMax()")

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the rows of the base attack, or the honest models in an honest round."""
        if self.rests(view):
            return copied(view.own)
        return self.base.craft(replace(view, memory=(view.memory or Phase()).base), rng)

    def rests(self, view: View) -> bool:
        """Whether this is one of the honest rounds."""
        return bool((view.memory or Phase()).rounds % (self.on + self.off) >= self.on)

    def remember(self, view: View, sent: Array) -> Phase:
        """Count the round if the attack has begun, and let the base attack remember it."""
        past = view.memory or Phase()
        begun = past.rounds > 0 or not is_honest(view, sent)
        return Phase(past.rounds + begun, self.base.remember(replace(view, memory=past.base), sent))


@dataclass(frozen=True)
class KeptSignature(Attack):
    r"""Shift each client's own model like the attack `Lie`, so that the model stays typical of the client.

    .. math:: x_c = \theta_c - z \sigma

    :math:`\sigma` is the standard deviation of each parameter over the honest models that the attacker knows. In
    `Lie`, all malicious clients send the same shifted mean. Here each malicious client shifts its own model. So its
    step still resembles its earlier honest steps, which came from the same data. This is meant to mislead a filter
    that compares each client with its own past.

    Parameters
    ----------
    z
        By how many standard deviations the models are shifted. Default: the z of `Lie`.
    rescale
        Whether to scale the shifted step to the length of the honest step: :math:`x_c = g + \|u_c\|\,(u_c -
        z\sigma) / \|u_c - z\sigma\|` with :math:`u_c = \theta_c - g`.

    Examples
    --------
    >>> view = View(
    ...     own=np.array([[3.0, 5.0]]),
    ...     global_model=np.zeros(2),
    ...     num_clients=3,
    ...     benign=np.array([[1.0, 5.0], [3.0, 5.0]]),
    ... )
    >>> KeptSignature(z=2.0)(view)
    array([[1., 5.]])

    References
    ----------
    This package.
    """

    z: float | None = None
    rescale: bool = False

    def __post_init__(self) -> None:
        check_number("KeptSignature", "z", self.z, 0, optional=True)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the shifted honest models."""
        z = little_is_enough_z(view.num_clients, view.num_malicious) if self.z is None else self.z
        _, sigma = column_moments(view.honest, view.global_model)
        shifted = view.own - z * sigma[None, :]
        if not self.rescale:
            return shifted
        g = view.global_model
        honest_lengths, lengths = np.sqrt(squared_norms(view.own, g)), np.sqrt(squared_norms(shifted, g))
        factors = np.divide(honest_lengths, lengths, out=np.ones_like(lengths), where=lengths > 0)
        return g[None, :] + like(factors, shifted)[:, None] * (shifted - g[None, :])


@dataclass(frozen=True)
class NoisyClones(Attack):
    r"""Add different noise to each malicious model of a base attack, so that no two models are equal.

    .. math:: x_c = y_c + \nu\,\|y_c - g\|\, n_c

    The base attack crafts the model :math:`y_c`. The :math:`n_c` are independent random unit vectors. In many
    dimensions such vectors are nearly orthogonal. So if the base attack sends the same model y for two clients,
    their noisy models are about :math:`\sqrt{2}\,\nu\,\|y - g\|` apart.

    Parameters
    ----------
    noise
        The length of the noise, :math:`\nu`, as a multiple of the length of the base attack's step y_c - g.
    base
        The attack that crafts the models, typically one that sends the same model for all malicious clients.

    Examples
    --------
    >>> benign = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0]])
    >>> view = View(own=np.zeros((2, 3)), global_model=np.zeros(3), num_clients=4, benign=benign)
    >>> AgrMinMax()(view)
    array([[1., 5., 0.],
           [1., 5., 0.]])
    >>> NoisyClones(noise=0.1)(view, np.random.default_rng(0)).round(1)
    array([[1.1, 4.9, 0.5],
           [1.1, 4.6, 0.3]])

    References
    ----------
    This package.
    """

    noise: float = 0.1
    base: Attack = field(default_factory=AgrMinMax)

    def __post_init__(self) -> None:
        check_number("NoisyClones", "noise", self.noise, 0)
        check_instance(type(self).__name__, "base", self.base, Attack, "AgrMinMax()")

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the base attack's rows, each with different noise.

        In a round in which the base attack sends honest models, the rows get no noise.
        """
        rows = self.base.craft(view, rng)
        if self.rests(view):
            return rows
        noise = normals_like(rows, rng)
        squared_steps, squared_noise = squared_norms(rows, view.global_model), squared_norms(noise)
        scales = like(self.noise * np.sqrt(squared_steps / squared_noise), rows)
        return rows + scales[:, None] * noise

    def rests(self, view: View) -> bool:
        """Whether the base attack sends only honest models in this round."""
        return self.base.rests(view)

    def remember(self, view: View, sent: Array) -> object:
        """Return what the base attack remembers."""
        return self.base.remember(view, sent)
