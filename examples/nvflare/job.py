"""Runs an NVFLARE federation of ten clients, with the filter or (`--bare`) without it.

Three of the clients send poisoned models.
"""

import argparse
from pathlib import Path

import torch
from digits import DigitsNet, accuracy
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv

from flanders.nvflare import FilteredAggregator

HERE = Path(__file__).parent

parser = argparse.ArgumentParser()
parser.add_argument("--bare", action="store_true", help="Do not protect the rounds.")
parser.add_argument("--clients", type=int, default=10)
parser.add_argument("--malicious", type=int, default=3)
parser.add_argument("--poison", choices=["noise", "nan", "keys", "steps"], default="noise")
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--workspace", type=Path, default=Path("workspace"))
parser.add_argument("--state-dir", type=Path, help="Save the filter's memory here, and continue from it.")
parser.add_argument("--start-from", type=Path, help="Start from this model, which an earlier job saved.")
args = parser.parse_args()

aggregator = None
if not args.bare:
    state_dir = None if args.state_dir is None else str(args.state_dir.resolve())
    aggregator = FilteredAggregator(state_dir=state_dir, max_steps=1000)

torch.manual_seed(args.seed)
recipe = FedAvgRecipe(
    name="digits",
    model=DigitsNet(),
    initial_ckpt=None if args.start_from is None else str(args.start_from.resolve()),
    min_clients=args.clients,
    num_rounds=args.rounds,
    train_script=str(HERE / "client.py"),
    train_args=f"--clients {args.clients} --malicious {args.malicious} --poison {args.poison} --seed {args.seed}",
    aggregator=aggregator,
)
workspace = args.workspace.resolve()
recipe.execute(SimEnv(num_clients=args.clients, num_threads=args.clients, workspace_root=str(workspace)))

model = DigitsNet()
model.load_state_dict(torch.load(workspace / "digits/server/simulate_job/app_server/FL_global_model.pt")["model"])
print(f"accuracy {accuracy(model):.3f}")
