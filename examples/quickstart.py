"""Ten clients, three of them malicious from round 4 on: which clients are dropped, and what that saves."""

import numpy as np

from flanders import ATTACKS, Defense, FedAvg, KeepAll, View

rng = np.random.default_rng(0)
m, b, d = 10, 3, 5_000
target = rng.normal(size=d)  # what the clients would learn together
own_goal = 0.5 * rng.normal(size=(m, d))  # how the optimum of each client differs

attack = ATTACKS.make("sign-flip")
defended = Defense(seed=0)
alone = Defense(KeepAll(), FedAvg(), seed=0)


def train(start: np.ndarray) -> np.ndarray:
    """Every client moves a third of the way from the global model to its own optimum."""
    return start + (target + own_goal - start) / 3 + 0.01 * rng.normal(size=(m, d))


def error(model: np.ndarray) -> float:
    """Return the distance to the target, relative to its length."""
    return float(np.linalg.norm(model - target) / np.linalg.norm(target))


print("round  dropped              error with the filter   error without")
models = {defended: np.zeros(d), alone: np.zeros(d)}
for t in range(1, 13):
    for defense in models:
        updates = train(models[defense])
        if t >= 4:
            view = View(updates[:b], models[defense], num_clients=m, benign=updates[b:])
            updates[:b] = models[defense] + 10 * (attack(view, rng) - models[defense])
        outcome = defense(updates, global_model=models[defense])
        models[defense] = outcome.model
        if defense is defended:
            dropped = ", ".join(map(str, outcome.dropped)) or "-"
    print(f"{t:5}  {dropped:19}  {error(models[defended]):21.3f}  {error(models[alone]):14.3f}")
