"""The class `FilteredAggregator`: an aggregator for NVFLARE's recipes that drops suspicious replies."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from flanders.aggregators import Aggregator
from flanders.arrays import Array, FloatVector
from flanders.checks import InputError, check_number
from flanders.client_ids import ClientId
from flanders.defense import Defense
from flanders.filters import Filter
from flanders.hosts.averages import average
from flanders.hosts.claimed_weights import MOST_EXAMPLES
from flanders.hosts.refusals import check_refusals
from flanders.hosts.round_line import line_of
from flanders.hosts.state_folder import ELSEWHERE, locked_folder, make_folder
from flanders.nvflare.received import (
    NO_NAME,
    ReceivedReplies,
    StartModel,
    UsableReply,
    client_of,
    mean_metrics,
    meta_of,
    numbers_of,
)
from flanders.nvflare.saved_defense import recall_defense, save_defense
from flanders.outcome import Outcome
from flanders.record import STAYS, ClientRecord, Fate, RoundRecord
from flanders.round import Evaluate, Round

EvaluateParams = Callable[[Mapping[str, Array]], FloatVector | float]
"""A function that takes a model, as arrays by name, and returns its losses on examples of the server."""


class FilteredAggregator(ModelAggregator):
    """Let a filter drop suspicious replies before the rest is aggregated.

    Replies are checked one by one. A client whose reply cannot be used is left out of the round. A
    `flanders.Defense` filters and aggregates the other replies.

    NVFLARE writes the arguments of this class into the configuration of the job. The server builds the aggregator
    again from this configuration. So each argument must be a plain value, or an object that can be built again in
    the same way: its class can be imported, and stores each of its own arguments in an attribute of the same name.
    All filters and aggregators of this package are such objects.

    Parameters
    ----------
    filter
        Decides which clients to keep. Default: `Guard()`, which need not be told the number of attackers.
    aggregator
        Turns the kept models into one model. Default: the average. As in NVFLARE, the weight of a client is the
        number of training steps that it reports.
    fallback
        The aggregator for rounds in which the filter knows too little to judge, usually only the first round.
        Default: `aggregator`.
    evaluate
        An object that is called with a model, as arrays by name, and returns its losses on examples of the server.
        Some filters decide better with these losses, above all if most clients are malicious.
    state_dir
        A folder on the server in which the filter's memory is saved after each round. A later job with the same
        folder continues with this memory. Default: nothing is saved.
    max_steps
        Replies that report more training steps than this are refused. Default: 2**53. Above this number, floats do
        not represent all integers.
    times_median
        The largest weight of a client, as a multiple of the median weight of the round. Larger weights are lowered
        to this limit. If `times_median` is None, there is no limit.
    seed
        Makes the randomness of the filter repeatable. Leave it out in production, since an attacker who can predict
        the randomness can evade the filter.

    Examples
    --------
    >>> from flanders import Flanders, Median
    >>> protected = FilteredAggregator()
    >>> protected = FilteredAggregator(Flanders(keep=0.8), Median(), state_dir="/var/lib/flanders")
    """

    def __init__(
        self,
        filter: Filter[Any] | None = None,
        aggregator: Aggregator | None = None,
        fallback: Aggregator | None = None,
        evaluate: EvaluateParams | None = None,
        state_dir: str | None = None,
        max_steps: float | None = None,
        times_median: float | None = 3.0,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_number(name, "max_steps", max_steps, 0, MOST_EXAMPLES, optional=True)
        check_number(name, "times_median", times_median, 1, optional=True)
        check_number(name, "seed", seed, 0, whole=True, optional=True)
        if state_dir is not None and not (isinstance(state_dir, str) and state_dir):
            raise InputError(f"The `state_dir` parameter of {name} must be a path as a string. Got {state_dir!r}.")
        if evaluate is not None and not callable(evaluate):
            raise InputError(f"The `evaluate` parameter of {name} must be a function. Got {evaluate!r} instead.")
        self.defense = Defense(filter, aggregator, fallback=fallback, seed=seed)
        """The filter and the aggregator, with their memory."""
        # NVFLARE reads the parameters back from attributes with these names.
        self.filter, self.aggregator, self.fallback, self.evaluate = filter, aggregator, fallback, evaluate
        self.state_dir, self.max_steps, self.times_median, self.seed = state_dir, max_steps, times_median, seed
        self.rounds = 0
        """The number of rounds that are done, including those of earlier jobs with the same `state_dir`."""
        self.last_round: RoundRecord | None = None
        """The record of the last round; None before the first round."""
        self._open = contextlib.ExitStack()  # holds the lock of the `state_dir`
        self._recalled = self._aggregated = False  # whether the memory was read, and whether a round was aggregated
        self._sent: Mapping[str, Array] | None = None  # the model that NVFLARE sends to the clients
        self._lock = threading.Lock()  # NVFLARE may pass several replies at the same time
        self._start: StartModel | None = None
        self._replies = ReceivedReplies()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Remember the model that is sent to the clients, and unlock the `state_dir` at the end of the job."""
        super().handle_event(event_type, fl_ctx)
        if event_type == AppEventType.BEFORE_TRAIN_TASK:
            self._sent = _params_in(fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE))
        elif event_type == EventType.END_RUN:
            self._open.close()

    def reset_stats(self) -> None:
        """Forget the replies of the last round. NVFLARE calls this method before each round."""
        with self._lock:
            self._start, self._replies = None, ReceivedReplies()

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Check the reply of a client, and return whether it can be used.

        Some workflows of NVFLARE, such as `ScatterAndGather`, call this method and pass a `Shareable`. `FedAvg`
        calls `accept_model` and passes an `FLModel`.
        """
        self.fl_ctx = fl_ctx
        # NVFLARE has authenticated this name. A name in the reply itself could be false.
        client = client_of(shareable.get_peer_prop(ReservedKey.IDENTITY_NAME, NO_NAME))
        try:
            reply = FLModelUtils.from_shareable(shareable, fl_ctx)
        except Exception as error:  # a client may send anything, which may cause any error
            reply = FLModel(params=type(error).__name__)  # refused below, since its params are a text
        return self._accept(client, reply)

    def accept_model(self, model: FLModel) -> None:
        """Check the reply of a client, and store it for the end of the round if it can be used."""
        self._accept(client_of(meta_of(model).get("client_name")), model)

    def _accept(self, client: ClientId, reply: FLModel) -> bool:
        with self._lock:
            if self._start is None:
                self._start = self._begin()
            return self._replies.add(client, reply, self._start, self.max_steps)

    def aggregate_model(self) -> FLModel:
        """Let the defense choose among the replies of the round, and return the new global model."""
        with self._lock:
            start, received = self._start or self._begin(), self._replies
            received.refuse_far(start)
            received.sort()
            received.cap_weights(self.times_median)
            if received.usable:
                new, judged, note = self._defend(start, received)
            else:
                if not self._aggregated:
                    check_refusals(self.rounds + 1, received.refused.values())
                new, judged, note = None, (), f"no reply can be used: {STAYS}"
            kept = [received.usable[record.client] for record in judged if record.kept]
            clients = sorted((*judged, *received.refused.values()), key=lambda record: str(record.client))
            self._finish(RoundRecord(self.rounds + 1, tuple(clients), note, stayed=new is None), start)
            params = start.params if new is None else new
            self._aggregated = self._aggregated or new is not None
            return FLModel(params_type=ParamsType.FULL, params=dict(params), metrics=mean_metrics(kept))

    def _begin(self) -> StartModel:
        """Return the model that the clients started from. In the first round of a job, read the saved memory."""
        params = self._sent or _global_model(self.fl_ctx)
        if not params:
            raise InputError(
                "FilteredAggregator needs the global model that the round starts from, but the workflow has none. "
                "Give the recipe an initial model or a persistor."
            )
        start = StartModel(params)
        if not self._recalled:
            start.arrays.check_all(start.numbers, "The initial model")
            if self.state_dir is not None:
                folder = Path(self.state_dir)
                make_folder(folder)
                message = f"Another job is at work in `state_dir` {folder}. End that job. {ELSEWHERE}"
                self._open.enter_context(locked_folder(folder, message))
                self.rounds = recall_defense(folder, self.defense, start.arrays)
                if self.rounds:
                    self.info(f"flanders: continuing with the memory of {self.rounds} rounds from {folder}")
            self._recalled = True
        return start

    def _defend(
        self, start: StartModel, received: ReceivedReplies
    ) -> tuple[dict[str, Array] | None, tuple[ClientRecord, ...], str]:
        """Return the new global model (None if the old one stays), what happened to each client, and a note."""
        replies = list(received.usable.values())
        matrix = np.empty((len(replies), start.arrays.size), dtype=start.float_type)
        for row, reply in zip(matrix, replies, strict=True):
            row[:] = reply.row
        weights = np.array([reply.weight for reply in replies])
        clients = tuple(received.usable)
        round_ = Round(matrix, clients, weights, start.row, None, start.arrays.layers, self._losses(start))
        try:
            outcome = self.defense.step(round_)
        except Exception as error:  # e.g. too few clients, or a mistake in a filter of the user's own
            if not isinstance(error, InputError) and not self._aggregated:
                raise
            reason = "this round could not be judged"
            records = tuple(ClientRecord(client, Fate.DROPPED, reason=reason) for client in clients)
            return None, records, f"{reason} ({error}): {STAYS}"
        if not outcome.kept.size:
            return None, outcome.clients, outcome.note
        if not np.isfinite(outcome.model).all():
            return None, outcome.clients, f"the aggregate was not finite: {STAYS}"
        new = new_params(outcome, start, replies)
        try:
            start.arrays.check_all({name: numbers_of(name, value) for name, value in new.items()}, "The aggregate")
        except InputError:  # some numbers are too large for the types of the model's arrays
            return None, outcome.clients, f"the aggregate has numbers that are too large: {STAYS}"
        return new, outcome.clients, outcome.note

    def _losses(self, start: StartModel) -> Evaluate | None:
        """Return a function that takes a flat model and returns its losses; None if there is no `evaluate`.

        If `evaluate` fails on a model, the function returns an infinite loss. So no client can end the job by
        sending a model on which `evaluate` fails.
        """
        users_evaluate = self.evaluate
        if users_evaluate is None:
            return None

        def evaluate(vector: Array) -> FloatVector | float:
            try:
                losses = np.asarray(users_evaluate(start.params_of(np.asarray(vector), {})), dtype=np.float64)
            except Exception as error:  # `evaluate` is the user's own code and may raise anything
                self.warning(f"flanders: `evaluate` failed on a model ({error})")
                return math.inf
            return np.atleast_1d(losses)

        return evaluate

    def _finish(self, record: RoundRecord, start: StartModel) -> None:
        """Log a round, and save the memory."""
        self.rounds, self.last_round = record.number, record
        unusual = record.having(Fate.REFUSED) or not record.having(Fate.KEPT)
        (self.warning if unusual else self.info)(f"flanders: {line_of(record)}")
        if self.state_dir is None:
            return
        try:
            save_defense(Path(self.state_dir), self.defense, self.rounds, start.arrays)
        except OSError as error:
            self.error(f"flanders: the memory cannot be saved in {self.state_dir} ({error})")


def new_params(outcome: Outcome, start: StartModel, replies: Sequence[UsableReply]) -> dict[str, Array]:
    """Return the new global model as arrays by name.

    Arrays that the filter does not look at (integers, and the buffers of batch normalisation) are averaged over the
    kept clients.
    """
    kept = [replies[row] for row in outcome.kept]
    weights = np.array([reply.weight for reply in kept])
    unscored = {
        place.name: average(start.numbers[place.name], [r.unscored[place.name] for r in kept], weights)
        for place in start.arrays.arrays
        if not place.scored
    }
    return start.params_of(outcome.model, unscored)


def _params_in(shareable: object) -> Mapping[str, Array] | None:
    """Return the arrays of the model that the server sends to clients; None if it sends no model."""
    try:
        data = from_shareable(shareable).data
    except (TypeError, ValueError):
        return None
    return data if isinstance(data, Mapping) else None


def _global_model(fl_ctx: FLContext | None) -> Mapping[str, Array] | None:
    """Return the global model that is stored in NVFLARE's `FLContext`; None if no model is stored there."""
    learnable = None if fl_ctx is None else fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
    return None if learnable is None else learnable.get(ModelLearnableKey.WEIGHTS)
