"""The filter `FLDetector`. It predicts each client's update, and drops clients whose updates are often far off."""

from __future__ import annotations

from dataclasses import dataclass, field

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatVector, IntVector, copied
from flanders.checks import check_number
from flanders.client_ids import ClientId
from flanders.client_memory import newest_clients
from flanders.filters.filter import Filter, Scores, check_keep, check_state, draw_seed, lowest
from flanders.linalg.clusters import line_clusters, num_clusters
from flanders.linalg.products import combine, projections, squared_norms
from flanders.round import Round, check_continued
from flanders.state import saveable

FARTHEST = 1e150
"""A distance whose square overflows is replaced by this. The sum of all distances is then still finite."""


@saveable
@dataclass(frozen=True, eq=False)
class FLDetectorState:
    """The memory of `FLDetector`."""

    seed: int
    """The secret seed of the random numbers in the gap statistic; see `num_clusters`."""
    round_number: int = 0
    """How many rounds the filter has seen."""
    last: dict[ClientId, Array] = field(default_factory=dict)
    """For each client: its update in the last round in which it took part.

    This is the difference between its model and the global model at the start of that round.
    """
    global_model: Array = None
    """The global model at the start of the last round."""
    global_update: Array = None
    """The change of the global model in the last round."""
    steps: tuple[Array, ...] = ()
    """The last steps, oldest first. A step leads from the global model at the start of one round to that at the
    start of the next round."""
    changes: tuple[Array, ...] = ()
    """For each step: the `global_update` of the round to which it leads, minus that of the round before."""
    distances: dict[ClientId, FloatVector] = field(default_factory=dict)
    """For each client: the distances between its updates and their predictions in the last rounds, oldest first.

    Each distance was divided by the sum of the distances of all clients in the round.
    """


@dataclass(frozen=True)
class FLDetector(Filter[FLDetectorState]):
    r"""Drop the clients whose updates are far from what their own last updates predict.

    The prediction for client c in round t is

    .. math:: \hat u_c = u_c^{t-1} + \hat H (g_t - g_{t-1}),

    where u is an update (the difference between the client's model and the global model), g is the global model,
    and :math:`\hat H` is an estimate of the Hessian of the loss by L-BFGS. In each round the distance between a
    client's update and its prediction is divided by the sum of these distances over all clients. The result is the
    client's share. The score is the mean of the client's shares in its last `window` rounds. A client that takes
    part for the first time gets the median score of the round. There are no scores in the first round.

    By default, as in the paper of FLDetector, the gap statistic (see `num_clusters`) tells whether the scores form
    more than one cluster. If so, the scores are divided into two clusters, and the clients in the cluster with the
    higher scores are dropped.

    Parameters
    ----------
    keep
        How many clients to keep: a number, or a fraction of the round. The clients with the lowest scores are kept,
        whatever the gap statistic tells. The FLANDERS paper keeps m - b of m clients, where b is the number of
        malicious clients.
    window
        A client's score is the mean of its last `window` shares. The Hessian is estimated from the last `window`
        steps of the global model.

    Examples
    --------
    >>> from flanders import Defense
    >>> rng = np.random.default_rng(0)
    >>> steps = rng.normal(size=(10, 200))
    >>> defense, model = Defense(FLDetector(keep=7), seed=0), np.zeros(200)
    >>> for t in range(6):
    ...     models = model + 0.9**t * steps + 0.01 * rng.normal(size=(10, 200))
    ...     models[:3] = model + rng.normal(size=(3, 200))  # three clients send something else in each round
    ...     outcome = defense(models, global_model=model)
    ...     model = outcome.model
    >>> outcome.dropped
    (0, 1, 2)

    References
    ----------
    Zhang et al., "FLDetector: defending federated learning against model poisoning attacks via
    detecting malicious clients", KDD 2022.
    """

    keep: float | None = None
    window: int = 20

    def __post_init__(self) -> None:
        check_keep("FLDetector", self.keep)
        check_number("FLDetector", "window", self.window, 1, whole=True)

    def init(self, rng: np.random.Generator | None = None) -> FLDetectorState:
        """Return an empty memory."""
        return FLDetectorState(draw_seed(rng))

    def score(self, state: FLDetectorState, round_: Round) -> Scores | None:
        """Score each client by the mean of its last `window` shares. In the first round, return None."""
        check_state("FLDetector", state, FLDetectorState)
        if not state.last:
            return None
        check_continued(round_, state.global_model)
        step = round_.global_model - state.global_model
        xp = array_api_compat.array_namespace(step)
        last = xp.stack([state.last.get(c, 0 * step) for c in round_.clients])
        known = np.array([c in state.last for c in round_.clients])
        with np.errstate(over="ignore", invalid="ignore"):
            predicted_change = hessian_times(step, state.steps, state.changes)
            expected = last + (round_.global_model + predicted_change)[None, :]
            far = np.sqrt(squared_norms(round_.updates, expected))
        distances = np.where(known, np.nan_to_num(far, nan=FARTHEST, posinf=FARTHEST), np.nan)
        total = distances[known].sum()
        shares = distances / total if total > 0 else np.where(known, 1.0 / max(known.sum(), 1), np.nan)
        values = np.array(
            [
                np.mean(np.append(state.distances.get(c, np.empty(0)), share)[-self.window :])
                for c, share in zip(round_.clients, shares, strict=True)
            ]
        )
        middle = float(np.median(values[known])) if known.any() else 0.0
        values = np.where(known, values, middle)
        suspects = np.zeros(values.size, dtype=bool)
        rng = np.random.default_rng([state.seed, state.round_number])
        if self.keep is None and values.size > 1 and num_clusters(values, rng) > 1:
            suspects = line_clusters(values, 2)[1][1] == 1
        return Scores(round_.clients, values, suspects=suspects, evidence=shares)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the `keep` lowest scores, or those outside the cluster of higher scores."""
        if self.keep is not None:
            return lowest(scores, self.keep)
        assert scores.suspects is not None
        return np.flatnonzero(~scores.suspects)

    def amend(
        self,
        state: FLDetectorState,
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> FLDetectorState:
        """Return the memory after a round. It has the updates of all clients, including dropped clients."""
        check_state("FLDetector", state, FLDetectorState)
        if scores is None:
            scores = self.score(state, round_)
        steps, changes = state.steps, state.changes
        update = model - round_.global_model
        if state.global_model is not None:
            steps = (*steps, round_.global_model - state.global_model)[-self.window :]
            changes = (*changes, update - state.global_update)[-self.window :]
        distances, m = {}, len(round_.clients)
        if scores is not None and isinstance(scores.evidence, np.ndarray):
            for client, share in zip(round_.clients, scores.evidence, strict=True):
                if not np.isnan(share):
                    past = state.distances.get(client, np.empty(0))
                    distances[client] = np.append(past, share)[-self.window :]
        last = {c: round_.updates[i, :] - round_.global_model for i, c in enumerate(round_.clients)}
        return FLDetectorState(
            state.seed,
            state.round_number + 1,
            newest_clients(state.last, last, m),
            copied(round_.global_model),
            update,
            steps,
            changes,
            newest_clients(state.distances, distances, m),
        )


def hessian_times(vector: Array, steps: tuple[Array, ...], changes: tuple[Array, ...]) -> Array:
    r"""Return the L-BFGS estimate of the Hessian H, multiplied by a vector v.

    The columns of the matrix S are the `steps`. The columns of the matrix Y are the `changes` of the gradient in
    these steps. (`FLDetector` uses its global updates in place of gradients.) The estimate has a compact form. Let
    :math:`\sigma = \langle y, s \rangle / \langle s, s \rangle` for the newest step s and change y. Let L be the
    part of :math:`S^T Y` below its diagonal, and D its diagonal. Then

    .. math:: H v = \sigma v - [\sigma S \; Y]
              \begin{pmatrix} \sigma S^T S & L \\ L^T & -D \end{pmatrix}^{-1}
              \begin{pmatrix} \sigma S^T v \\ Y^T v \end{pmatrix}.

    References
    ----------
    Byrd, Nocedal and Schnabel, "Representations of quasi-Newton matrices and their use in limited
    memory methods", Mathematical Programming 1994.
    """
    if not steps:
        return 0 * vector
    xp = array_api_compat.array_namespace(vector)
    s, y = xp.stack(list(steps)), xp.stack(list(changes))
    n = len(steps)
    ss, sy = projections(s, s), projections(s, y)
    if ss[-1, -1] <= 0:
        return 0 * vector
    sigma = sy[-1, -1] / ss[-1, -1]
    lower, diagonal = np.tril(sy, -1), np.diag(np.diagonal(sy))
    middle = np.block([[sigma * ss, lower], [lower.T, -diagonal]])
    sv, yv = projections(s, vector[None, :])[:, 0], projections(y, vector[None, :])[:, 0]
    weights = np.linalg.pinv(middle, rcond=1e-10) @ np.concatenate([sigma * sv, yv])
    return float(sigma) * vector - combine(sigma * weights[:n], s) - combine(weights[n:], y)
