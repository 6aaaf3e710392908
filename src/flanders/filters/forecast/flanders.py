"""The filter `Flanders`. It drops the clients whose models are far from their forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector
from flanders.checks import InputError, check_choice, check_instance, check_number
from flanders.filters.filter import Filter, Scores, check_state, draw_seed
from flanders.filters.forecast.calibration import (
    MIN_HONEST,
    Calibration,
    calibrate,
    calibrated_probabilities,
    check_keep_or_threshold,
    select_by_keep_or_threshold,
)
from flanders.filters.forecast.history import Numbering, Snapshot, amended_snapshot, products_of
from flanders.filters.forecast.look import Everything, Look, round_on_columns
from flanders.filters.forecast.scoring import distances_by_fit, distances_by_products
from flanders.filters.forecast.solver import Als, Forecaster, KeptFit
from flanders.linalg.distances import DISTANCES, EUCLIDEAN
from flanders.round import Round
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class FlandersState:
    """The memory of `Flanders`."""

    seed: int
    """The secret seed of samples and sketches; see `Look`."""
    round_number: int = 0
    """How many rounds the filter has seen."""
    snapshots: tuple[Snapshot, ...] = ()
    """The last rounds, the oldest first. The models of dropped clients are replaced; see `Flanders.amend_with`."""
    gram: FloatMatrix | None = None
    """The inner products of all models and global models in the snapshots, after the newest global model was
    subtracted from each. None before the first round, or if they are not used again in the next round."""
    calibration: Calibration = field(default_factory=Calibration)
    """What is remembered of the scores of accepted clients. It is used only with a `threshold`."""
    columns: IntVector | None = None
    """The positions of the parameters that are compared, if they were chosen from the models of the first round, as
    with `Sample(choose="variance")`. Otherwise None."""
    fit: KeptFit | None = None
    """The coefficients of the last fit. None, unless a fit is used for more than one round (`Als.refit_every`)."""


@dataclass(frozen=True)
class Flanders(Filter[FlandersState]):
    r"""Drop the clients whose models are far from their forecasts.

    .. math:: \hat X_t = \sum_{i=1}^{w} A_i X_{t-i} B_i^\top, \quad
              \text{score}_c = \|\theta_c - \hat\theta_c\|^2

    The models of the clients in round t are the columns of the matrix :math:`X_t`. The matrix autoregressive model,
    MAR(w) for short, forecasts :math:`X_t` from the matrices of the last w rounds. Its coefficients A and B are
    fitted to the last `window` rounds. The score of client c is the distance of its model :math:`\theta_c` to its
    forecast, the column :math:`\hat\theta_c` of :math:`\hat X_t`. A client that was in none of the last w rounds is
    scored by the distance of its model to the global model. The first round cannot be forecast, so it has no
    scores. Choose a robust fallback aggregator for it.

    Parameters
    ----------
    keep
        How many clients to keep in a round: a number, or a fraction of the round.
    threshold
        A client is kept if its probability of being malicious is at most this. Give either `keep` or `threshold`.
        The probabilities are computed from the scores of clients that were kept in earlier rounds. In the first
        `window` + 1 rounds there are no probabilities yet, and all clients are kept.
    min_honest
        The smallest share of honest clients that you expect in any round. It is used only with `threshold`.
    order, window
        The order w of the MAR model, and the number of rounds to which it is fitted. The second number is at least
        w + 1.
    distance
        `"squared-l2"`, `"l2"`, `"l1"`, `"cosine"`, or a number p for the L^p distance, where p may be a fraction.
        For `"cosine"`, the global model is first subtracted from the model and from the forecast. If the L^p
        distance of a client overflows, the distances of all clients are divided by d^(1/p), where d is the number
        of parameters.
    amend_with
        What replaces the model of a dropped client in the memory. `"last-accepted"`: the client's newest model in
        the memory, or the global model if the memory has no model of the client. `"global"`: the global model of
        the round.
    center
        Whether to forecast the differences between the models and the current global model, instead of the models
        themselves. By default the models are forecast.
    solver
        How the model is fitted; see `Als`.
    look
        Which parameters are compared: `Everything()`, a `Sample`, or a `Sketch`.

    Examples
    --------
    >>> from flanders import Defense
    >>> rng = np.random.default_rng(0)
    >>> honest = rng.normal(size=(10, 50))
    >>> defense = Defense(Flanders(keep=7))
    >>> for t in range(4):
    ...     models = honest * 0.9**t + 0.01 * rng.normal(size=(10, 50))
    ...     if t == 3:
    ...         models[:3] += 1.0
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
    order: int = 1
    window: int = 2
    distance: str | float = "squared-l2"
    amend_with: str = "last-accepted"
    center: bool = False
    solver: Als = field(default_factory=Als)
    look: Look = field(default_factory=Everything)

    def __post_init__(self) -> None:
        check_keep_or_threshold("Flanders", self.keep, self.threshold, self.min_honest)
        check_number("Flanders", "order", self.order, 1, whole=True)
        check_number("Flanders", "window", self.window, self.order + 1, whole=True)
        if isinstance(self.distance, str):
            check_choice("Flanders", "distance", self.distance, DISTANCES)
        else:
            check_number("Flanders", "distance", self.distance, 1e-3)
        check_choice("Flanders", "amend_with", self.amend_with, ("last-accepted", "global"))
        check_instance("Flanders", "solver", self.solver, Als, "Als(iterations=50)")
        check_instance("Flanders", "look", self.look, Look, "Sample(500)")
        if self.look.changes and self.solver.refit_every > 1:
            raise InputError(
                f"Als(refit_every={self.solver.refit_every}) keeps a fit for several rounds, but {self.look} looks "
                "at different numbers in each round. Use refit_every=1, or look at the same parameters in every "
                "round."
            )
        if self.look.mixes and self.distance not in EUCLIDEAN:
            raise InputError(
                f"{self.look} preserves only Euclidean distances, but the distance is {self.distance!r}. Look at a "
                "Sample or at Everything, or choose another distance."
            )

    def init(self, rng: np.random.Generator | None = None) -> FlandersState:
        """Return a memory that has a secret seed, but no rounds yet."""
        return FlandersState(draw_seed(rng))

    def score(self, state: FlandersState, round_: Round) -> Scores | None:
        """Score each client by the distance of its model to its forecast. In the first round, return None."""
        check_state("Flanders", state, FlandersState)
        if not state.snapshots:
            return None
        values, evidence = self._distances(state, round_)
        chance = None
        if self.threshold is not None:
            chance = calibrated_probabilities(state.calibration, values, self.min_honest)
        return Scores(round_.clients, values, chance, evidence=evidence)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the `keep` lowest scores, or with probabilities of at most `threshold`."""
        return select_by_keep_or_threshold(scores, self.keep, self.threshold)

    def amend(
        self,
        state: FlandersState,
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> FlandersState:
        """Return the memory after a round, with the models of dropped clients replaced."""
        check_state("Flanders", state, FlandersState)
        calibration = state.calibration
        full = len(state.snapshots) == self.window  # scores of a fit to fewer rounds cannot be compared with others
        if self.threshold is not None and scores is not None and full:
            calibration = calibrate(calibration, scores.values, kept, self.min_honest)
        after = self._remembered(state, round_, kept, None if scores is None else scores.evidence)
        return replace(after, round_number=state.round_number + 1, calibration=calibration)

    def visible_columns(
        self, state: FlandersState, d: int, layers: Mapping[str, int] | None = None
    ) -> IntVector | None:
        """Return the positions of the parameters that are compared in every round.

        Return None if all parameters are compared, or different ones in each round.
        """
        return state.columns if state.columns is not None else self.look.columns(state.seed, d, layers or {})

    @property
    def _forecaster(self) -> Forecaster:
        return Forecaster(self.order, self.center, self.solver)

    def _seen(self, state: FlandersState, round_: Round) -> Round:
        """Return the round with only the parameters of `visible_columns`, or the whole round if these are None."""
        columns = self.visible_columns(state, round_.updates.shape[1], round_.layers)
        return round_on_columns(round_, columns)

    def _distances(self, state: FlandersState, round_: Round) -> tuple[FloatVector, KeptFit | FloatMatrix | None]:
        """Return the distance of each client's model to its forecast, and a result that `amend` needs again.

        There are three cases of the second result:

        - If different numbers are compared in each round, it is None.
        - If a fit is used for several rounds, it is this fit, or None if too few rounds are remembered for a fit.
        - Otherwise it is the inner products of all vectors.
        """
        if self.look.changes:
            rng = np.random.default_rng([state.seed, 2, state.round_number])
            views = self.look.views(Numbering(state.snapshots, round_), rng)
            return np.max([self._by_products(view, products_of(view)) for view in views], axis=0), None
        numbering = Numbering(state.snapshots, self._seen(state, round_))
        if self.solver.refit_every > 1:
            fit = self._forecaster.kept_fit(numbering, state.fit)
            return distances_by_fit(numbering, fit, self._forecaster, self.distance), fit
        gram = products_of(numbering, state.gram)
        return self._by_products(numbering, gram), gram

    def _by_products(self, numbering: Numbering, gram: FloatMatrix) -> FloatVector:
        coefficients = self._forecaster.coefficients(numbering, gram)
        return distances_by_products(numbering, gram, coefficients, self.distance)

    def _remembered(self, state: FlandersState, round_: Round, kept: IntVector, evidence: object) -> FlandersState:
        """Return the memory with this round added, but with the round number and calibration from before."""
        if state.columns is None:
            state = replace(state, columns=self.look.chosen_columns(round_, kept))
        numbering = Numbering(state.snapshots, self._seen(state, round_))
        newest, places = amended_snapshot(numbering, kept, last_accepted=self.amend_with == "last-accepted")
        forgotten = max(0, len(state.snapshots) + 1 - self.window)
        after = replace(state, snapshots=(*state.snapshots[forgotten:], newest))
        if self.look.changes:
            return after
        if self.solver.refit_every > 1:
            fit = evidence if isinstance(evidence, KeptFit) else self._forecaster.kept_fit(numbering, state.fit)
            full = len(state.snapshots) == self.window
            return replace(after, fit=replace(fit, age=fit.age + 1) if fit is not None and full else None)
        gram = evidence if isinstance(evidence, np.ndarray) else products_of(numbering, state.gram)
        old = np.arange(numbering.starts[forgotten], numbering.starts[-1])
        index = np.concatenate([old, places, [numbering.global_model]])
        return replace(after, gram=gram[np.ix_(index, index)])
