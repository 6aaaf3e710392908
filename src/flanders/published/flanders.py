"""The filter FLANDERS as the code published with the paper computes it, to repeat the paper's numbers.

The filter fits a forecasting model, MAR (matrix autoregression), to the clients' models of the last round. It drops
clients whose new models are far from the forecast. `flanders.filters.Flanders` follows the equations of the paper
instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, to_numpy
from flanders.checks import check_number
from flanders.filters.filter import Filter, Scores, check_state, draw_seed
from flanders.filters.forecast.calibration import (
    MIN_HONEST,
    Calibration,
    calibrate,
    calibrated_probabilities,
    check_keep_or_threshold,
    select_by_keep_or_threshold,
)
from flanders.filters.forecast.history import Snapshot
from flanders.linalg.selection import replace_rows, take_columns
from flanders.round import Round
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class FlandersReferenceState:
    """The memory of `FlandersReference`."""

    seed: int
    """The secret seed from which the sampled parameters and the starting points of the fits are drawn."""
    round_number: int = 0
    """How many rounds the filter has seen."""
    newest: Snapshot | None = None
    """The sampled parameters of the last round's models. Dropped models are replaced by the new global model."""
    calibration: Calibration = field(default_factory=Calibration)
    """A summary of the scores of kept clients in earlier rounds. It is used only with a `threshold`."""


@dataclass(frozen=True)
class FlandersReference(Filter[FlandersReferenceState]):
    r"""Drop the clients whose models are far from the forecast that the paper's published code makes.

    .. math:: \hat X_t = A\, X_{t-1} B^\top, \quad \text{score}_c = \|\theta_c - \hat\theta_c\|

    :math:`X_t` has a row for each client: its model :math:`\theta_c` in round t. :math:`\hat\theta_c` is the row of
    client c in the forecast :math:`\hat X_t`. A and B are fitted matrices (see `reference_forecast`).

    `Flanders` follows the equations of the paper. The published code differs from these equations: it forecasts a
    round only from the round before. It looks at `sample` parameters, which are drawn once, with replacement. The
    distance is the L2 distance. In the memory, the *new* global model replaces the model of a dropped client.

    Parameters
    ----------
    keep
        How many clients to keep in a round: a number, or a fraction of the clients of the round.
    threshold
        Keep the clients whose probability of being malicious is at most this; see `Flanders`. Give either `keep` or
        `threshold`.
    min_honest
        The filter assumes that in every round at least this share of the clients is honest. Used only with
        `threshold`.
    iterations
        The number of iterations of each fit.
    sample
        How many parameters to look at.

    Examples
    --------
    >>> from flanders import Defense
    >>> rng = np.random.default_rng(0)
    >>> honest = rng.normal(size=(10, 50))
    >>> defense = Defense(FlandersReference(keep=7, sample=50), seed=0)
    >>> for t in range(3):
    ...     models = honest + 0.01 * rng.normal(size=(10, 50))
    ...     if t == 2:
    ...         models[:3] += 10.0
    ...     outcome = defense(models)
    >>> outcome.dropped
    (0, 1, 2)

    References
    ----------
    Gabrielli et al., "Protecting federated learning from extreme model poisoning attacks via
    multidimensional time series anomaly detection".
    """

    keep: float | None = None
    threshold: float | None = None
    min_honest: float = MIN_HONEST
    iterations: int = 100
    sample: int = 500

    def __post_init__(self) -> None:
        check_keep_or_threshold("FlandersReference", self.keep, self.threshold, self.min_honest)
        check_number("FlandersReference", "iterations", self.iterations, 1, whole=True)
        check_number("FlandersReference", "sample", self.sample, 1, whole=True)

    def init(self, rng: np.random.Generator | None = None) -> FlandersReferenceState:
        """Return an empty memory and a secret seed."""
        return FlandersReferenceState(draw_seed(rng))

    def score(self, state: FlandersReferenceState, round_: Round) -> Scores | None:
        """Score each client by the distance of its model to the forecast. Return None in the first round."""
        check_state("FlandersReference", state, FlandersReferenceState)
        if state.newest is None:
            return None
        values, chance = self._distances(state, state.newest, round_), None
        if self.threshold is not None:
            chance = calibrated_probabilities(state.calibration, values, self.min_honest)
        return Scores(round_.clients, values, chance)

    def select(self, scores: Scores) -> IntVector:
        """Keep the `keep` clients with the lowest scores, or those with a probability of at most `threshold`."""
        return select_by_keep_or_threshold(scores, self.keep, self.threshold)

    def amend(
        self,
        state: FlandersReferenceState,
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> FlandersReferenceState:
        """Remember the round, with the new global model in place of the models of dropped clients."""
        check_state("FlandersReference", state, FlandersReferenceState)
        calibration = state.calibration
        if self.threshold is not None and scores is not None:
            calibration = calibrate(calibration, scores.values, kept, self.min_honest)
        columns = self.visible_columns(state, round_.updates.shape[1])
        rejected = np.setdiff1d(np.arange(len(round_.clients)), kept)
        new = take_columns(model[None, :], columns)[0, :]
        rows = replace_rows(take_columns(round_.updates, columns), rejected, [new] * len(rejected))
        newest = Snapshot(round_.clients, rows, new)
        return FlandersReferenceState(state.seed, state.round_number + 1, newest, calibration)

    def visible_columns(
        self, state: FlandersReferenceState, d: int, layers: Mapping[str, int] | None = None
    ) -> IntVector:
        """Return the parameters that the filter looks at in every round."""
        return np.random.default_rng([state.seed, 0]).integers(0, d, size=self.sample)

    def _distances(self, state: FlandersReferenceState, newest: Snapshot, round_: Round) -> FloatVector:
        """Return the distance of each model to its forecast.

        If a client did not take part in the last round, its forecast is the global model.
        """
        columns = self.visible_columns(state, round_.updates.shape[1])
        sent = np.asarray(to_numpy(take_columns(round_.updates, columns)), dtype=np.float64)
        rows = np.asarray(to_numpy(newest.rows), dtype=np.float64)
        rng = np.random.default_rng([state.seed, 1, state.round_number])
        start = rng.standard_normal((self.sample, self.sample))
        predicted = reference_forecast(rows, start, iterations=self.iterations)
        global_model = np.asarray(
            to_numpy(take_columns(round_.global_model[None, :], columns))[0], dtype=np.float64
        )
        place = {c: i for i, c in enumerate(newest.clients)}
        forecast = np.stack([predicted[place[c]] if c in place else global_model for c in round_.clients])
        return np.asarray(np.linalg.norm(sent - forecast, axis=1))


def reference_forecast(newest: FloatMatrix, start: FloatMatrix, *, iterations: int = 100) -> FloatMatrix:
    r"""Return the forecast of the published code, `(m, n)`, from only the models X of the last round.

    X has a row for each of m clients and a column for each of n sampled parameters. MAR forecasts the models of a
    round from the models of the round before. A correct fit uses pairs of such rounds. The published code uses one
    pair, and both of its matrices are the same: S = (X - min X) / max X. The code then applies the fitted A and B
    to the unscaled X.

    A is m x m and B is n x n. B starts at random numbers (`start`). Then A and B are computed in turn, with the
    ridge penalty 1:

    .. math:: A \leftarrow S B S^T (S B^T B S^T + I)^{-1}, \quad
              B \leftarrow S^T A S (S^T A^T A S + I)^{-1}, \quad \hat X = A X B^T.

    After the first iteration, :math:`B = S^T C S` with an m x m matrix C. So this function computes only C and
    :math:`G = S S^T`. The forecast is the same, and no linear system of size n x n has to be solved.
    """
    m = newest.shape[0]
    largest = float(newest.max())
    scaled = (newest - newest.min()) / (largest if largest != 0 else 1.0)
    gram, identity = scaled @ scaled.T, np.eye(m)
    turned = scaled @ start.T
    forward, square = scaled @ start @ scaled.T, turned @ turned.T
    a = c = identity
    for _ in range(iterations):
        a = np.linalg.solve((square + identity).T, forward.T).T
        c = np.linalg.solve((gram @ a.T @ a + identity).T, a.T).T
        forward, square = gram @ c @ gram, gram @ c.T @ gram @ c @ gram
    return np.asarray(a @ newest @ scaled.T @ c.T @ scaled)
