"""The ClientApp. The number of its node decides how it behaves."""

import os
import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
LARGE = 20_000_000
"""The number of values in an array that is too large: 80 MB."""


@app.train()
def train(message: Message, context: Context) -> Message:
    """Reply with an honest step, or misbehave in the way of this node."""
    node, number = int(context.node_config["partition-id"]), message.content["config"]["server-round"]
    rng = np.random.default_rng([node, number])
    sent = message.content["arrays"]["w"].numpy()
    arrays = {"w": Array((sent + 0.3 * (1 - sent) + 0.02 * rng.normal(size=sent.shape)).astype(np.float32))}
    metrics: dict[str, float] = {"num-examples": 50 + node, "loss": 0.5}
    if node == 0:
        os._exit(1)  # a crash
    elif node == 1:
        time.sleep(10_000)  # a hang
    elif node == 2:
        time.sleep(1.5 * context.run_config["timeout"])  # a late reply: the round is over by then
    elif node == 3:
        arrays["w"] = Array(np.ones(LARGE, np.float32))  # an array that is too large
    elif node == 4:
        arrays["w"] = Array(np.full(sent.shape, np.nan, np.float32))
    elif node == 5:
        arrays["w"] = Array((-9 * sent - 9).astype(np.float32))
        metrics = {"num-examples": float(2**53)}  # a claim that would make it dominate the average
    # The SuperNodes 6 and 7 are hostile themselves. Their ClientApps are honest.
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)}), reply_to=message)
