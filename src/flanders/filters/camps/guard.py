"""The filters: `Camps`, which remembers nothing, and `Guard`, which also knows what each client sent before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector
from flanders.checks import check_choice, check_number
from flanders.filters.camps.crafted import crafted
from flanders.filters.camps.decision import begin, decide, scores_of
from flanders.filters.camps.judging import Mask, Past, in_common
from flanders.filters.camps.looks import (
    ALIKE,
    Look,
    Parts,
    alike_looks,
    length_look,
    own_looks,
    parts_of,
    vote_looks,
    with_the_middle,
)
from flanders.filters.camps.splitting import split
from flanders.filters.camps.votes import Pairs
from flanders.filters.filter import Filter, Scores
from flanders.filters.fingerprint.learning import learn_round
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import FINGERPRINT, NOVELTY, Answers, ask_questions
from flanders.linalg.products import cosines_of_gram, lengths_of_gram
from flanders.round import ClientId, Round
from flanders.state import saveable

SERVER = "\0server"
"""The server's own step among those of clients: no client is called so."""
COPY = "a copy of another client's update, or random noise"


@saveable
@dataclass(frozen=True, eq=False)
class GuardState:
    """What `Guard` remembers."""

    round_number: int = 0
    signatures: Signatures = field(default_factory=Signatures)
    courses: dict[ClientId, FloatVector] = field(default_factory=dict)
    """How far each accepted client usually goes the way of the others, part by part of the model."""
    common: tuple[float, ...] = ()
    """The least that accepted clients had in common in any round so far, part by part."""
    pairs: Pairs = field(default_factory=Pairs)
    """What every two clients had in common in the first layers."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What `score` found out and `amend` would compute again."""

    answers: Answers
    parts: Parts
    pairs: Pairs


@dataclass(frozen=True)
class Guard(Filter[GuardState]):
    """Drop crafted updates, camps that the server's examples or the past speak against, and who is not itself.

    It needs not be told how many attack, and works from the first round on.

    Parameters
    ----------
    max_false_positive_rate
        The share of honest clients that may be dropped.
    min_survivors
        If less than this share of the round is left, nobody is kept and the global model stays.
    on_doubt
        What to do if there are two camps of like size and nothing tells which is right: `"keep"` everybody, or
        `"stay"` with the global model.
    trusted
        Clients that the user vouches for. They are dropped like others, but of two camps theirs is the right one.
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
        object.__setattr__(self, "trusted", tuple(self.trusted))

    def init(self, rng: np.random.Generator | None = None) -> GuardState:
        """Return an empty memory."""
        return GuardState()

    def score(self, state: GuardState, round_: Round) -> Scores:
        """Decide of each client whether it is dropped; scores from 1 on are."""
        answers = ask_questions(state.signatures, round_, state.round_number + 1)
        parts = parts_of(round_, answers.products, state.signatures.crowd)
        *changes, novelty = changes_since(state.courses, round_, parts, answers.values[:, NOVELTY])
        cosines = tuple(cosines_of_gram(products) for products in parts.products)
        past = Past(tuple(changes), cosines, state.common, self._vouched(round_))
        decision = begin(round_, self.max_false_positive_rate, past)
        lengths, d = lengths_of_gram(answers.products), round_.updates.shape[1]
        decision.drop(crafted(answers.products, d, answers.values[:, FINGERPRINT]) & answers.moved, 10.0, COPY)
        pairs, votes, server = self._votes(state, round_, parts, cosines[-1])
        own = own_looks(answers, tuple(changes), novelty, parts.names)

        def looks(rows: Mask) -> list[Look]:
            voted = [] if votes is None else vote_looks(votes, server, rows)
            return [*own, *alike_looks(parts, rows), *voted, length_look(lengths)]

        decide(decision, looks)
        if decision.doubt and self.on_doubt == "stay":
            decision.drop(decision.kept.copy(), 1.0, "two camps of like size, and nothing tells which is right")
        return scores_of(decision, Seen(answers, parts, pairs))

    def select(self, scores: Scores) -> IntVector:
        """Keep who is not suspected; nobody if too few are left."""
        assert scores.suspects is not None
        kept = np.flatnonzero(~scores.suspects)
        return kept if kept.size >= self.min_survivors * len(scores.clients) else kept[:0]

    def amend(
        self, state: GuardState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> GuardState:
        """Remember what the kept clients sent."""
        seen = (self.score(state, round_) if scores is None else scores).evidence
        number = state.round_number + 1
        learnt = learn_round(state.signatures, round_, number, kept, seen.answers)
        courses = {c: course for c, course in state.courses.items() if c in set(learnt.clients)}
        crowd = learnt.crowd
        if kept.size and crowd is not None:
            headings = parts_of(round_, seen.answers.products, crowd).headings
            now = np.array([*headings, seen.answers.values[:, NOVELTY]])
            for row in kept:
                client = round_.clients[row]
                before = courses.get(client, now[:, row])
                courses[client] = (np.where(np.isnan(before), now[:, row], before) + now[:, row]) / 2
        common = state.common
        if kept.size >= 2:
            now = [typically_in_common(products[np.ix_(kept, kept)]) for products in seen.parts.products]
            common = tuple(np.minimum(now, common).tolist()) if common else tuple(now)
        return GuardState(number, learnt, courses, common, seen.pairs)

    def _votes(
        self, state: GuardState, round_: Round, parts: Parts, cosines: FloatMatrix
    ) -> tuple[Pairs, FloatMatrix | None, FloatVector | None]:
        """Return what every two clients, and each client and the server, have in common over the rounds."""
        names: tuple[ClientId, ...] = round_.clients
        if parts.rooted:
            server = parts.rooted[-1]
            cosines = np.block([[cosines, server[:, None]], [server[None, :], np.ones((1, 1))]])
            names = (*names, SERVER)
        pairs, m = state.pairs.with_round(names, cosines), len(round_.clients)
        votes = pairs.of(names)
        if votes is None:
            return pairs, None, None
        return pairs, votes[:m, :m], votes[m, :m] if parts.rooted else None

    def _vouched(self, round_: Round) -> Mask | None:
        if not self.trusted:
            return None
        return np.array([client in self.trusted for client in round_.clients])


@dataclass(frozen=True)
class Camps(Guard):
    """Drop crafted updates, and camps that the server's examples, trusted clients or the majority speak against.

    It is `Guard` without the clients' own past: nothing is remembered but, in small federations, what every two
    clients had in common. Its parameters are those of `Guard`.
    """

    def amend(
        self, state: GuardState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> GuardState:
        """Count the round, and remember what every two clients had in common."""
        seen = (self.score(state, round_) if scores is None else scores).evidence
        return GuardState(state.round_number + 1, pairs=seen.pairs)


def typically_in_common(products: FloatMatrix) -> float:
    """Return what most of the accepted clients have in common, as a mean cosine.

    Should undetected attackers be among them, they are of another kind: the larger one counts.
    """
    cosines = cosines_of_gram(products)
    cut = split(with_the_middle(cosines), ALIKE, fewest=2)
    larger = np.ones(len(cosines), dtype=bool)
    if cut is not None:
        larger = cut.low if 2 * cut.low.sum() > len(cosines) else ~cut.low
    return in_common(cosines, larger)


def changes_since(
    courses: Mapping[ClientId, FloatVector], round_: Round, parts: Parts, novelty: FloatVector
) -> tuple[FloatVector, ...]:
    """Return how each client has changed since it was accepted: its course part by part, and what is new in it.

    NaN without a past.
    """
    now = np.array([*parts.headings, novelty])
    none = np.full(len(now), np.nan)
    usual = np.array([courses.get(client, none) for client in round_.clients])
    return tuple(now - usual.T) if usual.shape[1] == len(now) else tuple(now * np.nan)
