"""The client: it trains the adapters on its own reviews. If the run config makes it malicious, it poisons them."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from flanders.flower.attacks import poisoned
from poisoned_adapters import task


def red_team(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Poison the adapters of the first nodes, for trials only. The run config has the share of malicious nodes."""
    node, run = context.node_config, context.run_config
    if node["partition-id"] < run["malicious-fraction"] * node["num-partitions"]:
        return poisoned(run["attack"])(message, context, call_next)
    return call_next(message, context)


app = ClientApp(mods=[red_team])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the adapters on this node's reviews. Only the adapters are received and sent."""
    node, run = context.node_config, context.run_config
    model = task.make_model(run["model"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)
    x, y = task.load_reviews(run["reviews"], 1000 * run["seed"] + node["partition-id"])
    # The order of the reviews depends on the seed, the node and the round.
    torch.manual_seed(hash((run["seed"], node["partition-id"], message.content["config"]["server-round"])))
    loss = task.train(
        model, x, y, epochs=run["local-epochs"], learning_rate=run["learning-rate"], batch_size=run["batch-size"]
    )
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(task.adapters(model)), "metrics": metrics}), reply_to=message)
