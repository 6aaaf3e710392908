"""Two aggregators with a memory of earlier changes of the global model: `HistoryClipping` and `SparseFed`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.aggregators.aggregator import Remembering, recalled
from flanders.arrays import Array
from flanders.checks import check_number
from flanders.linalg.products import clip_factors, clipped_steps, move, squared_norms
from flanders.linalg.selection import largest_entries
from flanders.round import Round, check_continued
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class LastStep:
    """The memory of `HistoryClipping`."""

    step: Array = None
    """The change of the global model in the last round; None before the first round."""


@dataclass(frozen=True)
class HistoryClipping(Remembering):
    r"""Repeat the last change of the global model, and start centered clipping from the result.

    .. math:: v \leftarrow v + \frac1m \sum_c (\theta_c - v) \min(1, \tau / \|\theta_c - v\|)

    The sum is over the m clients, and :math:`\theta_c` is the model of client c. v starts at :math:`g + s`. Here g
    is the global model, and s is the change of the global model in the last round. In the first round s is zero,
    and the aggregator is the same as `centered-clipping` with the same parameters. In the paper clients send
    momenta, which change little from round to round. Here they send models.

    Parameters
    ----------
    radius
        The largest length :math:`\tau` of a displacement from v. Default: the median distance of the models to the
        first v.
    iterations
        How many times the step of the formula is taken. The paper takes one step.

    Examples
    --------
    >>> HistoryClipping(radius=1.0)(np.array([[0.5, 0.], [0., -0.5], [300., 400.]]))
    array([0.36666667, 0.1       ])

    References
    ----------
    Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021.
    """

    radius: float | None = None
    iterations: int = 1

    def __post_init__(self) -> None:
        check_number("HistoryClipping", "radius", self.radius, 0, optional=True)
        check_number("HistoryClipping", "iterations", self.iterations, 1, whole=True)

    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, LastStep]:
        """Return the new global model, and the change of the global model for the next round."""
        last, g = recalled(self, memory, LastStep).step, round_.global_model
        if last is not None:
            check_continued(round_, last)
        m = len(round_.clients)
        start = g if last is None else g + last
        v = clipped_steps(round_.updates, start, np.full(m, 1 / m), self.radius, self.iterations)
        return v, LastStep(v - g)


@saveable
@dataclass(frozen=True, eq=False)
class Unapplied:
    """The memory of `SparseFed`."""

    rest: Array = None
    """The part of earlier steps that was not applied yet: w in the formula. None before the first round."""
    momentum: Array = None
    """The decaying sum of earlier steps: v in the formula. None before the first round."""


@dataclass(frozen=True)
class SparseFed(Remembering):
    r"""Add up the average steps of all rounds. Each round changes only the parameters where this sum is largest.

    .. math:: v \leftarrow \rho v + \frac1m \sum_c u_c \min(1, S / \|u_c\|), \qquad w \leftarrow w + v, \qquad
              g \leftarrow g + \operatorname{top}_k(w)

    Here m is the number of clients, g is the global model, and :math:`u_c` is the displacement of client c's model
    from g. v and w start at zero. :math:`\operatorname{top}_k` keeps the k parameters with the largest absolute
    values. These k parameters are then set to zero in v and w, and the rest of w is kept for later rounds.
    Attackers and honest clients compete for the k parameters that change.

    Parameters
    ----------
    share
        The share k / d of the d parameters that change in a round.
    radius
        The largest length S of a displacement. Default: the median length of the displacements of the round.
    momentum
        The factor :math:`\rho` of the old v. By default it is 0, and v is the average step of this round only.

    Examples
    --------
    >>> SparseFed(share=0.5)(np.array([[3., 4.], [3., 4.]]))
    array([0., 4.])

    References
    ----------
    Panda et al., "SparseFed: mitigating model poisoning attacks in federated learning with sparsification",
    AISTATS 2022.
    """

    share: float = 0.1
    radius: float | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_number("SparseFed", "share", self.share, 0, 1)
        check_number("SparseFed", "radius", self.radius, 0, optional=True)
        check_number("SparseFed", "momentum", self.momentum, 0, 1)

    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, Unapplied]:
        """Return the global model with k parameters changed, and the memory of what was not applied."""
        past, g = recalled(self, memory, Unapplied), round_.global_model
        if past.rest is not None:
            check_continued(round_, past.rest)
        lengths = np.sqrt(squared_norms(round_.updates, g))
        radius = float(np.median(lengths)) if self.radius is None else self.radius
        moved = move(g, clip_factors(lengths, radius) / lengths.size, round_.updates)
        v = moved - g
        if past.rest is not None:
            v = v + self.momentum * past.momentum
        w = v if past.rest is None else past.rest + v
        count = math.ceil(self.share * g.shape[0])
        if past.rest is None and count == g.shape[0]:
            return moved, Unapplied(0 * w, 0 * w)
        xp = array_api_compat.array_namespace(g)
        applied, zeros = largest_entries(w, count), xp.zeros_like(w)
        model = g + xp.where(applied, w, zeros)
        return model, Unapplied(xp.where(applied, zeros, w), xp.where(applied, zeros, v))
