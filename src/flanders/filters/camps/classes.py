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

OPPOSITE = 3
"""With so few classes, clients of different classes may point against each other in the first layers, too. With
more classes, what all classes share outweighs the differences there."""
MOST_CLASSES = 6
"""With more classes, clients with different classes hardly point against each other in the last layer. If there are
C classes of the same size, the cosine between two clients with one class each is about -1 / (C - 1)."""
ONE_CLASS = 0.8
"""A client has mostly one class if the largest rise of a bias is at least this share of the sum of all rises. The
client may have a few examples of other classes, so the share is less than 1."""
MOST_CLIENTS = 2 / 3
"""`have_one_class_each` is true if at least this share of the clients have mostly one class. So attackers must be a
third of the clients to hide that the honest ones have one class each."""


def outputs_of(round_: Round) -> int:
    """Return the number of outputs of the model; zero if the names of the tensors do not tell it.

    They tell it if the last layer ends with a bias for each output, and nothing follows.
    """
    layers = weighted_layers_of(round_.layers or {})
    if not layers:
        return 0
    last = layers[-1]
    return last.outputs if last.start + last.outputs * (last.inputs + 1) == round_.updates.shape[1] else 0


def have_one_class_each(round_: Round, rows: BoolVector) -> bool:
    """Whether most of the clients in `rows` have mostly one class, and there are few classes.

    The result is false if the number of outputs is not known. With one or two outputs it is always true: even
    clients with a little more of one class point against those with less.
    """
    outputs, d = outputs_of(round_), round_.updates.shape[1]
    if outputs <= 2:
        return outputs > 0
    if outputs > MOST_CLASSES:
        return False
    biases = slice(d - outputs, d)
    now, before = to_numpy(round_.updates[:, biases]), to_numpy(round_.global_model[biases])
    change = now.astype(np.float64) - before.astype(np.float64)
    rises = np.maximum(change[rows], 0.0)
    one_class = (rises.max(axis=1) >= ONE_CLASS * rises.sum(axis=1)) & (rises.sum(axis=1) > 0)
    return bool(one_class.sum() >= MOST_CLIENTS * max(len(one_class), 1))
