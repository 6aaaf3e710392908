"""The class `RunData`: one run as arrays, with its rounds and what happened to its clients in each round.

The HTML page and the figures are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flanders.alarms import Alarm
from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.client_ids import ClientId
from flanders.record import PHASES, Fate
from flanders.results.confusion import Confusion
from flanders.results.record_columns import ROUND_COLUMNS
from flanders.results.tree import Table

BoolMatrix = NDArray[np.bool_]
"""A matrix of true and false."""
NO, YES, UNKNOWN = 0, 1, 2
"""The values in a matrix of answers. Each cell of the matrix answers a question about one client in one round, for
example whether the client is malicious."""
MEASURES = tuple(column.name for column in ROUND_COLUMNS if column.kind == "float64")
"""The names of the numbers that are measured in each round: accuracy, loss, the seconds of each phase and so on."""


@dataclass(frozen=True, eq=False)
class TextMatrix:
    """A text for each client and round.

    Each different text is stored once, in `words`. A cell of `codes` has the position of its text in `words`.
    """

    words: tuple[str, ...]
    """The texts. The first one is empty."""
    codes: NDArray[np.int64]
    """An array of shape `(C, T)` for C clients and T rounds. 0 if the client has no record in the round."""

    def is_(self, word: str) -> BoolMatrix:
        """Return for each cell whether its text is `word`."""
        equal: BoolMatrix = self.codes == (self.words.index(word) if word in self.words else -1)
        return equal


@dataclass(frozen=True, eq=False)
class Totals:
    """What is known about all clients of a run, also about those that have no row in the matrices of `RunData`."""

    clients: int = 0
    """How many clients took part in any round."""
    fates: Mapping[Fate, IntVector] = field(default_factory=dict)
    """For each fate, how many clients had this fate in each round. Fates that did not occur are left out.

    The fate of a client is what happened to it in a round: it was kept, dropped, refused, banned or silent.
    """
    detection: Confusion = field(default_factory=Confusion)
    """The counts of malicious and honest clients that were kept or not kept, over all rounds.

    All counts are 0 if `truth` is false.
    """
    truth: bool = True
    """Whether it is known which clients are malicious. It is not known in a live federation, with real clients."""
    attacked: bool = False
    """Whether any client is known to be malicious."""
    judged: bool = False
    """Whether a filter judged the clients: scores differ, or the filter dropped a client in a round with scores."""
    alarms: tuple[Alarm, ...] = ()
    """The alarms of all rounds, in order. An alarm is something that a person should look at."""


@dataclass(frozen=True, eq=False)
class RunData:
    """One run: its T finished rounds, and what happened to each of C clients in each round.

    `rounds` and each vector of `measures` have a value for each round. Matrices are `(C, T)`: a row for each
    client, a column for each round. If a client has no record in a round, `present` is false there, and the other
    matrices hold NaN, `UNKNOWN` or an empty text. If a run has very many clients, only some of them have a row.
    `totals` counts all clients.
    """

    id: str
    spec: Table
    """The description of the run: its data, its attack, its defence and so on."""
    status: str
    rounds: IntVector
    """The numbers of the finished rounds."""
    measures: Mapping[str, FloatVector]
    """The measured numbers of each round, by their names in `MEASURES`. NaN if a number was not measured."""
    clients: tuple[ClientId, ...]
    numbers: Mapping[str, FloatMatrix]
    """The fields of `ClientRecord` that are numbers, by name. NaN if there is no number."""
    answers: Mapping[str, NDArray[np.uint8]]
    """The fields of `ClientRecord` that are true or false, by name, as `NO`, `YES` or `UNKNOWN`."""
    texts: Mapping[str, TextMatrix]
    """The fields of `ClientRecord` that are texts, by name."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """Anything unusual that happened in a round, by the number of the round."""
    message: str = ""
    """Why the run failed, or why it could not be read."""
    totals: Totals = field(default_factory=Totals)
    evenly_chosen: BoolVector | None = None
    """For each row, whether its client was picked out of the list of all clients at equal distances.

    The clients that were picked in this way represent all clients. The other rows belong to the clients that were
    most often not kept. None if every client has a row.
    """

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
        """How often the model gives the answer that the attacker wants; see `RoundRecord.attack_success`."""
        return self.measures["attack_success"]

    @property
    def threshold(self) -> FloatVector:
        """The largest score of a kept client in each round. NaN if no kept client has a score."""
        return self.measures["threshold"]

    @cached_property
    def seconds(self) -> Mapping[str, FloatVector]:
        """The seconds of each phase of a round, such as training, in each round."""
        return {phase: self.measures[phase] for phase in PHASES}

    @property
    def score(self) -> FloatMatrix:
        """The score of each client: higher is more suspicious. NaN if the filter did not judge the client."""
        return self.numbers["score"]

    @property
    def probability(self) -> FloatMatrix:
        """Each client's probability of being malicious. NaN if the filter does not estimate it."""
        return self.numbers["probability"]

    @cached_property
    def present(self) -> BoolMatrix:
        """Whether a client has a record in a round."""
        has_record: BoolMatrix = self.texts["fate"].codes > 0
        return has_record

    @cached_property
    def malicious(self) -> BoolMatrix:
        """Whether a client has a record in a round, and is known to be malicious."""
        known: BoolMatrix = self.answers["malicious"] == YES
        return known

    @cached_property
    def kept(self) -> BoolMatrix:
        """Whether a client's model was aggregated."""
        return self.having(Fate.KEPT)

    def having(self, fate: Fate) -> BoolMatrix:
        """Return for each client and round whether the client has this fate."""
        return self.texts["fate"].is_(fate)

    @cached_property
    def not_kept(self) -> IntVector:
        """In how many rounds each client was not kept."""
        count: IntVector = np.count_nonzero(self.present & ~self.kept, axis=1)
        return count

    @property
    def fates(self) -> dict[Fate, int]:
        """How often each fate occurred, over all clients and rounds. Fates that did not occur are left out."""
        return {fate: int(counts.sum()) for fate, counts in self.totals.fates.items()}

    @property
    def truth(self) -> bool:
        """Whether it is known which clients are malicious; see `Totals`."""
        return self.totals.truth

    @property
    def detection(self) -> Confusion:
        """The counts of malicious and honest clients that were kept or not kept; see `Totals`."""
        return self.totals.detection

    @property
    def judged(self) -> bool:
        """Whether a filter judged the clients; see `Totals`."""
        return self.totals.judged
