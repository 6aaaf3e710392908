"""The server: FedAvg, bare or with the filter around it. It prints a line for each round."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flanders.flower import FilteredStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the rounds."""
    run = context.run_config
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=run["nodes"], min_available_nodes=run["nodes"])
    if run["protected"]:
        strategy = FilteredStrategy(strategy)
    began = time.monotonic()

    def tell(number: int, arrays: ArrayRecord) -> MetricRecord:
        finite = bool(np.isfinite(arrays["w"].numpy()).all())
        print(f"loaded: round {number} finite {finite} after {time.monotonic() - began:.0f} s", flush=True)
        return MetricRecord({"finite": int(finite)})

    start = ArrayRecord({"w": Array(np.zeros((20, 50), np.float32))})
    strategy.start(grid, start, num_rounds=run["rounds"], timeout=run["timeout"], evaluate_fn=tell)
