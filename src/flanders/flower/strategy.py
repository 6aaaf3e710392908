"""A filter around any Flower strategy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
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

from flanders.checks import InputError, check_number
from flanders.defense import defend
from flanders.filters import Filter, Fingerprint
from flanders.flower.aggregation import STAYS, Aggregation
from flanders.flower.bans import Ban
from flanders.flower.identity import Asked, Identify, by_key, call_roll
from flanders.flower.memory import ELSEWHERE, Notebook
from flanders.flower.plan import Plan, is_buffer
from flanders.flower.recording import Recorder, RoundReport, Verdict, describe, judge
from flanders.flower.replies import (
    MOST_EXAMPLES,
    Sorted,
    check_metrics,
    empty,
    find_weight_key,
    read_arrays,
    sort_replies,
    weight_of,
)
from flanders.flower.setup import check_function, check_kind, check_path, check_refusals, warn_of_own_start
from flanders.flower.spilling import SpillingGrid
from flanders.flower.views import Reused, RoundView, Sketched, Whole
from flanders.record import Fate
from flanders.round import Round, by_name

ME = "FilteredStrategy"


class FilteredStrategy(Strategy):
    """Let a filter drop suspicious replies before a strategy aggregates the rest.

    Replies are checked one by one, and one that cannot be used costs its sender the round, never the run. What is
    left goes through the same `flanders.defend` as in the simulator, with the strategy's own aggregation.

    Parameters
    ----------
    strategy
        The strategy to protect. Differential privacy goes inside, for clipping first would hide who is abnormal.
        A `start` of its own is not called.
    filter
        Whom to keep. Default: `Fingerprint()`, which need not be told how many. With one that must, prefer a
        fraction to a number of clients, for fewer may reply.
    state_dir
        A folder for the filter's memory, the ban list and the global model, saved after each round. A ServerApp
        that starts with a folder that is not empty goes on after the last round in it.
    results
        A results file for `flanders show` and `flanders report`.
    ban
        Leave out for a while who is dropped too often.
    fallback
        The strategy for rounds in which the filter has no scores yet, usually only the first. Choose a robust
        one, e.g. `FedMedian()`, if clients may be malicious from the start. Only its `aggregate_train` is used.
    sketch
        Show the filter a secret sketch of so many numbers in place of the models, and keep the replies on disk
        until they are aggregated: for models of which memory holds only a few. Default: the models themselves.
    unscored
        Tells by their names which float arrays are aggregated but not scored. Default: batch normalisation's
        buffers. Integers never are.
    identify
        Names the client behind a node, each by a name of its own, given the `NodeInfo`. Default: the public key
        where there is one, else the node id.
    max_examples
        Refuse replies that claim more examples than this, for who claims more counts more.
    seed
        Makes the filter's and the sketch's randomness repeatable. Leave it out in production: what an attacker can
        predict, it can evade.

    Examples
    --------
    >>> from flanders import Fingerprint, Flanders
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
        ban: Ban | None = None,
        fallback: Strategy | None = None,
        sketch: int | None = None,
        unscored: Callable[[str], bool] = is_buffer,
        identify: Identify = by_key,
        max_examples: float | None = None,
        seed: int | None = None,
    ) -> None:
        filter = Fingerprint() if filter is None else filter
        check_kind(ME, "strategy", strategy, Strategy)
        check_kind(ME, "filter", filter, Filter)
        check_kind(ME, "ban", ban, Ban, optional=True)
        check_kind(ME, "fallback", fallback, Strategy, optional=True)
        for name, number, low in (("sketch", sketch, 2), ("seed", seed, 0)):
            if number is not None:
                check_number(ME, name, number, low, whole=True)
        if max_examples is not None:
            check_number(ME, "max_examples", max_examples, 0, MOST_EXAMPLES)
        check_path(ME, "state_dir", state_dir)
        check_path(ME, "results", results)
        check_function(ME, "unscored", unscored)
        check_function(ME, "identify", identify)
        warn_of_own_start(strategy)
        self.strategy, self.filter, self.ban, self.fallback = strategy, filter, ban, fallback
        self.sketch, self.unscored, self.identify, self.max_examples = sketch, unscored, identify, max_examples
        self._notebook = Notebook(state_dir)
        memory = self._notebook.open(filter, sketch, np.random.default_rng(seed))
        self._arrays = memory.arrays  # the global model after the last round
        self._memory = replace(memory, model={})
        spec = describe(self._memory.run, strategy, filter, fallback, sketch)
        self._recorder = Recorder(None if results is None else Path(results), spec)
        self._weight_key = find_weight_key(strategy)
        self._done_before = self._memory.rounds  # rounds of earlier starts
        self._asked: list[Asked] = []
        self._banned: list[Asked] = []
        self._sent_at = 0.0
        self._matrices = Reused()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose whom to ask, and leave out who is banned."""
        number = server_round + self._done_before
        self._arrays = arrays
        self._plan(arrays)
        messages = list(self.strategy.configure_train(number, arrays, config, grid))
        roll = call_roll(messages, grid, self.identify)
        self._recorder.introduce(roll)
        banned = [self._memory.bans.is_banned(asked.client, number) for asked in roll]
        self._asked = [asked for asked, out in zip(roll, banned, strict=True) if not out]
        self._banned = [asked for asked, out in zip(roll, banned, strict=True) if out]
        self._sent_at = time.perf_counter()
        return [message for message, out in zip(messages, banned, strict=True) if not out]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies, let the filter choose among them, and let the strategy aggregate the chosen."""
        number, began, replies = server_round + self._done_before, time.perf_counter(), list(replies)
        found = sort_replies(replies, self._asked)
        check_metrics(found, self._weight_key, self.max_examples)
        plan = self._plan(self._arrays)
        view = self._view(plan, len(found.answers))
        answers = read_arrays(found, plan, view)
        messages = [answer.message for answer in answers]
        aggregation = Aggregation(number, messages, plan, view, view.of_model(self._arrays))
        verdicts: list[Verdict] = []
        if answers:
            verdicts = self._defend([answer.asked for answer in answers], aggregation, found)
        else:
            if not self._memory.has_aggregated:
                check_refusals(number, found.failed)
            found.notes.append(f"no reply can be used: {STAYS}")
        ended = time.perf_counter()
        seconds = {
            "train": began - self._sent_at,
            "filter": ended - began - aggregation.seconds,
            "aggregate": aggregation.seconds,
        }
        report = self._report(number, verdicts, found, aggregation.arrays is None, seconds)
        self._remember(report, aggregation)
        empty(replies)
        metrics = MetricRecord() if aggregation.metrics is None else aggregation.metrics
        metrics.update(report.metrics())
        return aggregation.arrays, metrics

    def _defend(self, asked: list[Asked], aggregation: Aggregation, found: Sorted) -> list[Verdict]:
        """Run the five lines that the simulator runs, and return what became of each row."""
        fallback, view = self.fallback, aggregation.view
        try:
            round_ = Round(
                view.matrix[: len(asked)],
                tuple(one.client for one in asked),
                np.array([weight_of(message, self._weight_key) for message in aggregation.messages]),
                aggregation.before,
                layers=view.layers,
            )
            outcome = defend(
                self.filter,
                self._memory.state,
                round_,
                lambda kept: aggregation.by(self.strategy, kept),
                None if fallback is None else lambda kept: aggregation.by(fallback, kept),
            )
        except InputError as error:  # too few clients for the filter, most likely
            found.notes.append(f"the filter cannot judge this round ({error}): {STAYS}")
            return [Verdict(one, Fate.DROPPED) for one in asked]
        role = "strategy" if aggregation.used is self.strategy else "fallback"
        if aggregation.error is not None:
            self._excuse(role, aggregation.error)
        if aggregation.arrays is not None:
            self._memory = self._memory.having_worked(role)
        self._memory = replace(self._memory, state=outcome.state)
        if note := aggregation.note or outcome.note:
            found.notes.append(note)
        return judge(asked, set(outcome.kept.tolist()), outcome.scores)

    def _excuse(self, role: str, error: Exception) -> None:
        """Raise the error of what has never worked: that is the user's to mend, not a client's doing."""
        if role in self._memory.worked:
            return
        if role == "fallback":
            raise InputError(
                f"The `fallback` {type(self.fallback).__name__} failed before it ever worked: {error} "
                "Nothing but its `aggregate_train` is called. Take one that needs no more, e.g. FedMedian()."
            ) from error
        raise error

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose who evaluates; who is banned does not."""
        number = server_round + self._done_before
        messages = list(self.strategy.configure_evaluate(number, arrays, config, grid))
        roll = call_roll(messages, grid, self.identify)
        allowed = [not self._memory.bans.is_banned(asked.client, number) for asked in roll]
        self._asked = [asked for asked, yes in zip(roll, allowed, strict=True) if yes]
        return [message for message, yes in zip(messages, allowed, strict=True) if yes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Let the strategy aggregate the replies that can be used."""
        number, found = server_round + self._done_before, sort_replies(replies, self._asked)
        check_metrics(found, self._weight_key, self.max_examples)
        report = RoundReport(number, tuple(self._failures(found)), tuple(found.notes))
        if odd := [*report.unused(), *report.notes]:
            log(WARNING, "flanders: evaluation of round %s: %s", number, "; ".join(odd))
        usable = [answer.message for answer in found.answers]
        try:
            metrics = self.strategy.aggregate_evaluate(number, usable)
        except Exception as error:  # what the strategy makes of replies is not in our hands
            self._excuse("evaluation", error)
            log(ERROR, "flanders: %s failed to evaluate", type(self.strategy).__name__, exc_info=error)
            return None
        if metrics is not None:
            self._memory = self._memory.having_worked("evaluation")
        self._recorder.add_evaluation(metrics)
        return metrics

    def summary(self) -> None:
        """Log the settings, then those of the strategy inside."""
        log(INFO, "\t├──> Filter: %s", self.filter)
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
        """Carry out the rounds as `flwr.serverapp.strategy.Strategy.start` does, after those already done.

        The rounds of an earlier start, of this object or with the same `state_dir`, count, and the global model
        after them takes the place of `initial_arrays`.
        """
        check_kind(f"{ME}.start", "initial_arrays", initial_arrays, ArrayRecord)
        check_number(f"{ME}.start", "num_rounds", num_rounds, 0, whole=True)
        done, self._done_before = self._memory.rounds, self._memory.rounds
        plan = self._plan(initial_arrays)
        if done:
            initial_arrays = self._arrays
            self._notebook.tell_of_earlier_rounds(done, num_rounds)
        else:
            plan.check(initial_arrays)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(number + done, arrays) if evaluate_fn is not None else None
            if number > 0:
                self._recorder.add_evaluation(metrics)
            return metrics

        with self._notebook.locked(), self._recorder.running(), self._grid(grid) as grid:
            result = super().start(
                grid,
                initial_arrays,
                max(0, num_rounds - done),
                timeout,
                train_config,
                evaluate_config,
                evaluate if evaluate_fn is not None else None,
            )
        if not result.arrays:
            result.arrays = initial_arrays
        return self._completed(result, done)

    def _grid(self, grid: Grid) -> AbstractContextManager[Grid]:
        """Return the grid to use while the rounds last: one that keeps replies on disk where they are sketched."""
        if self.sketch is None:
            return nullcontext(grid)
        return SpillingGrid(grid, None if self._notebook.path is None else self._notebook.path.parent)

    def _completed(self, result: Result, done: int) -> Result:
        """Count a result's rounds from the very first, and add what became of each client."""
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {number + done: record for number, record in getattr(result, name).items()})
        for number, details in self._recorder.details.items():
            if number in result.train_metrics_clientapp:
                result.train_metrics_clientapp[number].update(details)
        self._recorder.details.clear()
        return result

    def _plan(self, arrays: ArrayRecord) -> Plan:
        """Return where the model's arrays stand: as the first round had them, whatever types they have become."""
        plan = self._memory.plan
        if plan is None:
            plan = Plan.of(arrays, self.unscored)
            self._memory = self._memory.planned(plan)
        if difference := plan.difference(arrays):
            where = "" if self._notebook.path is None else f", which {self._notebook.path} holds. {ELSEWHERE}"
            raise InputError(
                f"The global model has other arrays than in earlier rounds ({difference}){where or '.'}"
            )
        return plan

    def _view(self, plan: Plan, rows: int) -> RoundView:
        if self.sketch is None:
            return Whole(plan, rows, self._matrices)
        return Sketched(plan, rows, self.sketch, self._memory.secret)

    def _report(
        self, number: int, verdicts: list[Verdict], found: Sorted, stayed: bool, seconds: dict[str, float]
    ) -> RoundReport:
        """Put everyone's verdict together, in the order of the clients' names."""
        by_client = {verdict.asked.client: verdict for verdict in [*verdicts, *self._failures(found)]}
        for asked in self._banned:
            last = self._memory.bans.until[asked.client]
            by_client[asked.client] = Verdict(asked, Fate.BANNED, f"until round {last}")
        order = by_name(list(by_client))
        everyone = list(by_client.values())
        return RoundReport(number, tuple(everyone[i] for i in order), tuple(found.notes), stayed, seconds)

    def _failures(self, found: Sorted) -> list[Verdict]:
        return [Verdict(a, *found.failed[a.client]) for a in self._asked if a.client in found.failed]

    def _remember(self, report: RoundReport, aggregation: Aggregation) -> None:
        """Count offences, save the memory and the model, and tell of the round."""
        bans = self._memory.bans
        if self.ban is not None:
            kept = [v.asked.client for v in report.having(Fate.KEPT)]
            # A filter that keeps nobody has told nobody from another.
            bad = report.having(Fate.DROPPED, Fate.REFUSED) if kept else report.having(Fate.REFUSED)
            bans = bans.after_round(self.ban, report.number, [v.asked.client for v in bad], kept)
        self._memory = replace(self._memory, rounds=report.number, bans=bans)
        if aggregation.arrays is not None:
            self._arrays = aggregation.arrays.copy()  # whatever becomes of the record that is returned
        self._notebook.save(self._memory, self._arrays)
        self._recorder.tell(report)
