"""Aggregators that carry something from round to round: the last step, or what was not yet applied."""

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
    """The last step of the global model."""

    step: Array = None


@dataclass(frozen=True)
class HistoryClipping(Remembering):
    r"""Move from where the last step would lead by the average displacement, each clipped to length `radius`.

    Centered clipping with its history: :math:`v = g + s`, with the last step s of the global model, then :math:`v
    \leftarrow v + \frac1m \sum_c (\theta_c - v) \min(1, \tau / \|\theta_c - v\|)`, `iterations` times. In the first
    round s is zero, and the aggregator is `centered-clipping`. The paper's clients send momenta, which change
    little from round to round. Here it is the displacements of local training.

    Parameters
    ----------
    radius
        The length tau. `None` takes the median distance to v at the start, so that no scale has to be known.
    iterations
        How often to clip and move. The paper takes one step.

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
        if self.radius is not None:
            check_number("HistoryClipping", "radius", self.radius, 0)
        check_number("HistoryClipping", "iterations", self.iterations, 1, whole=True)

    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, LastStep]:
        """Return the clipped step from where the last step would lead."""
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
    """The part of earlier steps that was not applied yet, and the running average of the steps."""

    rest: Array = None
    momentum: Array = None


@dataclass(frozen=True)
class SparseFed(Remembering):
    r"""Apply only the largest parameters of the clipped average step, and keep the rest for later rounds.

    .. math:: v \leftarrow \rho v + \frac1m \sum_c u_c \min(1, S / \|u_c\|), \qquad w \leftarrow w + v, \qquad
              g \leftarrow g + \operatorname{top}_k(w)

    What is applied is then set to zero in v and w. Attackers and honest clients compete for the k parameters.

    Parameters
    ----------
    share
        The share k / d of parameters that change in a round.
    radius
        The longest step S. `None` takes the median length of the round, so that no scale has to be known.
    momentum
        The factor rho of the earlier average steps.

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
        if self.radius is not None:
            check_number("SparseFed", "radius", self.radius, 0)
        check_number("SparseFed", "momentum", self.momentum, 0, 1)

    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, Unapplied]:
        """Return the global model with its most wanted parameters changed."""
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
        applied, none = largest_entries(w, count), xp.zeros_like(w)
        model = g + xp.where(applied, w, none)
        return model, Unapplied(xp.where(applied, none, w), xp.where(applied, none, v))
