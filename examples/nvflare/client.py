"""The client: it trains on its share of the digits. If it is malicious, it sends a poisoned model."""

import argparse

import nvflare.client as flare
import torch
from digits import DigitsNet, load_share, train

parser = argparse.ArgumentParser()
parser.add_argument("--clients", type=int, required=True)
parser.add_argument("--malicious", type=int, required=True, help="How many sites are malicious.")
parser.add_argument("--poison", choices=["noise", "nan", "keys", "steps"], default="noise")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.set_num_threads(1)
flare.init()
number = int(flare.get_site_name().removeprefix("site-")) - 1
x, y = load_share(number, args.clients, args.seed)
model = DigitsNet()

while flare.is_running():
    received = flare.receive()
    torch.manual_seed(hash((args.seed, number, received.current_round)))
    model.load_state_dict(received.params)
    steps = train(model, x, y)
    params = model.state_dict()
    if number < args.malicious:
        if args.poison == "noise":
            params = {name: value + 10 * torch.randn(value.shape) for name, value in params.items()}
        elif args.poison == "nan":
            params["output.bias"] = params["output.bias"] * float("nan")
        elif args.poison == "keys":
            params = {"no.such.layer": params["output.bias"]}
        else:
            params, steps = {name: -value for name, value in params.items()}, 10**9
    flare.send(flare.FLModel(params=params, meta={"NUM_STEPS_CURRENT_ROUND": steps}))
