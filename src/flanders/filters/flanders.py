"""FLANDERS: forecast the round's local models, drop the clients that are far from the forecast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from flanders import calibration
from flanders.calibration import Calibration
from flanders.filters.filter import Filter, Scores, check_keep, draw_seed, lowest
from flanders.filters.forecasting import EUCLIDEAN, Forecaster, score
from flanders.filters.history import Layout, Snapshot, amended, products
from flanders.filters.reduction import (
    most_varied_columns,
    sample_columns,
    sample_of_layers,
    sketch_of_layout,
    take_of_layout,
    take_of_round,
)
from flanders.filters.reference import Reference
from flanders.filters.refitting import KeptFit, distances, fit_history, forecast_rows
from flanders.filters.signature import Signatures, learn
from flanders.filters.verdict import judge
from flanders.geometry import FloatMatrix
from flanders.state import saveable
from flanders.types import (
    Array,
    FloatVector,
    InputError,
    IntVector,
    Round,
    check_choice,
    check_number,
)

DISTANCES = (*EUCLIDEAN, "l1")
SAMPLINGS = ("random", "variance", "last-layer", "per-layer")


@saveable
@dataclass(frozen=True, eq=False)
class FlandersState:
    """What FLANDERS remembers between rounds."""

    seed: int
    round_number: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    gram: FloatMatrix | None = None
    calibration: Calibration = field(default_factory=Calibration)
    columns: IntVector | None = None
    """The parameters looked at, where they were chosen by what the first round's clients sent."""
    fit: KeptFit | None = None
    """The coefficients in use, where they are kept for more than a round."""
    signatures: Signatures = field(default_factory=Signatures)
    """What is known of each client, with `keep="auto"`."""


@dataclass(frozen=True)
class Flanders(Filter[FlandersState]):
    r"""Drop the clients whose models are far from a matrix autoregressive forecast.

    The paper's filter: the matrix of local models of a round is forecast from those of the last
    `window` rounds by MAR(`order`), and a client's score is its model's distance to the forecast. A client
    that is in none of the last `order` rounds is scored by its distance to the global model. In the first
    round there is no score: pair the filter with a robust fallback rule.

    Parameters
    ----------
    keep
        How many clients to keep a round: a number, or a fraction of the round. Or `"auto"`, the default unless
        there is a `threshold`: keep whoever sends what looks like its own (see `flanders.filters.signature`);
        nothing needs to be known about the number of attackers, and no other parameter but the next two can be
        set. Everyone is kept in the first two rounds.
    max_false_positive_rate
        With `keep="auto"`: the share of honest clients that may be dropped.
    min_survivors
        With `keep="auto"`: if less than this share of the round is left, nobody is kept and the global model stays.
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
        for the (fractional) L^p distance.
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
        How a fixed `sample` is chosen: `"random"`, the parameters of the largest `"variance"` between the
        clients kept in the first round, or at random from the `"last-layer"`, or as many from each (`"per-layer"`).
        The last two need `layers`, the number of parameters of each layer in the order of the flat model.
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

    keep: float | Literal["auto"] | None = None
    threshold: float | None = None
    max_false_positive_rate: float = 0.01
    min_survivors: float = 0.1
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
        if self.automatic:
            check_number("Flanders", "max_false_positive_rate", self.max_false_positive_rate, 0, 1)
            check_number("Flanders", "min_survivors", self.min_survivors, 0, 1)
            self._check_fixed("keep='auto'", {"keep", "max_false_positive_rate", "min_survivors"})
            return
        if isinstance(self.keep, str):
            raise InputError(
                f"The `keep` parameter of Flanders must be a number or 'auto'. Got {self.keep!r} instead."
            )
        check_keep("Flanders", self.keep)
        if self.keep is not None and self.threshold is not None:
            raise InputError(
                "Flanders takes either `keep` (how many clients, or what fraction) or `threshold` (the largest "
                f"probability of being malicious). Got keep={self.keep!r}, threshold={self.threshold!r}."
            )
        if self.threshold is not None:
            check_number("Flanders", "threshold", self.threshold, 0, 1)
        check_number("Flanders", "order", self.order, 1, whole=True)
        check_number("Flanders", "window", self.window, self.order + 1, whole=True)
        check_number("Flanders", "iterations", self.iterations, 1, whole=True)
        check_number("Flanders", "sketches", self.sketches, 1, whole=True)
        for name in ("tolerance", "ridge_a", "ridge_b"):
            check_number("Flanders", name, getattr(self, name), 0)
        check_number("Flanders", "min_honest", self.min_honest, 0, 1)
        check_choice("Flanders", "amend_with", self.amend_with, ("last-accepted", "global"))
        check_choice("Flanders", "method", self.method, ("paper", "reference"))
        if isinstance(self.distance, str):
            check_choice("Flanders", "distance", self.distance, DISTANCES)
        else:
            check_number("Flanders", "distance", self.distance, 1e-3)
        for name in ("sample", "sketch"):
            if getattr(self, name) is not None:
                check_number("Flanders", name, getattr(self, name), 1, whole=True)
        if self.redraw and self.sample is None:
            raise InputError("Flanders(redraw=True) needs `sample`: how many parameters to draw each round.")
        if self.sample is not None and self.sketch is not None:
            raise InputError("Flanders can take a `sample` or a `sketch` of the parameters, not both.")
        if self.sketch is not None and self.distance not in EUCLIDEAN:
            raise InputError(
                f"A sketch keeps Euclidean geometry only: distance={self.distance!r} needs `sample`, or all "
                "parameters (leave both out)."
            )
        self._check_sampling()
        if self.method == "reference":
            self._check_reference()

    def _check_sampling(self) -> None:
        check_number("Flanders", "refit_every", self.refit_every, 1, whole=True)
        check_choice("Flanders", "sampling", self.sampling, SAMPLINGS)
        if self.redraws and (self.refit_every > 1 or self.sampling != "random"):
            raise InputError(
                f"Flanders(refit_every={self.refit_every}, sampling={self.sampling!r}) looks at the same "
                "parameters in every round. Leave out `redraw` and `sketch`."
            )
        if self.sampling != "random" and self.sample is None:
            raise InputError(f"Flanders(sampling={self.sampling!r}) needs `sample`: how many parameters to choose.")
        if (self.layers is not None) != self.sampling.endswith("layer"):
            raise InputError(
                "Flanders needs `layers`, the number of parameters of each layer, for sampling='last-layer' and "
                f"'per-layer', and for nothing else. Got sampling={self.sampling!r}, layers={self.layers!r}."
            )

    def _check_reference(self) -> None:
        settable = {"keep", "threshold", "iterations", "sample", "min_honest", "method"}
        self._check_fixed("method='reference'", settable)

    def _check_fixed(self, mode: str, settable: set[str]) -> None:
        """Complain about parameters that a mode fixes."""
        for name, parameter in self.__dataclass_fields__.items():
            if name not in settable and getattr(self, name) != parameter.default:
                raise InputError(
                    f"Flanders({mode}) fixes `{name}` and everything else but {', '.join(sorted(settable))}. "
                    f"Leave `{name}` out, or {'say how many to `keep`' if self.automatic else 'change the mode'}."
                )

    @property
    def automatic(self) -> bool:
        """Whether nobody has said how many to keep, or how probably malicious they may be."""
        return self.keep == "auto" or (self.keep is None and self.threshold is None)

    @property
    def redraws(self) -> bool:
        """Whether what is looked at changes from round to round."""
        return self.sketch is not None or self.redraw

    def init(self, rng: np.random.Generator | None = None) -> FlandersState:
        """Return an empty memory and a secret seed."""
        return FlandersState(draw_seed(rng))

    def score(self, state: FlandersState, round_: Round) -> Scores | None:
        """Score each client by the distance of its model to the forecast; None in the first round."""
        if self.automatic:
            number = state.round_number + 1
            return judge(state.signatures, round_, number, self.max_false_positive_rate)
        if not state.snapshots:
            return None
        evidence: FloatMatrix | KeptFit | None = None
        if self.method == "reference":
            values = self._reference.score(state.snapshots[-1], round_, state.seed, state.round_number)
        elif self.redraws:
            layout = Layout(state.snapshots, round_)
            views = self._secret_views(layout, np.random.default_rng([state.seed, 2, state.round_number]))
            values = np.max([self._distances(view, products(view)) for view in views], axis=0)
        elif self.refit_every > 1:
            layout = Layout(state.snapshots, self._visible(state, round_))
            evidence = self._fit(state, layout)
            sent, forecast = layout.round_, forecast_rows(layout, evidence, self._forecaster)
            values = distances(sent.updates, forecast, sent.global_model, self.distance)
        else:
            layout = Layout(state.snapshots, self._visible(state, round_))
            evidence = products(layout, state.gram)
            values = self._distances(layout, evidence)
        chance = None
        if self.threshold is not None:
            chance = calibration.probabilities(state.calibration, values, self.min_honest)
        return Scores(round_.clients, values, chance, evidence=evidence)

    def select(self, scores: Scores) -> IntVector:
        """Keep the `keep` lowest scores, or whoever is under the `threshold`."""
        if scores.suspects is not None:  # keep="auto"
            kept = np.flatnonzero(~scores.suspects)
            return kept if kept.size >= self.min_survivors * len(scores.clients) else kept[:0]
        if isinstance(self.keep, int | float):
            return lowest(scores, self.keep)
        assert self.threshold is not None  # one of the two is set
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
        if self.automatic:
            answers, number = None if scores is None else scores.evidence, state.round_number + 1
            learnt = learn(state.signatures, round_, number, kept, answers)
            return replace(state, round_number=number, signatures=learnt)
        if self.sampling == "variance" and state.columns is None:
            chosen = most_varied_columns(round_.take(kept).updates, self.sample or 0)
            state = replace(state, columns=chosen)
        gram, fit = None, None
        snapshots: tuple[Snapshot, ...]
        if self.method == "reference":
            snapshots = (self._reference.remember(round_, kept, model, state.seed),)
        else:
            layout = Layout(state.snapshots, round_ if self.redraws else self._visible(state, round_))
            newest, places = amended(layout, kept, last_accepted=self.amend_with == "last-accepted")
            forgotten = max(0, len(state.snapshots) + 1 - self.window)
            snapshots = (*state.snapshots[forgotten:], newest)
            if self.refit_every > 1:
                used = scores.evidence if scores is not None else self._fit(state, layout)
                full = len(state.snapshots) == self.window
                fit = used.older() if used is not None and full else None
            elif not self.redraws:
                seen = scores.evidence if scores is not None else None
                whole = products(layout, state.gram) if seen is None else seen
                old = np.arange(layout.starts[forgotten], layout.starts[-1])
                index = np.concatenate([old, places, [layout.global_model]])
                gram = whole[np.ix_(index, index)]
        calibrated = state.calibration
        if self.threshold is not None and scores is not None and len(state.snapshots) == self._memory:
            calibrated = calibration.updated(calibrated, scores.values, kept, self.min_honest)
        return FlandersState(state.seed, state.round_number + 1, snapshots, gram, calibrated, state.columns, fit)

    @property
    def _memory(self) -> int:
        """How many rounds are remembered; scores from fewer are of another kind and calibrate nothing."""
        return 1 if self.method == "reference" else self.window

    @property
    def _reference(self) -> Reference:
        return Reference(500 if self.sample is None else self.sample, self.iterations)

    def visible_columns(self, state: FlandersState, d: int) -> IntVector | None:
        """Return the parameters the filter looks at in every round, if they are fixed and not all.

        For studying attackers who know them; a server never tells.
        """
        if self.method == "reference":
            return self._reference.columns(state.seed, d)
        if self.sample is None or self.redraws:
            return None
        if self.sampling == "variance":
            return state.columns
        rng = np.random.default_rng([state.seed, 0])
        if self.layers is not None:
            return sample_of_layers(d, self.sample, self.layers, rng, last_only=self.sampling == "last-layer")
        return sample_columns(d, self.sample, rng)

    def _visible(self, state: FlandersState, round_: Round) -> Round:
        """Return the round as the filter sees it: whole, or through the run's fixed sample."""
        columns = self.visible_columns(state, round_.updates.shape[1])
        return round_ if columns is None else take_of_round(round_, columns)

    def _secret_views(self, layout: Layout, rng: np.random.Generator) -> Iterator[Layout]:
        """Yield the layout through this round's own sample or sketches."""
        if self.sketch is not None:
            for _ in range(self.sketches):
                yield sketch_of_layout(layout, self.sketch, rng)
        else:
            assert self.sample is not None
            yield take_of_layout(layout, sample_columns(layout.round_.updates.shape[1], self.sample, rng))

    def _distances(self, layout: Layout, gram: FloatMatrix) -> FloatVector:
        return score(layout, gram, self._forecaster.forecast(layout, gram), self.distance)

    @property
    def _forecaster(self) -> Forecaster:
        return Forecaster(self.order, self.iterations, self.tolerance, self.ridge_a, self.ridge_b, self.center)

    def _fit(self, state: FlandersState, layout: Layout) -> KeptFit | None:
        """Return the fit to forecast with: the one that is kept, or, where it is too old, a new one."""
        if state.fit is not None and state.fit.age < self.refit_every:
            return state.fit
        return fit_history(layout, self._forecaster) if len(layout.snapshots) > self.order else None
