r"""Finds clients that learn from inputs from which the other clients learn little.

A backdoor teaches the model to obey a trigger. For example, the model learns that each image with a bright patch in
its corner is a boot. The clients that train with the trigger change the weights of the pixels in this corner a lot.
Honest clients hardly change these weights, since this corner of their images is dark. The update as a whole may
look honest all the same, since a patch has few pixels.

The test looks at the first layer, whose inputs are the features of the examples, e.g. pixels. Let :math:`u_{cij}`
be the change that client c makes to the weight from input j to output i. The share of input j is

.. math:: p_{cj} = \sum_i u_{cij}^2 \Big/ \sum_{i, k} u_{cik}^2 .

Here i runs over the outputs, and k over the inputs. For each input, the logarithms of the clients' shares are cut
into two camps (see `splitting`). The camp with the larger shares may be wrong if it has at most a third of the
clients. A larger camp is left alone: it may be half of the clients, with other classes than the other half. Of the
inputs that are left, the one with the most evidence for two camps becomes a trait.

An input that most clients do not use is left alone, too. In text, for example, such an input may be a rare word.
The few honest clients that have this word learn from it. If most inputs of the model are used by few clients, no
input is tested.

If most clients are malicious and learn little from an input, honest clients are the camp with the larger shares. So
both camps are compared with the usual share of the input, which is the median over the clients kept in the round
before. A camp is wrong only if it is farther from the usual share than the other camp.

The layers behind the first one are not tested. Their inputs are learnt features, and honest clients with different
classes learn from very different features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.filters.camps.splitting import FEWEST, cut_columns, middle_of_sorted
from flanders.filters.camps.traits import HIGH_MINORITY, MINORITY, Trait
from flanders.layers import WeightedLayer, weighted_layers_of
from flanders.linalg.products import squares_by_input
from flanders.round import Round

SPREAD = 0.15
"""The smallest standard deviation that is assumed for the log shares in a camp.

With this value, rounds without attackers do not reach the evidence that is needed for two camps. In 64 settings of
Fashion-MNIST without attackers, six rounds each, they reached at most 73% of the needed evidence.
"""
FEWEST_ALIKE = 2
"""The smallest camp. A single client may have unusual data."""
LEAST_SHARE = 0.1
"""If all inputs had the same share, it would be 1 / (number of inputs). This is called an equal share. This part of
an equal share is added to each share before the logarithm. Otherwise the logarithms of very small shares would
differ a lot."""
USED = 0.3
"""An input is used if its median share is at least this part of an equal share.

Without this rule, honest clients were dropped on a text dataset with even classes. There, the median share was
below 0.01 of an equal share. The pixels of a trigger in the corner of Fashion-MNIST images have 0.9 of an equal
share.
"""
MOST_USED = 0.5
"""The test is made only if at least this share of the inputs is used. The share was 0.2 in text, and it is 1 in
Fashion-MNIST."""
FEWEST_INPUTS = 2
"""Layers with fewer inputs are not tested. The share of a single input is always 1."""
MOST_SHARES = 10_000_000
"""A round with more shares, one for each client and input, is not tested. The test would take seconds and more than
a gigabyte of memory."""


@dataclass(frozen=True, eq=False)
class InputShares:
    """How much each client learns from each input of the first layer."""

    layer: WeightedLayer
    logs: FloatMatrix
    """`(m, inputs)`: the logarithms of the shares."""

    def usual(self, kept: IntVector) -> FloatVector:
        """Return the median logarithm of the share of each input, over the kept clients."""
        return middle_of_sorted(np.sort(self.logs[kept], axis=0))


def input_shares(round_: Round) -> InputShares | None:
    """Return the shares of the inputs. None if the first layer is not known, or has too few or too many inputs."""
    layers = weighted_layers_of(round_.layers or {})
    if not layers or layers[0].start > 0:  # a tensor before it may be a layer without bias
        return None
    layer = layers[0]
    if layer.inputs < FEWEST_INPUTS or layer.inputs * len(round_.clients) > MOST_SHARES:
        return None
    size = layer.outputs, layer.inputs
    squares = squares_by_input(round_.updates, round_.global_model, layer.start, *size, by_input=layer.by_input)
    shares = squares / np.maximum(squares.sum(axis=1, keepdims=True), 1e-300)
    return InputShares(layer, np.log(shares + LEAST_SHARE / layer.inputs))


def input_traits(found: InputShares | None, usual: FloatVector | None, rows: BoolVector) -> list[Trait]:
    """Return the trait of the input with the most evidence for two camps among these clients, in a list.

    The list is empty if the camp with the larger shares is too large for every input. `usual` has the usual
    logarithm of each input's share; if it is None, the medians of these clients are used.
    """
    if found is None or rows.sum() < max(FEWEST, 2 * FEWEST_ALIKE):
        return []
    used = found.usual(np.flatnonzero(rows)) >= np.log((USED + LEAST_SHARE) / found.layer.inputs)
    if used.mean() < MOST_USED:
        return []
    low, evidence = cut_columns(found.logs[rows], SPREAD, FEWEST_ALIKE)
    evidence = np.where(used & (rows.sum() - low <= MINORITY * rows.sum()), evidence, -np.inf)
    best = int(np.argmax(evidence))
    if not evidence[best] > -np.inf:
        return []
    if usual is None or len(usual) != found.layer.inputs:
        usual = found.usual(np.flatnonzero(rows))
    words = f"it learns more than the others from input {best} of {found.layer.name}, as from a trigger"
    values = np.where(rows, found.logs[:, best] - usual[best], np.nan)
    return [Trait("inputs", values, SPREAD, HIGH_MINORITY, ("", words), FEWEST_ALIKE)]
