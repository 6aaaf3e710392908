"""Tells whether clients have mostly one class each: whether nearly all examples of a client have the same class.

If there are few classes, and each client has mostly one of them, the updates of honest clients point against each
other. A client of one class then looks like an attacker that sends the opposite of what it has learnt. So `Guard`
forms no camps by direction in this case, unless the user trusts some clients. Losses on the server's examples would
not help: a camp of clients with a class that the model knows well has higher losses than the other camp.

The classes of a client show in the biases of the last layer. There is one bias for each class. Training raises the
biases of the classes that the client has, and lowers the others. If the client has only one class, the largest rise
is nearly the sum of all rises. A minority of attackers cannot make it seem that clients have one class each, since
most clients must have one class.
"""

from __future__ import annotations

import numpy as np

from flanders.arrays import BoolVector, to_numpy
from flanders.layers import weighted_layers_of
from flanders.round import Round

MOST_CLASSES = 6
"""With more classes, clients with different classes hardly point against each other in the last layer. If there are
C classes of the same size, the cosine between two clients with one class each is about -1 / (C - 1)."""
ONE_CLASS = 0.8
"""A client has mostly one class if the largest rise of a bias is at least this share of the sum of all rises. The
client may have a few examples of other classes, so the share is less than 1."""
MOST_CLIENTS = 2 / 3
"""`have_one_class_each` is true if at least this share of the clients have mostly one class. So attackers must be a
third of the clients to hide that the honest ones have one class each."""


def have_one_class_each(round_: Round, rows: BoolVector) -> bool:
    """Whether most of the clients in `rows` have mostly one class, and there are few classes.

    The result is false if the names of the tensors do not tell where the biases of the last layer are. With two
    classes the result is always true: each client raises one of the two biases and lowers the other.
    """
    layers = weighted_layers_of(round_.layers or {})
    if not layers or layers[-1].outputs > MOST_CLASSES:
        return False
    last, d = layers[-1], round_.updates.shape[1]
    if last.start + last.outputs * (last.inputs + 1) != d:  # another tensor follows, so this is not the last layer
        return False
    if last.outputs <= 2:
        return True
    biases = slice(d - last.outputs, d)
    now, before = to_numpy(round_.updates[:, biases]), to_numpy(round_.global_model[biases])
    change = now.astype(np.float64) - before.astype(np.float64)
    rises = np.maximum(change[rows], 0.0)
    one_class = (rises.max(axis=1) >= ONE_CLASS * rises.sum(axis=1)) & (rises.sum(axis=1) > 0)
    return bool(one_class.sum() >= MOST_CLIENTS * max(len(one_class), 1))
