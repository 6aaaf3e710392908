"""The server: FedAvg inside `FilteredStrategy`, which drops poisoned models."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, FedMedian

from flanders.flower import FilteredStrategy
from shielded_digits import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of the federation. The run config has all settings."""
    run = context.run_config
    nodes = run["min-nodes"]
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    if run["protected"]:
        strategy = FilteredStrategy(
            strategy,
            fallback=FedMedian(),  # for the first rounds, in which the filter knows little
            state_dir=run["state-dir"] or None,
            results=run["results"] or None,
        )
    torch.manual_seed(run["seed"])
    strategy.start(
        grid,
        initial_arrays=ArrayRecord(task.make_model().state_dict()),
        num_rounds=run["num-server-rounds"],
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the global model on the server's own examples."""
    model = task.make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    accuracy, loss = task.test(model)
    return MetricRecord({"accuracy": accuracy, "loss": loss})
