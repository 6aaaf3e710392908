"""The filter `Afa` (adaptive federated averaging).

It drops clients whose models have an unusual cosine with the average model. It blocks clients that it drops often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import Array, BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.checks import check_choice, check_number
from flanders.client_ids import ClientId
from flanders.client_memory import newest_clients
from flanders.filters.filter import Filter, Scores, check_state
from flanders.linalg.products import gram
from flanders.round import Round
from flanders.state import saveable

ANGLES = ("models", "updates")
PRIOR = 3
"""A new client counts as if it had been kept in this many rounds, and dropped in as many. The number is that of the
paper."""


@saveable
@dataclass(frozen=True, eq=False)
class AfaState:
    """The memory of `Afa`."""

    counts: dict[ClientId, tuple[int, int]] = field(default_factory=dict)
    """For each client: the numbers of rounds in which it was kept and in which it was dropped."""


@dataclass(frozen=True)
class Afa(Filter[AfaState]):
    r"""Drop clients whose cosine with the average is unusual, and block clients that are often dropped (AFA).

    Let :math:`\alpha` be 3 plus the number of rounds in which a client was kept, and :math:`\beta` be 3 plus the
    number of rounds in which it was dropped. The client's chance of being honest is
    :math:`\alpha / (\alpha + \beta)`.

    The filter averages the models of all clients that are not blocked. The weight of a model in this average is the
    weight of the client times its chance of being honest. Then the filter computes the cosine of each client's
    model with this average. If the mean of the cosines is below their median, clients with a cosine far below the
    median are dropped. Otherwise clients with a cosine far above the median are dropped. The average and the
    cosines are computed again with the clients that are left, until no further client is dropped.

    A client is blocked for good if the probability that it is dropped in more than half of its rounds,
    :math:`I_{0.5}(\alpha, \beta)`, reaches `block`. Here I is the regularised incomplete beta function.

    In the paper the chances of being honest are also weights of the average that is the new global model. Here, any
    aggregator can follow the filter.

    Parameters
    ----------
    slack
        A cosine is far above or below the median if it differs from the median by more than this many standard
        deviations of the cosines.
    step
        By how much `slack` grows with each repetition.
    block
        The probability at which a client is blocked.
    angles
        Which vectors the cosines are computed from. `"models"`: the models, as in the paper. `"updates"`: the
        differences between the models and the global model.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [1.0, 0.2], [1.0, -0.2], [-1.0, 0.0]])
    >>> afa = Afa()
    >>> afa.select(afa.score(afa.init(), Round(rows)))
    array([0, 1, 2, 3, 4])

    References
    ----------
    Muñoz-González, Co and Lupu, "Byzantine-robust federated machine learning through adaptive model
    averaging", 2019.
    """

    slack: float = 2.0
    step: float = 0.5
    block: float = 0.95
    angles: str = "models"

    def __post_init__(self) -> None:
        check_number("Afa", "slack", self.slack, 0)
        check_number("Afa", "step", self.step, 0)
        check_number("Afa", "block", self.block, 0, 1)
        check_choice("Afa", "angles", self.angles, ANGLES)

    def init(self, rng: np.random.Generator | None = None) -> AfaState:
        """Return an empty memory."""
        return AfaState()

    def score(self, state: AfaState, round_: Round) -> Scores | None:
        """Score each client by one minus its cosine with the average of the clients that are left."""
        check_state("Afa", state, AfaState)
        seen = [state.counts.get(client, (0, 0)) for client in round_.clients]
        counts = [(PRIOR + times_kept, PRIOR + times_dropped) for times_kept, times_dropped in seen]
        blocked = np.array([regularised_half(*count) >= self.block for count in counts])
        chances = np.array([kept / (kept + dropped) for kept, dropped in counts])
        products = gram(round_.updates, None if self.angles == "models" else round_.global_model)
        cosines, good = self._search(products, chances * round_.weights, ~blocked)
        reasons = tuple("blocked: dropped too often" if b else "" for b in blocked)
        return Scores(round_.clients, 1.0 - cosines, suspects=~good, reasons=reasons, evidence=blocked)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients that are neither outliers nor blocked."""
        assert scores.suspects is not None
        return np.flatnonzero(~scores.suspects)

    def amend(
        self, state: AfaState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> AfaState:
        """Return the counts after a round. The counts of blocked clients do not change."""
        check_state("Afa", state, AfaState)
        scores = self.score(state, round_) if scores is None else scores
        assert scores is not None
        kept_rows, counts = set(kept.tolist()), {}
        for row, (client, blocked) in enumerate(zip(round_.clients, np.asarray(scores.evidence), strict=True)):
            times_kept, times_dropped = state.counts.get(client, (0, 0))
            if not blocked:
                times_kept, times_dropped = times_kept + (row in kept_rows), times_dropped + (row not in kept_rows)
            counts[client] = times_kept, times_dropped
        return AfaState(newest_clients(state.counts, counts, len(round_.clients)))

    def _search(
        self, products: FloatMatrix, weights: FloatVector, good: BoolVector
    ) -> tuple[FloatVector, BoolVector]:
        """Return the cosines of all clients with the last average, and which clients are left.

        `good` says which clients are not blocked.
        """
        slack, lengths = self.slack, np.sqrt(np.maximum(np.diagonal(products), 0.0))
        while True:
            share = np.where(good, weights, 0.0)
            share = share if share.any() else good.astype(float)
            inner = products @ share
            scale = lengths * math.sqrt(max(float(share @ inner), 0.0))
            cosines = np.divide(inner, scale, out=np.zeros_like(inner), where=scale > 0)
            if not good.any():
                return cosines, good
            mean, median, spread = cosines[good].mean(), np.median(cosines[good]), cosines[good].std()
            far = slack * spread + 1e-12  # differences from rounding do not make an outlier
            out = cosines < median - far if mean < median else cosines > median + far
            if not (out & good).any():
                return cosines, good
            good, slack = good & ~out, slack + self.step


def regularised_half(a: int, b: int) -> float:
    """Return :math:`I_{0.5}(a, b)`: the probability that a number with the beta distribution (a, b) is below 0.5.

    Examples
    --------
    >>> regularised_half(3, 3), regularised_half(3, 9)
    (0.5, 0.96728515625)
    """
    n = a + b - 1
    return float(sum(math.comb(n, j) for j in range(a, n + 1)) / 2**n)
