"""Masks: arrays with a trained weight for each parameter of each client's model.

The clients' models are the rows of an array. The weights are trained so that the weighted mean of the rows has a
low loss. Each weight is the logistic function of a number, which is called its logit. The filter `SkyMask` uses
masks.
"""

from __future__ import annotations

from collections.abc import Iterator

import array_api_compat
import numpy as np

from flanders.arrays import Array, like, on_host, widest_float
from flanders.linalg.blocks import column_blocks, join, join_columns

START = 1.0
"""The value of every logit before training, as in the code of SkyMask's authors. The weight is then 0.73."""


def masked_mean(rows: Array, logits: Array) -> Array:
    r"""Return the weighted mean of each column, :math:`\sum_i \sigma(l_i) x_i / \sum_i \sigma(l_i)`.

    Here :math:`x_i` are the rows, :math:`l_i` are the rows of the logits, and :math:`\sigma` is the logistic
    function.
    """
    x, l_ = on_host(rows), on_host(logits)
    xp = array_api_compat.array_namespace(x)
    means = []
    for c in column_blocks(x):
        weights = _sigmoid(xp.astype(l_[:, c], widest_float(xp), copy=False))
        block = xp.astype(x[:, c], widest_float(xp), copy=False)
        means.append(xp.sum(weights * block, axis=0) / xp.sum(weights, axis=0))
    return join(means, rows)


def starting_masks(rows: Array) -> Array:
    """Return the logits of the masks before training."""
    xp = array_api_compat.array_namespace(rows)
    return xp.full(rows.shape, START, dtype=rows.dtype, device=array_api_compat.device(rows))


def binary_masks(logits: Array) -> Array:
    """Return an array with 1 where the weight is above a half, and 0 elsewhere."""
    xp = array_api_compat.array_namespace(logits)
    return xp.astype(logits > 0, logits.dtype)


def descended_masks(rows: Array, logits: Array, mean: Array, slope: Array, rate: float) -> Array:
    r"""Return the logits after a step of gradient descent on the loss of the weighted mean.

    `mean` is the weighted mean :math:`\mu`, `slope` is the gradient of the loss at `mean`, and `rate` is the
    learning rate. In each column, the derivative of :math:`\mu` with respect to the logit :math:`l_i` of row i is
    :math:`\sigma'(l_i) (x_i - \mu) / \sum_j \sigma(l_j)`, with the letters of `masked_mean`. The step changes no
    logit by more than 1.
    """
    x, l_, mu, s = (on_host(a) for a in (rows, logits, mean, slope))
    xp = array_api_compat.array_namespace(x)
    wide = widest_float(xp)

    def results() -> Iterator[Array]:
        for c in column_blocks(x):
            old = xp.astype(l_[:, c], wide, copy=False)
            weights = _sigmoid(old)
            away = xp.astype(x[:, c], wide, copy=False) - xp.astype(mu[None, c], wide, copy=False)
            by_logit = weights * (1.0 - weights) * away / xp.sum(weights, axis=0)[None, :]
            change = rate * xp.astype(s[None, c], wide, copy=False) * by_logit
            yield xp.astype(old - xp.clip(change, -1.0, 1.0), l_.dtype, copy=False)

    with np.errstate(over="ignore"):
        return like(join_columns(results(), x), rows)


def _sigmoid(logits: Array) -> Array:
    xp = array_api_compat.array_namespace(logits)
    return 1.0 / (1.0 + xp.exp(-logits))
