"""A federation of ten clients, three of them malicious from round 4 on, with and without a defense.

It prints which clients are dropped, and how far both models are from the optimum.
"""

import numpy as np

from flanders import ATTACKS, Defense, KeepAll, View

rng = np.random.default_rng(0)
m, b, d = 10, 3, 5_000  # clients, malicious clients, parameters
optimum = rng.normal(size=d)  # the model that the clients would learn together
own_optima = optimum + 0.5 * rng.normal(size=(m, d))  # the model that each client would learn alone

attack = ATTACKS.make("sign-flip", scale=10)
protected = Defense(seed=0)
unprotected = Defense(KeepAll(), seed=0)


def train(start: np.ndarray) -> np.ndarray:
    """Move every client a third of the way from the global model to its own optimum."""
    return start + (own_optima - start) / 3 + 0.01 * rng.normal(size=(m, d))


def error(model: np.ndarray) -> float:
    """Return the distance to the optimum, relative to the length of the optimum."""
    return float(np.linalg.norm(model - optimum) / np.linalg.norm(optimum))


print("round  dropped clients  error, protected  error, not protected")
models = {protected: np.zeros(d), unprotected: np.zeros(d)}
for number in range(1, 13):
    for defense, model in models.items():
        updates = train(model)
        if number >= 4:
            updates[:b] = attack(View(updates[:b], model, num_clients=m), rng)
        outcome = defense(updates, global_model=model)
        models[defense] = outcome.model
        if defense is protected:
            dropped = ", ".join(map(str, outcome.dropped)) or "-"
    print(f"{number:5}  {dropped:15}  {error(models[protected]):16.3f}  {error(models[unprotected]):20.3f}")
