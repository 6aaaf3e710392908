"""The client: it trains on its share of the digits. If the run config makes it malicious, it poisons its model."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from flanders.flower.attacks import poisoned
from shielded_digits import task


def red_team(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Poison the models of the first nodes, for trials only. The run config has the share of malicious nodes."""
    node, run = context.node_config, context.run_config
    if node["partition-id"] < run["malicious-fraction"] * node["num-partitions"]:
        return poisoned(run["attack"])(message, context, call_next)
    return call_next(message, context)


app = ClientApp(mods=[red_team])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model on this node's examples."""
    node, run = context.node_config, context.run_config
    model = task.make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = task.load_partition(node["partition-id"], node["num-partitions"], run["alpha"], run["seed"])
    # The order of the examples depends on the seed, the node and the round.
    torch.manual_seed(hash((run["seed"], node["partition-id"], message.content["config"]["server-round"])))
    loss = task.train(
        model, x, y, epochs=run["local-epochs"], learning_rate=run["learning-rate"], batch_size=run["batch-size"]
    )
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
