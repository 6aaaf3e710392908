"""The class `FilteredStrategy`: a Flower strategy that wraps another strategy and puts a filter in front of it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from flanders.callbacks import AnyCallback, Callbacks
from flanders.checks import InputError, check_number
from flanders.defense import Defense
from flanders.filters import Filter, Guard
from flanders.flower.aggregation import StrategyAggregation
from flanders.flower.aggregator_strategy import AggregatorStrategy
from flanders.flower.bans import Ban
from flanders.flower.bookkeeping import Bookkeeping
from flanders.flower.identity import Identify, by_key
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.own_start import start_of
from flanders.flower.parameter_checks import check_function, check_part, check_paths
from flanders.flower.replies import Answer, SortedReplies, checked_replies, discard_arrays, read_arrays
from flanders.flower.replies_on_disk import RepliesOnDisk
from flanders.flower.reply_metrics import find_claims
from flanders.flower.results_recorder import Recorder, live_spec
from flanders.flower.round_audit import AuditPlace, RoundAudit
from flanders.flower.round_matrix import ReusedMemory, RoundMatrix, SketchedMatrix, WholeMatrix
from flanders.flower.round_report import filter_line
from flanders.flower.round_weights import RoundWeights
from flanders.flower.saved_memory import SavedMemory, StateFolder
from flanders.flower.server_test import ServerTest
from flanders.flower.weight_limits import DEFAULT_LIMITS, WeightLimits
from flanders.hosts.model_arrays import Vector, is_buffer
from flanders.hosts.refusals import check_refusals
from flanders.hosts.round_line import unused_of
from flanders.record import STAYS, ClientRecord, Fate, RoundRecord
from flanders.round import Evaluate, Round

ME = "FilteredStrategy"


class FilteredStrategy(Strategy):
    """Let a filter drop suspicious replies before a strategy aggregates the rest.

    Replies are checked one by one. A client whose reply cannot be used is left out of the round. The filter chooses
    which of the other replies to keep. The wrapped strategy aggregates the kept replies.

    Parameters
    ----------
    strategy
        The strategy to wrap. It may be one of Flower's wrappers for differential privacy. Do not put such a wrapper
        around a `FilteredStrategy`: the filter must see the replies before the wrapper clips them. If the strategy
        overrides `start`, its own `start` carries out the rounds.
    filter
        Decides which clients to keep. Default: `Guard()`, which need not be told the number of attackers. If a
        filter has a parameter `keep`, set it to a fraction, not to a number of clients: not all of them may reply.
    state_dir
        A folder in which the filter's memory, the bans and the global model are saved after each round. A ServerApp
        that is started again with this folder continues after the last saved round. Default: nothing is saved.
    results
        A file to which each round is written. `flanders show` and `flanders report` read it. Default: no file.
    audit
        A file for the audit trail, or an `AuditTrail`. The trail holds every decision of the server. `flanders
        audit verify` detects later changes to the file. Default: no audit trail.
    ban
        Bans clients that are dropped or refused too often. A banned client gets no messages for some rounds.
        Default: no client is banned.
    fallback
        The strategy for rounds in which the filter knows too little to judge, usually only the first round. Choose
        a robust strategy, e.g. `FedMedian()`, if clients may be malicious from the start. Only its method
        `aggregate_train` is called. Default: `strategy`.
    sketch
        The length of a sketch. A sketch is a short vector that is computed from a model with secret random numbers.
        The filter then sees sketches instead of whole models, and replies are stored on disk until they are
        aggregated. Use this if only a few of your models fit into memory. Default: the filter sees whole models.
    unscored
        A function that takes the name of a float array and returns True if the filter should not look at the array.
        Such arrays are still aggregated. The filter never looks at integer arrays. Default: the function
        returns True for the buffers of batch normalisation.
    identify
        A function that takes the `NodeInfo` of a node and returns the name of its client. No two clients may have
        the same name. Default: the name is made from the node's public key, or from its id if it has no key.
    limits
        Limits on the weight of each client, and on the weight of all newcomers together. Newcomers are clients
        whose last reply was not kept, and clients that have not replied before.
    seed
        Makes the randomness of the filter and of the sketch repeatable. Leave it out in production, since an
        attacker who can predict the randomness can evade the filter.
    callbacks
        Receivers of the record of each round: functions, or objects with a method `on_round(record)` such as those
        of `flanders.callbacks`. They get the record when the next round begins, or at the end of the last round.

    Examples
    --------
    >>> from flanders import Flanders
    >>> from flwr.serverapp.strategy import FedAvg
    >>> strategy = FilteredStrategy(FedAvg(), filter=Flanders(keep=0.8))
    >>> result = strategy.start(grid, initial_arrays, num_rounds=10)  # doctest: +SKIP
    """

    def __init__(
        self,
        strategy: Strategy,
        filter: Filter[Any] | None = None,
        *,
        state_dir: str | os.PathLike[str] | None = None,
        results: str | os.PathLike[str] | None = None,
        audit: AuditPlace = None,
        ban: Ban | None = None,
        fallback: Strategy | None = None,
        sketch: int | None = None,
        unscored: Callable[[str], bool] = is_buffer,
        identify: Identify = by_key,
        limits: WeightLimits = DEFAULT_LIMITS,
        seed: int | None = None,
        callbacks: Iterable[AnyCallback] = (),
    ) -> None:
        filter = Guard() if filter is None else filter
        check_part(ME, "strategy", strategy, Strategy)
        check_part(ME, "filter", filter, Filter)
        check_part(ME, "ban", ban, Ban, optional=True)
        check_part(ME, "fallback", fallback, Strategy, optional=True)
        check_number(ME, "sketch", sketch, 2, whole=True, optional=True)
        check_number(ME, "seed", seed, 0, whole=True, optional=True)
        check_part(ME, "limits", limits, WeightLimits)
        check_paths(ME, state_dir=state_dir, results=results)
        check_function(ME, "unscored", unscored)
        check_function(ME, "identify", identify)
        self.strategy, self.fallback, self.sketch, self.unscored = strategy, fallback, sketch, unscored
        self.identify, self.limits = identify, limits
        rng = np.random.default_rng(seed)
        memory = SavedMemory(sketch, int(rng.integers(0, 2**63)), secrets.token_hex(8))
        self.defense = Defense(filter, streams=(rng, rng))
        """The filter and its memory."""
        folder = StateFolder(state_dir)
        memory = folder.recall(memory, self.defense)
        spec = live_spec(memory.run, strategy, filter, fallback, sketch)
        recorder = Recorder(None if results is None else Path(results), spec, Callbacks(ME, callbacks))
        arrays, memory = memory.record, replace(memory, model={})  # do not keep a second copy of the model
        self._books = Bookkeeping(memory, folder, recorder, RoundAudit(ME, audit, spec), ban, arrays, memory.rounds)
        self._claims = find_claims(strategy)  # the names of the metrics that give the weight of a reply
        self.server_test = ServerTest()
        """Tests models on data of the server. Filters can use it if `start` gets no `evaluate_fn`."""
        self._start_test: ServerTest | None = None  # calls the `evaluate_fn` that `start` got last
        self.strict = False
        """Whether every error of the filter or the strategy ends the run, even if clients may have caused it."""
        self._sent_at = 0.0
        self._matrix_memory = ReusedMemory()

    @property
    def filter(self) -> Filter[Any]:
        """The filter."""
        return self.defense.filter

    @property
    def last_round(self) -> RoundRecord | None:
        """The record of the last round; None before the first round."""
        return self._books.recorder.last

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose clients, and leave out the banned ones."""
        number, books = server_round + self._books.done_before, self._books
        books.recorder.settle()
        books.arrays = arrays
        books.model_arrays(arrays, self.unscored)
        if isinstance(self.fallback, AggregatorStrategy):
            self.fallback.begin_round(arrays)
        chosen = self.strategy.configure_train(number, arrays, config, grid)
        messages = books.ask(chosen, grid, self.identify, number)
        books.recorder.introduce(books.nodes.values())
        self._sent_at = time.perf_counter()
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies, let the filter choose among them, and let the strategy aggregate the chosen ones."""
        books, began, replies = self._books, time.perf_counter(), list(replies)
        number = server_round + books.done_before
        books.audit.receive(replies, books.asked)
        sorted_replies = checked_replies(replies, books.asked, self._claims, self.limits.max_examples)
        model = books.model_arrays(books.arrays, self.unscored)
        matrix = self._matrix(model, len(sorted_replies.answers))
        answers = read_arrays(sorted_replies, model, matrix, books.arrays)
        weights = RoundWeights(answers, self._claims, self.limits, sorted_replies)
        aggregation = StrategyAggregation(number, model, matrix, matrix.row_of(books.arrays), weights)
        judged = self._defend(answers, aggregation, sorted_replies) if answers else ()
        if not answers:
            if not books.memory.has_aggregated:
                check_refusals(number, sorted_replies.failed.values())
            sorted_replies.notes.append(f"no reply can be used: {STAYS}")
        spent = time.perf_counter() - began - aggregation.seconds
        seconds = {"train": began - self._sent_at, "filter": spent, "aggregate": aggregation.seconds}
        record = books.record(number, judged, sorted_replies, seconds)
        counts = books.finish_round(record, aggregation.arrays, self.defense, warn=bool(sorted_replies.warnings))
        discard_arrays(replies)
        return aggregation.arrays, MetricRecord({**(aggregation.metrics or {}), **counts})

    def _defend(
        self, answers: Sequence[Answer], aggregation: StrategyAggregation, sorted_replies: SortedReplies
    ) -> Sequence[ClientRecord]:
        """Let the filter choose among the answers, and return what happened to the client of each answer."""
        fallback, matrix, books = self.fallback, aggregation.matrix, self._books
        # The weight of clients that are not in `known` is limited. A filter without a memory treats all clients
        # alike. Then `known` is None, and no weight is limited.
        known = None if self.defense.state is None else books.memory.roster.known
        try:
            round_ = Round(
                matrix.numbers[: len(answers)],
                tuple(answer.client for answer in answers),
                aggregation.weights.values,
                aggregation.before,
                *self._own_knowledge(aggregation),
            )
            outcome = self.defense.step(
                round_,
                lambda kept: aggregation.by(self.strategy, kept, known),
                None if fallback is None else lambda kept: aggregation.by(fallback, kept, known),
            )
        except Exception as error:  # e.g. too few clients, or a mistake in a filter of the user's own
            if self.strict:
                raise
            if not isinstance(error, InputError):
                books.raise_if_never_worked("filter", error, type(self.filter).__name__, sorted_replies)
            sorted_replies.notes.append(f"the filter cannot judge this round ({error}): {STAYS}")
            reason = "the filter could not judge this round"
            return [ClientRecord(answer.client, Fate.DROPPED, reason=reason) for answer in answers]
        books.has_worked("filter")
        part = "strategy" if aggregation.used is self.strategy else "fallback"
        if aggregation.error is not None:
            if self.strict:
                raise aggregation.error
            books.raise_if_never_worked(part, aggregation.error, type(aggregation.used).__name__, sorted_replies)
        if aggregation.arrays is not None:
            books.has_worked(part)
        sorted_replies.widening = outcome.widening
        if note := aggregation.note or outcome.note:
            sorted_replies.notes.append(note)
        return outcome.clients

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose the clients that evaluate, and leave out the banned ones."""
        number = server_round + self._books.done_before
        chosen = self.strategy.configure_evaluate(number, arrays, config, grid)
        return self._books.ask(chosen, grid, self.identify, number)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Let the strategy aggregate the usable evaluations of the clients that `Roster.evaluators` selects."""
        books, claims = self._books, self._claims[:1]
        number = server_round + books.done_before
        sorted_replies = checked_replies(replies, books.asked, claims, self.limits.max_examples)
        failed = [asked.client for asked in books.asked if asked.client in sorted_replies.failed]
        failures = RoundRecord(number, tuple(sorted_replies.failed[client] for client in failed))
        left_out = sorted_replies.only(books.memory.roster.evaluators(sorted_replies.usable))
        answers = sorted_replies.answers
        RoundWeights(answers, claims, self.limits, sorted_replies).prepare(np.arange(len(answers)))
        if unusual := [*unused_of(failures, books.label), *sorted_replies.notes, *sorted_replies.warnings]:
            log(WARNING, "flanders: evaluation of round %s: %s", number, "; ".join(unusual))
        if left_out:
            log(INFO, "flanders: %s evaluations do not count: their clients were not kept in training", left_out)
        try:
            metrics = self.strategy.aggregate_evaluate(number, [answer.message for answer in answers])
        except Exception as error:  # a strategy is the user's own code and may raise anything
            books.raise_if_never_worked("evaluation", error, type(self.strategy).__name__, sorted_replies)
            log(ERROR, "flanders: %s failed to evaluate", type(self.strategy).__name__, exc_info=error)
            return None
        if metrics is not None:
            books.has_worked("evaluation")
        books.recorder.add_evaluation(metrics)
        return metrics

    def summary(self) -> None:
        """Log the filter and the settings of the wrapped strategy."""
        log(INFO, "\t├──> Filter: %s", filter_line(self.filter))
        log(INFO, "\t├──> Around: %s", type(self.strategy).__name__)
        self.strategy.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Carry out the rounds that are left, as `flwr.serverapp.strategy.Strategy.start` does.

        `num_rounds` is the number of all rounds. It includes the rounds that earlier calls of `start` have done,
        on this object or with the same `state_dir`. If there are such rounds, the next round starts from the last
        global model, and `initial_arrays` is not used.

        If the metrics of `evaluate_fn` hold a loss, the filter may use `evaluate_fn` to find out which of two
        groups of clients improves the model. If the filter does so in a round, it calls `evaluate_fn` a few times.
        """
        check_part(f"{ME}.start", "initial_arrays", initial_arrays, ArrayRecord)
        check_number(f"{ME}.start", "num_rounds", num_rounds, 0, whole=True)
        books = self._books
        with books.folder.locked():
            books.catch_up(self.defense)
            model, done = books.model_arrays(initial_arrays, self.unscored), books.done_before
            if done:
                initial_arrays = books.arrays
                books.folder.tell_of_earlier_rounds(done, num_rounds)
            else:
                model.check_all(initial_arrays, "`initial_arrays`")
            left, tell = max(0, num_rounds - done), books.recorder.add_evaluation
            test = self._start_test = None if evaluate_fn is None else ServerTest(evaluate_fn, done, tell)
            with books.running(), self._grid(grid) as grid:
                start = start_of(self, self.strategy)
                result = start(grid, initial_arrays, left, timeout, train_config, evaluate_config, test)
        return books.completed(result, initial_arrays)

    def _own_knowledge(
        self, aggregation: StrategyAggregation
    ) -> tuple[Vector | None, Mapping[str, int], Evaluate | None]:
        """Return the arguments `root`, `layers` and `evaluate` of `Round`, which explains them."""
        layers = aggregation.matrix.layers
        if self.sketch is not None:  # `root` and `evaluate` need whole models
            return None, layers, None
        arguments = aggregation.number, aggregation.model, self._books.arrays
        test = self._start_test or self.server_test
        return test.step(*arguments), layers, test.of_models(*arguments)

    def _grid(self, grid: Grid) -> AbstractContextManager[Grid]:
        """Return the grid to use during the rounds. With sketches, this grid stores replies on disk."""
        if self.sketch is None:
            return nullcontext(grid)
        return RepliesOnDisk(grid, self._books.folder.folder, self._books.excess)

    def _matrix(self, model: ModelArrays, rows: int) -> RoundMatrix:
        if self.sketch is None:
            return WholeMatrix(model, rows, self._matrix_memory)
        return SketchedMatrix(model, rows, self.sketch, self._books.memory.secret)
