"""One run as arrays: its rounds, and what happened to its clients in each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flanders.alarms import Alarm
from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.record import PHASES, Fate
from flanders.results.confusion import Confusion
from flanders.results.record_columns import ROUND_COLUMNS
from flanders.results.tree import Table
from flanders.round import ClientId

BoolMatrix = NDArray[np.bool_]
NO, YES, UNKNOWN = 0, 1, 2
"""The values of a matrix that answers a question about each client."""
MEASURES = tuple(column.name for column in ROUND_COLUMNS if column.kind == "float64")
"""What is measured in each round: accuracy, loss, threshold, the seconds of each phase."""


@dataclass(frozen=True, eq=False)
class TextMatrix:
    """A text for each client and round: a list of all different texts, and each cell's place in the list."""

    words: tuple[str, ...]
    """The texts. The first one is empty."""
    codes: NDArray[np.int64]
    """`(C, T)`: which text. It is 0 where a client did not take part."""

    def is_(self, word: str) -> BoolMatrix:
        """Return where the text is this one."""
        found: BoolMatrix = self.codes == (self.words.index(word) if word in self.words else -1)
        return found


@dataclass(frozen=True, eq=False)
class Totals:
    """What is known of all clients of a run together, also of those that have no row in the matrices."""

    clients: int = 0
    """How many clients took part in any round."""
    fates: Mapping[Fate, IntVector] = field(default_factory=dict)
    """Fate -> how many clients had it in each round. Fates that did not occur are left out."""
    detection: Confusion = field(default_factory=Confusion)
    """Malicious and honest clients, kept and not, counted over all rounds; zeros if the truth is not known."""
    truth: bool = True
    """Whether it is known who is malicious. Nobody knows in a live federation."""
    attacked: bool = False
    """Whether any client is known to have sent poison."""
    judged: bool = False
    """Whether a filter judged the clients. A filter that gives all the same score and drops nobody did not."""
    alarms: tuple[Alarm, ...] = ()
    """What a person should look at, round by round."""


@dataclass(frozen=True, eq=False)
class RunData:
    """One run: its T finished rounds, and what happened to each of C clients in each of them.

    Vectors have one value per round. Matrices are `(C, T)`: a row per client, a column per round. A client that
    took no part in a round is not `present` there, and the other matrices say nothing about it. If a run has very
    many clients, only some of them have a row. `totals` count all of them.
    """

    id: str
    spec: Table
    status: str
    rounds: IntVector
    measures: Mapping[str, FloatVector]
    """All that is measured in a round, by name; see `MEASURES`. NaN where it was not measured."""
    clients: tuple[ClientId, ...]
    numbers: Mapping[str, FloatMatrix]
    """The fields of `ClientRecord` that are numbers. NaN where there is none."""
    answers: Mapping[str, NDArray[np.uint8]]
    """The fields of `ClientRecord` that are true or false: `NO`, `YES` or `UNKNOWN`."""
    texts: Mapping[str, TextMatrix]
    """The fields of `ClientRecord` that are texts."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """Round number -> what was out of the ordinary."""
    message: str = ""
    """Why the run failed, or why it could not be read."""
    totals: Totals = field(default_factory=Totals)
    spread: BoolVector | None = None
    """Which of the rows are spread evenly over all clients; None if every client has a row."""

    @property
    def accuracy(self) -> FloatVector:
        """The accuracy after each round."""
        return self.measures["accuracy"]

    @property
    def loss(self) -> FloatVector:
        """The loss after each round."""
        return self.measures["loss"]

    @property
    def attack_success(self) -> FloatVector:
        """The share of the aimed examples taken for the attacker's target, after each round; see `RoundRecord`."""
        return self.measures["attack_success"]

    @property
    def threshold(self) -> FloatVector:
        """The largest score that was kept in each round; NaN if no kept client has a score."""
        return self.measures["threshold"]

    @cached_property
    def seconds(self) -> Mapping[str, FloatVector]:
        """Phase -> seconds in each round."""
        return {phase: self.measures[phase] for phase in PHASES}

    @property
    def score(self) -> FloatMatrix:
        """How abnormal each client looked: higher is more abnormal. NaN if nothing judged it."""
        return self.numbers["score"]

    @property
    def probability(self) -> FloatMatrix:
        """Each client's probability of being malicious. NaN if the filter cannot tell."""
        return self.numbers["probability"]

    @cached_property
    def present(self) -> BoolMatrix:
        """Whether a client has a record in a round."""
        found: BoolMatrix = self.texts["fate"].codes > 0
        return found

    @cached_property
    def malicious(self) -> BoolMatrix:
        """Whether a client is known to have sent poison."""
        found: BoolMatrix = self.answers["malicious"] == YES
        return found

    @cached_property
    def kept(self) -> BoolMatrix:
        """Whether a client's model was aggregated."""
        return self.having(Fate.KEPT)

    def having(self, fate: Fate) -> BoolMatrix:
        """Return where clients have this fate."""
        return self.texts["fate"].is_(fate)

    @cached_property
    def not_kept(self) -> IntVector:
        """In how many rounds each client was not kept."""
        count: IntVector = np.count_nonzero(self.present & ~self.kept, axis=1)
        return count

    @property
    def fates(self) -> dict[Fate, int]:
        """How often each fate occurred, all rounds and clients together. Fates that did not occur are left out."""
        return {fate: int(counts.sum()) for fate, counts in self.totals.fates.items()}

    @property
    def truth(self) -> bool:
        """Whether it is known who is malicious. Nobody knows in a live federation."""
        return self.totals.truth

    @property
    def detection(self) -> Confusion:
        """Malicious and honest clients, kept and not, counted over all rounds; zeros if the truth is not known."""
        return self.totals.detection

    @property
    def judged(self) -> bool:
        """Whether a filter judged the clients; see `Totals`."""
        return self.totals.judged
