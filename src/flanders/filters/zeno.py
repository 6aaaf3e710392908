"""Zeno: a filter that goes by how much each update lowers the server's loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import InputError, check_number, resolve_count
from flanders.filters.filter import Scores, check_keep, lowest
from flanders.filters.stateless import Stateless
from flanders.linalg.products import squared_norms
from flanders.round import Round

LARGEST = 1e150
"""The score of a client whose model has no finite loss."""


@dataclass(frozen=True)
class Zeno(Stateless):
    r"""Keep the m - b clients whose updates lower the loss on the server's examples most, less a price for length.

    A client's score is :math:`f(g + u_c) - f(g) + \rho \|u_c\|^2`, with the server's mean loss f
    (`Round.evaluate`). It is the paper's descendant score with its sign turned, so that higher is more suspicious.
    Each round costs m + 1 evaluations. Holds for any number of malicious clients, if it is known.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients, or the fraction of the round.
    rho
        The price of length. The paper's is for gradients v, with :math:`u = -\gamma v`, and the authors take
        :math:`\gamma / 200`. For displacements that is :math:`1 / (200 \gamma)`, the default at :math:`\gamma =
        0.1`.
    keep
        How many to keep. Default: m - b, at least one.

    Examples
    --------
    >>> server = Round(np.array([[1.], [3.], [-1.]]), evaluate=lambda model: float((model[0] - 2) ** 2))
    >>> zeno = Zeno(num_malicious=1, rho=0.0)
    >>> zeno.score(None, server).values
    array([-3., -3.,  5.])

    References
    ----------
    Xie, Koyejo and Gupta, "Zeno: distributed stochastic gradient descent with suspicion-based fault-tolerance",
    ICML 2019.
    """

    num_malicious: float = 0.2
    rho: float = 0.05
    keep: float | None = None

    def __post_init__(self) -> None:
        check_number("Zeno", "num_malicious", self.num_malicious, 0)
        check_number("Zeno", "rho", self.rho, 0)
        check_keep("Zeno", self.keep)

    @property
    def needs_examples(self) -> bool:
        """It measures losses on the server's examples."""
        return True

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by how much its update raises the loss, plus the price of its length."""
        evaluate = round_.evaluate
        if evaluate is None:
            raise InputError(
                "Zeno needs losses on the server's examples (`evaluate`), and this round has none. Give the server "
                "examples, or choose a filter that needs none."
            )
        before = float(np.mean(evaluate(round_.global_model)))
        after = [float(np.mean(evaluate(round_.updates[i, :]))) for i in range(len(round_.clients))]
        squares = squared_norms(round_.updates, round_.global_model)
        values = np.array(after) - before + self.rho * squares
        return Scores(round_.clients, np.clip(np.nan_to_num(values, nan=LARGEST), -LARGEST, LARGEST))

    def select(self, scores: Scores) -> IntVector:
        """Keep the lowest scores."""
        m = len(scores.clients)
        keep = max(1, m - resolve_count(self.num_malicious, m)) if self.keep is None else self.keep
        return lowest(scores, keep)
