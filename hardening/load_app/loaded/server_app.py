"""The ServerApp: FedAvg, alone or with the filter around it. It prints a line for each round."""

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
        model = arrays["w"].numpy()
        finite = bool(np.isfinite(model).all())
        off = np.abs(model - (1 - 0.7**number)).max()  # each honest round moves the model 0.3 of the way to 1
        spent = time.monotonic() - began
        print(f"loaded: round {number} finite {finite} off {off:.4g} after {spent:.1f} s", flush=True)
        return MetricRecord({"finite": int(finite)})

    start = ArrayRecord({"w": Array(np.zeros((20, 50), np.float32))})
    strategy.start(grid, start, num_rounds=run["rounds"], timeout=run["timeout"], evaluate_fn=tell)
