"""Small functions that several attacks use, e.g. the mean step of the honest clients, or copies of one model."""

from __future__ import annotations

import math

import array_api_compat

from flanders.arrays import Array
from flanders.attacks.attack import View
from flanders.linalg.columns import column_means
from flanders.linalg.products import squared_norms


def mean_displacement(view: View) -> Array:
    """Return the mean of the honest models minus the global model, `(d,)`."""
    return column_means(view.honest, view.global_model)


def direction_against(view: View) -> Array | None:
    """Return the unit vector opposite to the honest mean displacement. None if the displacement is zero."""
    displacement = mean_displacement(view)
    length = norm(displacement)
    return -displacement / length if length > 0 else None


def norm(vector: Array) -> float:
    """Return the Euclidean length of one flattened model, accumulated in float64."""
    return math.sqrt(float(squared_norms(vector[None, :])[0]))


def simulated_copies(view: View) -> int:
    """Return how many copies of a malicious model an attacker puts into a simulated round, to try the model out.

    The attacker controls b clients. The other clients are called benign. If the attacker knows their models, the
    simulated round has these models and b copies. Otherwise it has the b models that the attacker's own clients
    have honestly trained, and so many copies that their share is about the share of malicious clients in the real
    round, but at most b copies.
    """
    b, num_honest = view.num_malicious, view.honest.shape[0]
    num_benign = view.num_clients - b
    return b if num_benign == 0 else min(b, max(1, round(num_honest * b / num_benign)))


def copies(model: Array, count: int) -> Array:
    """Return a new array of `count` rows, each equal to `model`."""
    xp = array_api_compat.array_namespace(model)
    return xp.tile(model[None, :], (count, 1))


def is_honest(view: View, sent: Array) -> bool:
    """Whether the attacker's clients sent the models that they had honestly trained."""
    return bool(array_api_compat.array_namespace(sent).all(sent == view.own))
