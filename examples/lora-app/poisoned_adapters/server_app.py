"""The server: FedAvg of the adapters inside `FilteredStrategy`, which drops poisoned adapters."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flanders.flower import FilteredStrategy
from poisoned_adapters import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of the federation. The run config has all settings."""
    run = context.run_config
    nodes = run["min-nodes"]
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    if run["protected"]:
        strategy = FilteredStrategy(strategy)
    strategy.start(
        grid,
        initial_arrays=ArrayRecord(task.adapters(task.make_model(run["model"]))),
        num_rounds=run["num-server-rounds"],
        evaluate_fn=lambda number, arrays: evaluate(number, arrays, run["model"]),
    )


def evaluate(server_round: int, arrays: ArrayRecord, name: str) -> MetricRecord:
    """Test the global model on the server's own reviews."""
    model = task.make_model(name)
    model.load_state_dict(arrays.to_torch_state_dict(), strict=False)
    accuracy, loss = task.test(model)
    return MetricRecord({"accuracy": accuracy, "loss": loss})
