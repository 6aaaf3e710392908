"""The default filter, `Guard`. It compares the clients of a round with each other and with their own past."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flanders.arrays import Array, BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.checks import check_choice, check_ids, check_number
from flanders.client_ids import ClientId
from flanders.filters.camps.classes import OPPOSITE, have_one_class_each, outputs_of
from flanders.filters.camps.crafted import crafted_rows
from flanders.filters.camps.decision import (
    Decision,
    drop_camps,
    drop_long,
    drop_opposing,
    mask_of,
    scores_of,
    start_decision,
)
from flanders.filters.camps.directions import (
    Directions,
    all_cosines_with_middle,
    weights_of_round,
)
from flanders.filters.camps.inputs import InputShares, input_shares, input_traits
from flanders.filters.camps.judging import LIKE_SIZE, Past, usual_mean_cosine
from flanders.filters.camps.loud import LOUDEST, longer_than_others, loud_rows
from flanders.filters.camps.opposing import Opposition, opposing_rows
from flanders.filters.camps.traits import (
    Parts,
    Trait,
    direction_traits,
    headings_among,
    length_trait,
    own_traits,
    parts_of,
)
from flanders.filters.camps.unhelpful import drop_unhelpful, unhelpful_rows
from flanders.filters.filter import Filter, Scores, check_state
from flanders.filters.fingerprint.explanation import times_as_long
from flanders.filters.fingerprint.learning import learn_round
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import FINGERPRINT, NOVELTY, Answers, ask_questions
from flanders.filters.server_losses import BrokenEvaluate
from flanders.linalg.products import cosines_of_gram, lengths_of_gram
from flanders.round import Round
from flanders.state import saveable

log = logging.getLogger("flanders")

ONE_CLASS_EACH = (
    "there are at most two outputs, or clients have mostly one class each: directions do not tell who is malicious"
)
COPY = "a copy of another client's update, or random noise"
COPY_STRENGTH = 10.0
"""The score of a copy. Clients with a score of at least 1 are dropped. Honest clients send no copies, so this score
is far above 1."""


@saveable
@dataclass(frozen=True, eq=False)
class GuardState:
    """The memory of `Guard` and of `Camps`."""

    round_number: int = 0
    """How many rounds the filter has seen."""
    signatures: Signatures = field(default_factory=Signatures)
    """How the updates of each client differ from those of the others. The filter `Fingerprint` remembers the
    same."""
    courses: dict[ClientId, FloatVector] = field(default_factory=dict)
    """The course of each accepted client: its usual cosine with the common direction in each part of the model, and
    its usual novelty.

    The common direction is the mean direction of the updates accepted last. The part of an update that is not a
    weighted sum of earlier updates is new. The novelty is the logarithm of the share that is new.
    """
    common: tuple[float, ...] = ()
    """For each part of the model: the mean cosine between the updates of two accepted clients, in the round in
    which this mean was lowest."""
    opposition: Opposition = field(default_factory=Opposition)
    """For each client: the average cosine of its updates with the sum of the others' updates, in the layers before
    the last one."""
    directions: Directions = field(default_factory=Directions)
    """For each client: the average cosine of its updates with the geometric median of all unit updates of a round,
    in each part of the model. Also the clients that were dropped the last time they took part."""
    inputs: FloatVector | None = None
    """For each input of the first layer: the usual logarithm of its share in an update; the module `inputs`
    explains it. None if the first layer is not known."""


@dataclass(frozen=True, eq=False)
class GuardEvidence:
    """What `Guard.score` has measured in a round. `Guard.amend` uses it again."""

    answers: Answers
    """How each client compares with its own past."""
    parts: Parts
    """The inner products of the updates, for each part of the model."""
    cosines: tuple[FloatMatrix, ...]
    """The cosines of the updates with each other, for each part of the model."""
    inputs: InputShares | None = None
    """How much each client learns from each input of the first layer; None if the first layer is not known."""

    @property
    def looked_at(self) -> tuple[tuple[str, ...], tuple[FloatMatrix, ...]]:
        """The names of the parts whose directions are compared, and the cosines between the clients in these parts.

        The parts are the layers before the last one, then the last layer. If the layers are not known, the whole
        model is the only part.
        """
        if len(self.cosines) == 1:
            return self.parts.names, self.cosines
        return self.parts.names[:0:-1], self.cosines[:0:-1]

    @property
    def rooted(self) -> FloatMatrix | None:
        """`(m, k)`: the cosines of the updates with the server's own step, in the k parts of `looked_at`.

        None if the server made no step.
        """
        rooted = self.parts.rooted
        return np.column_stack(rooted[:0:-1] if len(rooted) > 1 else rooted) if rooted else None

    @property
    def in_first_layers(self) -> tuple[FloatMatrix, FloatVector | None] | None:
        """The cosines of updates with each other and with the server's step, in all layers but the last one.

        If the server made no step, the second entry is None. The result is None if there is only one layer, or if
        the names of the tensors do not tell which of them are the last layer.
        """
        if not self.parts.last_layer_named:
            return None
        return self.cosines[-1], self.parts.rooted[-1] if self.parts.rooted else None

    def opposition_after(self, known: Opposition, clients: tuple[ClientId, ...], kept: IntVector) -> Opposition:
        """Return `known` with this round added."""
        if self.in_first_layers is None:
            return known
        return known.after(*self.in_first_layers, clients, mask_of(kept, len(clients)))

    def inputs_after(self, known: FloatVector | None, kept: IntVector) -> FloatVector | None:
        """Return the usual shares of the inputs after this round."""
        return known if self.inputs is None or kept.size == 0 else self.inputs.usual(kept)

    def directions_after(self, known: Directions, clients: tuple[ClientId, ...], kept: IntVector) -> Directions:
        """Return `known` with this round added."""
        rows = mask_of(kept, len(clients))
        cosines = self.looked_at[1]
        if kept.size < 2:  # no others to compare with: the round gets weight zero
            return known.with_round(clients, kept, np.zeros((len(clients), len(cosines))), np.zeros(len(cosines)))
        now = all_cosines_with_middle(cosines, rows)
        return known.with_round(clients, kept, now, weights_of_round(cosines, rows))


@dataclass(frozen=True)
class Guard(Filter[GuardState]):
    """Drop updates that no training makes, clients that are unlike their own past, and the wrong one of two camps.

    You need not tell it the number of attackers, and it works from the first round on. In each round it looks for:

    - updates that no training makes: copies of another update, copies with added noise, and pure noise;
    - updates that are too long: more than fifty times as long as expected, or clearly more than three times as long
      as the others;
    - clients whose updates are unlike those that they sent before;
    - two camps: two groups of clients that differ clearly in the direction or length of their updates. The server's
      examples (`Defense(evaluate=...)`), the trusted clients, the past or the majority tell which camp is wrong;
    - clients that learn much more than the others from some input of the first layer, such as a pixel in the
      trigger of a backdoor;
    - clients whose updates point against those of the others, round after round;
    - clients that do not help the server's examples, such as those with wrong labels.

    If most clients are attackers from the first round on, the filter finds them only if the server has examples.

    Parameters
    ----------
    max_false_positive_rate
        The share of all updates of honest clients, over all rounds, that may be dropped by mistake.
    min_survivors
        If less than this share of a round would be kept, no client is kept, and the global model stays as it is.
    on_doubt
        What to do if there are two camps of about the same size and nothing tells which one is wrong. `"keep"`
        keeps both camps. `"stay"` keeps no client, and the global model stays as it is. In both cases a warning is
        logged.
    trusted
        The ids of clients that you trust. Of two camps, the one with fewer trusted clients is wrong, unless the
        server's examples show the opposite. A trusted client can still be dropped for another reason.

    Examples
    --------
    >>> from flanders import Defense
    >>> rng = np.random.default_rng(0)
    >>> models = rng.normal(size=500) + 0.5 * rng.normal(size=(20, 500))
    >>> models[:4] *= -1
    >>> Defense(Guard())(models).dropped
    (0, 1, 2, 3)
    """

    max_false_positive_rate: float = 0.01
    min_survivors: float = 0.1
    on_doubt: str = "keep"
    trusted: tuple[ClientId, ...] = ()

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_number(name, "max_false_positive_rate", self.max_false_positive_rate, 0, 1)
        check_number(name, "min_survivors", self.min_survivors, 0, 1)
        check_choice(name, "on_doubt", self.on_doubt, ("keep", "stay"))
        object.__setattr__(self, "trusted", check_ids(name, "trusted", self.trusted))

    def init(self, rng: np.random.Generator | None = None) -> GuardState:
        """Return an empty memory."""
        return GuardState()

    def score(self, state: GuardState, round_: Round) -> Scores:
        """Decide which clients are dropped. Their scores are at least 1, and all other scores are below 1."""
        return scores_of(*self._decide(state, round_))

    def select(self, scores: Scores) -> IntVector:
        """Return the clients that are not suspects, or no client if too few are left (`min_survivors`)."""
        assert scores.suspects is not None  # `score` always sets it
        kept = np.flatnonzero(~scores.suspects)
        return kept if kept.size >= self.min_survivors * len(scores.clients) else kept[:0]

    def amend(
        self, state: GuardState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> GuardState:
        """Return the memory after a round. Nothing is learnt from a round with much fewer clients than usual."""
        found = self.evidence_of(state, round_, scores)
        number = state.round_number + 1
        if kept.size and not state.signatures.is_large_enough(len(round_.clients), number):
            return replace(state, round_number=number)
        learnt = learn_round(state.signatures, round_, number, kept, found.answers)
        remembered = set(learnt.clients)
        courses = {client: course for client, course in state.courses.items() if client in remembered}
        if kept.size >= 2:  # a course compares a client with the other kept clients
            now = np.vstack([headings_among(found.parts, kept), found.answers.values[kept, NOVELTY]]).T
            for row, course in zip(kept, now, strict=True):
                client = round_.clients[row]
                before = courses.get(client, course)
                if before.shape != course.shape:  # the layers were known in only one of the two rounds
                    before = course
                courses[client] = (np.where(np.isnan(before), course, before) + course) / 2
        common = state.common
        if kept.size >= 2:
            least = [usual_mean_cosine(cosines[np.ix_(kept, kept)]) for cosines in found.cosines]
            common = tuple(np.minimum(least, common).tolist()) if len(common) == len(least) else tuple(least)
        opposition = found.opposition_after(state.opposition, round_.clients, kept)
        directions = found.directions_after(state.directions, round_.clients, kept)
        inputs = found.inputs_after(state.inputs, kept)
        return GuardState(number, learnt, courses, common, opposition, directions, inputs)

    def evidence_of(self, state: GuardState, round_: Round, scores: Scores | None) -> GuardEvidence:
        """Return what `score` measured. If `scores` does not have it, measure it again."""
        check_state(type(self).__name__, state, GuardState)
        if scores is not None and isinstance(scores.evidence, GuardEvidence):
            return scores.evidence
        return self._decide(state, round_)[1]

    def _decide(self, state: GuardState, round_: Round) -> tuple[Decision, GuardEvidence]:
        """Return the decision about a round, and what was measured for it.

        If the server's `evaluate` does not work, the decision is made without it.
        """
        check_state(type(self).__name__, state, GuardState)
        try:
            return self._decided(state, round_)
        except BrokenEvaluate as error:
            known = round_.updates, round_.clients, round_.weights, round_.global_model, round_.root, round_.layers
            decision, found = self._decided(state, Round(*known))
            decision.notes.append(f"{error}; the server's examples were not used")
            log.warning("%s. Check the function `evaluate`.", decision.notes[-1])
            return decision, found

    def _decided(self, state: GuardState, round_: Round) -> tuple[Decision, GuardEvidence]:
        answers = ask_questions(state.signatures, round_, state.round_number + 1)
        parts = parts_of(round_, answers.products, state.signatures.crowd)
        *changes, novelty = changes_since(state.courses, round_, parts, answers.values[:, NOVELTY])
        cosines = tuple(cosines_of_gram(products) for products in parts.products)
        dropped = state.directions.dropped_rows(round_.clients)
        past = Past(tuple(changes), cosines, state.common, self._trusted_rows(round_), dropped)
        found = GuardEvidence(answers, parts, cosines, input_shares(round_))
        decision = start_decision(round_, self.max_false_positive_rate, past, found.rooted)
        lengths = lengths_of_gram(answers.products)
        crafted = crafted_rows(round_, answers.products, answers.values[:, FINGERPRINT])
        decision.drop(crafted & answers.moved, COPY_STRENGTH, COPY)
        loud, longer = loud_rows(state.signatures, answers)
        decision.drop_each(loud, longer / LOUDEST, lambda row: f"{times_as_long(longer[row])} as long as expected")
        directions_tell = bool(self.trusted) or not have_one_class_each(round_, decision.kept)
        if not directions_tell and state.round_number == 0:
            decision.note(ONE_CLASS_EACH)
        courses = tuple(changes) if directions_tell else ()
        own = own_traits(answers, state.signatures.typical[0], courses, novelty, parts.names)

        def traits_of(rows: BoolVector) -> list[Trait]:
            others = [*own, length_trait(lengths), *input_traits(found.inputs, state.inputs, rows)]
            if not directions_tell:
                return others
            directions = direction_traits(*found.looked_at, round_.clients, state.directions, rows, found.rooted)
            return [*directions, *others]

        drop_camps(decision, traits_of)
        drop_long(decision, *longer_than_others(state.signatures, answers, decision.kept, round_.weights))
        # In the first layers, directions tell more than in the last one. And the server's losses check them.
        tested = directions_tell or decision.examples is not None or outputs_of(round_) > OPPOSITE
        if found.in_first_layers is not None and tested:
            with_each_other, server = found.in_first_layers
            clients, known = round_.clients, state.opposition
            for by_server in (False,) if server is None else (False, True):
                rows = opposing_rows(with_each_other, decision.kept, clients, known, server, by_server=by_server)
                drop_opposing(decision, rows, by_server=by_server)
            if server is not None:
                drop_unhelpful(decision, unhelpful_rows(with_each_other, decision.kept, clients, known, server))
        if decision.doubt and self.on_doubt == "stay":
            decision.drop(decision.kept.copy(), 1.0, f"{LIKE_SIZE}, and nothing tells which one is wrong")
        return decision, found

    def _trusted_rows(self, round_: Round) -> BoolVector | None:
        if not self.trusted:
            return None
        return np.array([client in self.trusted for client in round_.clients])


def changes_since(
    courses: Mapping[ClientId, FloatVector], round_: Round, parts: Parts, novelty: FloatVector
) -> tuple[FloatVector, ...]:
    """Return by how much each client is above its usual values in `courses`, which `GuardState` explains.

    The result has an entry for each part of the model and a last one for novelty. Clients without a past have NaN.
    """
    now = np.array([*parts.headings, novelty])
    none = np.full(len(now), np.nan)
    usual = [courses.get(client, none) for client in round_.clients]
    return tuple(now - np.array([course if course.shape == none.shape else none for course in usual]).T)
