"""FLANDERS: forecast the round's local models, drop the clients that are far from the forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flanders.arrays import Array, IntVector
from flanders.checks import InputError, check_choice, check_number
from flanders.filters.filter import Filter, Scores, check_keep, draw_seed, lowest
from flanders.filters.forecast import probability as calibration
from flanders.filters.forecast.look import View
from flanders.filters.forecast.memory import FlandersState
from flanders.filters.forecast.paper import Paper
from flanders.filters.forecast.reference import Reference
from flanders.filters.forecast.scoring import EUCLIDEAN, Forecaster
from flanders.round import Round

DISTANCES = (*EUCLIDEAN, "l1")


@dataclass(frozen=True)
class Flanders(Filter[FlandersState]):
    r"""Drop the clients whose models are far from a forecast of them.

    The matrix of local models of a round is forecast from those
    of the last `window` rounds by MAR(`order`), and a client's score is its model's distance to the forecast. A
    client that is in none of the last `order` rounds is scored by its distance to the global model. In the first
    round there is no score.

    The first round has nothing to be compared with: pair the filter with a robust fallback aggregator.

    Parameters
    ----------
    keep
        How many clients to keep a round: a number, or a fraction of the round.
    threshold
        Instead of `keep`: keep whoever's probability of being malicious is at most this. The
        probabilities are calibrated on the clients accepted in earlier rounds, so everyone is
        kept until one round has been scored with the full `window`.
    order, window
        The order w of the model, and the number l of rounds it is fitted to, at least w + 1.
    iterations, tolerance, ridge_a, ridge_b
        Alternating least squares: the most iterations (N), the relative change at which they stop,
        and the penalties alpha and beta.
    distance
        `"squared-l2"`, `"l2"`, `"l1"`, `"cosine"` (of the displacements from the global model), or a number p
        for the (fractional) L^p distance; where that overflows it is divided by d^(1/p), for all alike.
    amend_with
        What replaces a dropped client's model in the memory: `"last-accepted"`, its own newest model
        still remembered (the global model if there is none), or `"global"`, the round's global model.
    center
        Model displacements from the current global model instead of the models themselves.
    sample, sketch
        Look at this many random parameters (the paper: 500), or at this many CountSketch
        buckets of all of them, instead of at every parameter. A sample is drawn once a run, or with
        `redraw=True` in every round, after the models have arrived; sketches always are, and a client's
        score is the largest over `sketches` of them.
    sampling, layers
        How a fixed `sample` is chosen: `"random"`; the parameters in which the clients kept in the first round
        differ most (`"variance"`); at random from the `"last-layer"`; or as many from each
        layer (`"per-layer"`). The last two need `layers`, the number of parameters of each, in the model's order.
    refit_every
        Estimate A and B in every so many rounds, once the window is full, and forecast with what was estimated
        last in between. A client that the fit does not know is scored by its distance to the global model.
    min_honest
        With `threshold`: the least share of honest clients in any round.
    method
        `"paper"`: the paper's equations. `"reference"`: what the paper's published code
        computes (see `mar.reference_forecast`), for matching its numbers: `sample` parameters (default 500)
        drawn with replacement, L2 distance, memory amended with the *new* global model, alpha = beta = 1;
        only `keep`, `threshold`, `iterations` and `sample` can be set.

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
    order: int = 1
    window: int = 2
    iterations: int = 100
    tolerance: float = 1e-8
    ridge_a: float = 0.0
    ridge_b: float = 0.0
    distance: str | float = "squared-l2"
    amend_with: str = "last-accepted"
    center: bool = False
    sample: int | None = None
    sketch: int | None = None
    sketches: int = 5
    redraw: bool = False
    sampling: str = "random"
    layers: tuple[int, ...] | None = None
    refit_every: int = 1
    min_honest: float = 0.2
    method: str = "paper"

    def __post_init__(self) -> None:
        if self.threshold is None:
            self._check_unused(["min_honest"], "`threshold`")
        if self.sketch is None:
            self._check_unused(["sketches"], "`sketch`")
        check_keep("Flanders", self.keep)
        if (self.keep is None) == (self.threshold is None):
            raise InputError(
                "Flanders takes either `keep` (how many clients, or what fraction) or `threshold` (the largest "
                f"probability of being malicious). Got keep={self.keep!r}, threshold={self.threshold!r}."
            )
        if self.threshold is not None:
            check_number("Flanders", "threshold", self.threshold, 0, 1)
        check_number("Flanders", "min_honest", self.min_honest, 0, 1)
        check_number("Flanders", "order", self.order, 1, whole=True)
        check_number("Flanders", "window", self.window, self.order + 1, whole=True)
        check_number("Flanders", "iterations", self.iterations, 1, whole=True)
        check_number("Flanders", "refit_every", self.refit_every, 1, whole=True)
        for name in ("tolerance", "ridge_a", "ridge_b"):
            check_number("Flanders", name, getattr(self, name), 0)
        check_choice("Flanders", "amend_with", self.amend_with, ("last-accepted", "global"))
        check_choice("Flanders", "method", self.method, ("paper", "reference"))
        if isinstance(self.distance, str):
            check_choice("Flanders", "distance", self.distance, DISTANCES)
        else:
            check_number("Flanders", "distance", self.distance, 1e-3)
        secret = self._view.secret  # and its own checks
        if secret and self.refit_every > 1:
            raise InputError(
                f"Flanders(refit_every={self.refit_every}) looks at the same parameters in every round. "
                "Leave out `redraw` and `sketch`."
            )
        if self.sketch is not None and self.distance not in EUCLIDEAN:
            raise InputError(
                f"A sketch keeps Euclidean geometry only: distance={self.distance!r} needs `sample`, or all "
                "parameters (leave both out)."
            )
        if self.method == "reference":
            settable = {"keep", "threshold", "iterations", "sample", "min_honest", "method"}
            self._check_fixed("method='reference'", settable)

    def _check_fixed(self, mode: str, settable: set[str]) -> None:
        """Complain about parameters that a mode fixes."""
        for name, parameter in self.__dataclass_fields__.items():
            if name not in settable and getattr(self, name) != parameter.default:
                raise InputError(
                    f"Flanders({mode}) fixes `{name}` and everything else but {', '.join(sorted(settable))}. "
                    f"Leave `{name}` out, or change the mode."
                )

    def _check_unused(self, names: Sequence[str], mode: str) -> None:
        """Complain about parameters that only another mode looks at."""
        for name in names:
            if getattr(self, name) != self.__dataclass_fields__[name].default:
                raise InputError(f"`{name}` of Flanders goes with {mode} alone. Leave it out, or use that.")

    def init(self, rng: np.random.Generator | None = None) -> FlandersState:
        """Return an empty memory and a secret seed."""
        return FlandersState(draw_seed(rng))

    def score(self, state: FlandersState, round_: Round) -> Scores | None:
        """Score each client by the distance of its model to the forecast; None in the first round."""
        if not state.snapshots:
            return None
        values, computed = self._way.distances(state, round_)
        chance = None
        if self.threshold is not None:
            chance = calibration.probabilities(state.calibration, values, self.min_honest)
        return Scores(round_.clients, values, chance, evidence=computed)

    def select(self, scores: Scores) -> IntVector:
        """Keep the `keep` lowest scores, or whoever is under the `threshold`."""
        if self.threshold is None:
            assert self.keep is not None  # one of the two is set
            return lowest(scores, self.keep)
        if scores.probabilities is None:
            return np.arange(len(scores.clients))
        return np.flatnonzero(scores.probabilities <= self.threshold)

    def amend(
        self,
        state: FlandersState,
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> FlandersState:
        """Remember the round, with the models of dropped clients replaced."""
        number, computed = state.round_number + 1, None if scores is None else scores.evidence
        calibrated = state.calibration
        full = len(state.snapshots) == self._way.window  # scores from fewer are of another kind
        if self.threshold is not None and scores is not None and full:
            calibrated = calibration.updated(calibrated, scores.values, kept, self.min_honest)
        after = self._way.remember(state, round_, kept, model, computed)
        return replace(after, round_number=number, calibration=calibrated)

    def visible_columns(self, state: FlandersState, d: int) -> IntVector | None:
        """Return the parameters the filter looks at in every round, if they are fixed and not all.

        For studying attackers who know them; a server never tells.
        """
        return self._way.columns(state, d)

    @property
    def _way(self) -> Paper | Reference:
        """How forecasts are made, and what is remembered for them."""
        if self.method == "reference":
            return Reference(500 if self.sample is None else self.sample, self.iterations)
        forecaster = Forecaster(
            self.order, self.iterations, self.tolerance, self.ridge_a, self.ridge_b, self.center
        )
        return Paper(forecaster, self._view, self.window, self.distance, self.amend_with, self.refit_every)

    @property
    def _view(self) -> View:
        return View(self.sample, self.sketch, self.sketches, self.redraw, self.sampling, self.layers)
