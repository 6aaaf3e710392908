"""The filter `Fingerprint`, which compares each client's update with the client's earlier updates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import Array, IntVector
from flanders.checks import check_number
from flanders.filters.filter import Filter, Scores, check_state
from flanders.filters.fingerprint.decision import score_by_answers
from flanders.filters.fingerprint.learning import learn_round
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import Answers, ask_questions
from flanders.round import Round
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class FingerprintState:
    """The memory of `Fingerprint`."""

    round_number: int = 0
    """How many rounds the filter has seen."""
    signatures: Signatures = field(default_factory=Signatures)
    """What is remembered of each client."""


@dataclass(frozen=True)
class Fingerprint(Filter[FingerprintState]):
    """Drop clients whose updates do not look like their own earlier ones.

    A client's data leave a mark on everything that it sends: the direction in which its updates differ from those
    of the other clients. The filter remembers this mark and asks six questions about each new update (see
    `flanders.filters.fingerprint.questions`). You need not tell it the number of attackers. In the first two rounds
    there is no past to compare with. So the filter drops only updates that are many times longer than most.

    Parameters
    ----------
    max_false_positive_rate
        The share of all updates of honest clients, over all rounds, that may be dropped by mistake.
    min_survivors
        If less than this share of a round would be kept, no client is kept, and the global model stays as it is.

    Examples
    --------
    >>> from flanders import Defense
    >>> rng = np.random.default_rng(0)
    >>> honest = rng.normal(size=(10, 1000))
    >>> defense = Defense(Fingerprint())
    >>> for t in range(6):
    ...     models = honest * 0.9**t + 0.1 * rng.normal(size=(10, 1000))
    ...     if t == 5:
    ...         models[:6] *= -1
    ...     outcome = defense(models, global_model=np.zeros(1000))
    >>> outcome.dropped
    (0, 1, 2, 3, 4, 5)
    """

    max_false_positive_rate: float = 0.01
    min_survivors: float = 0.1

    def __post_init__(self) -> None:
        check_number("Fingerprint", "max_false_positive_rate", self.max_false_positive_rate, 0, 1)
        check_number("Fingerprint", "min_survivors", self.min_survivors, 0, 1)

    def init(self, rng: np.random.Generator | None = None) -> FingerprintState:
        """Return an empty memory."""
        return FingerprintState()

    def score(self, state: FingerprintState, round_: Round) -> Scores:
        """Score each client by its largest deviation from the answers of accepted clients; see `decision`."""
        check_state("Fingerprint", state, FingerprintState)
        return score_by_answers(state.signatures, round_, state.round_number + 1, self.max_false_positive_rate)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients that are not suspects, or no client if too few are left (`min_survivors`)."""
        assert scores.suspects is not None  # `score` always sets it
        kept = np.flatnonzero(~scores.suspects)
        return kept if kept.size >= self.min_survivors * len(scores.clients) else kept[:0]

    def amend(
        self,
        state: FingerprintState,
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> FingerprintState:
        """Return the memory after a round, with new marks of the kept clients."""
        check_state("Fingerprint", state, FingerprintState)
        number, answers = state.round_number + 1, None if scores is None else scores.evidence
        if not isinstance(answers, Answers):
            answers = ask_questions(state.signatures, round_, number)
        return FingerprintState(number, learn_round(state.signatures, round_, number, kept, answers))
