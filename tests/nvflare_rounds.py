"""Rounds as NVFLARE's FedAvg workflow drives them, without its processes."""

from __future__ import annotations

import numpy as np
from nvflare.apis.fl_context import FLContextManager
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

SHAPES = {"w": (20, 7), "b": (7,), "v": (40,)}
SIZE = 20 * 7 + 7 + 40


def params_of(vector, dtype=np.float32):
    """Cut a flat model into arrays."""
    cuts = np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])[:-1]
    parts = np.split(np.asarray(vector, dtype=dtype), cuts)
    return {name: part.reshape(shape).copy() for (name, shape), part in zip(SHAPES.items(), parts, strict=True)}


def flat(params):
    return np.concatenate([np.asarray(params[name]).ravel() for name in SHAPES])


class Workflow:
    """The part of NVFLARE's FedAvg that an aggregator sees."""

    def __init__(self, aggregator, params):
        self.aggregator = aggregator
        self.model = FLModel(params=params)
        self.context = FLContextManager(job_id="job").new_context()
        aggregator.fl_ctx = self.context
        self.publish()

    def publish(self):
        learnable = make_model_learnable(self.model.params, {})
        self.context.set_prop(AppConstants.GLOBAL_MODEL, learnable, private=True, sticky=True)

    def round(self, replies):
        """Carry out one round. `replies` are pairs of a client's name and its FLModel."""
        self.aggregator.reset_stats()
        for client, reply in replies:
            reply.meta["client_name"] = client
            self.aggregator.accept_model(reply)
        result = self.aggregator.aggregate_model()
        self.model = FLModelUtils.update_model(self.model, result)
        self.publish()
        return self.aggregator.last_round


def reply_of(params, steps=None, kind=ParamsType.FULL, **more):
    meta = {} if steps is None else {"NUM_STEPS_CURRENT_ROUND": steps}
    return FLModel(params_type=kind, params=params, meta=meta, **more)


def attacked_rounds(num_clients=12, num_malicious=3, rounds=5, start=3):
    """Yield functions from a global model to updates. From round `start` on, the first clients flip theirs."""
    rng = np.random.default_rng(1)
    own = rng.normal(size=(num_clients, SIZE)) + rng.normal(size=SIZE)

    def updates(number, model):
        noise = np.random.default_rng([7, number]).normal(size=own.shape)
        steps = 0.8**number * own + 0.1 * noise
        if number >= start:
            steps[:num_malicious] *= -1
        return (model + steps).astype(np.float32)

    for number in range(1, rounds + 1):
        yield number, lambda model, number=number: updates(number, model)


def names(count):
    return [f"site-{i:02d}" for i in range(1, count + 1)]
