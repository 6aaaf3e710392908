"""Measure what attacks do to LoRA adapters, with and without the filter: `python measure.py [--model peft]`.

In the Flower app, each malicious client knows only its own model. Here one attacker controls all malicious clients
and knows the models of all other clients. So the rounds are plain PyTorch with a `Defense`. It makes the same
decisions as `FilteredStrategy`.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from poisoned_adapters import task

from flanders import Defense, KeepAll
from flanders.attacks import View
from flanders.catalog import ATTACKS
from flanders.layers import last_layer_of
from flanders.packing import layers_of, pack, unpack

CLIENTS, REVIEWS, LEARNING_RATE = 20, 100, 0.001
"""The number of clients, the number of reviews that each client has, and the learning rate."""


def rounds(
    name: str, attack: str, malicious: int, protected: bool, seed: int, count: int
) -> Iterator[tuple[float, int, int]]:
    """Yield the accuracy after each round, and how many malicious and honest clients were dropped in the round."""
    model = task.make_model(name)
    adapters = {key: value.clone() for key, value in task.adapters(model).items()}
    defense = Defense(seed=seed) if protected else Defense(KeepAll())
    rng, crafted, memory = np.random.default_rng(seed), ATTACKS.make(attack), None
    for number in range(count):
        trained = []
        for client in range(CLIENTS):
            model.load_state_dict(adapters, strict=False)
            torch.manual_seed(10**6 * seed + 1000 * number + client)
            task.train(
                model, *task.load_reviews(REVIEWS, 1000 * seed + client), epochs=1, learning_rate=LEARNING_RATE,
                batch_size=20,
            )  # fmt: skip
            trained.append({key: value.clone() for key, value in task.adapters(model).items()})
        updates, before, layers = pack(trained), pack([adapters])[0], layers_of(adapters)
        if malicious:
            view = View(
                updates[:malicious], before, CLIENTS, benign=updates[malicious:], memory=memory,
                benign_clients=tuple(range(malicious, CLIENTS)), last_layer=last_layer_of(layers),
            )  # fmt: skip
            updates[:malicious] = crafted.craft(view, rng)
            memory = crafted.remember(view, updates[:malicious])
        outcome = defense(updates, global_model=before, layers=layers)
        adapters = unpack(outcome.model, adapters)
        model.load_state_dict(adapters, strict=False)
        caught = sum(client < malicious for client in outcome.dropped)
        yield task.test(model)[0], caught, len(outcome.dropped) - caught


def main() -> None:
    """Print a line for each attack, without and with the filter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="peft", choices=("own", "peft"))
    parser.add_argument("--attacks", nargs="+", default=["none", "gauss", "sign-flip", "lie", "own-pull"])
    parser.add_argument("--malicious", type=int, default=6, help=f"attackers among the {CLIENTS} clients")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seeds", type=int, nargs="+", default=[40])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for seed in asked.seeds:
        for attack in asked.attacks:
            bad = 0 if attack == "none" else asked.malicious
            for protected in (False, True):
                name = "gauss" if attack == "none" else attack
                found = list(rounds(asked.model, name, bad, protected, seed, asked.rounds))
                caught, wronged = (sum(row[i] for row in found) for i in (1, 2))
                print(
                    f"seed {seed}, {attack}, {'protected' if protected else 'bare'}: accuracy {found[-1][0]:.3f}, "
                    f"attackers dropped {caught} of {bad * asked.rounds}, "
                    f"honest dropped {wronged} of {(CLIENTS - bad) * asked.rounds}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
