"""The filter `Zeno`. It measures by how much each update lowers the loss on the server's examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import InputError, check_number, resolve_count
from flanders.filters.filter import Scores, check_keep, lowest
from flanders.filters.server_losses import ServerLosses
from flanders.filters.stateless import Stateless
from flanders.linalg.products import squared_norms
from flanders.round import Round

LARGEST = 1e150
"""The score of a client whose model has no finite loss. No score is higher, so that all scores are finite."""


@dataclass(frozen=True)
class Zeno(Stateless):
    r"""Keep the m - b clients whose updates lower the loss on the server's examples most, with a penalty on length.

    The score of client c is :math:`f(g + u_c) - f(g) + \rho \|u_c\|^2`, where f is the mean loss on the server's
    examples (`Round.evaluate`), g is the global model, and :math:`u_c` is the update: the difference between the
    client's model and g. In the paper the score has the opposite sign. A round of m clients needs m + 1 evaluations
    of the loss. The method works with any number b of malicious clients, if b is known.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients, or the fraction of the round.
    rho
        The penalty on the squared length of an update. In the paper, clients send gradients v instead of updates u,
        and the penalty on the squared length of a gradient is :math:`\gamma / 200`, where :math:`\gamma` is the
        learning rate. Since :math:`u = -\gamma v`, this is a penalty of :math:`1 / (200 \gamma)` on the squared
        length of an update. The default is this number for :math:`\gamma = 0.1`.
    keep
        How many clients to keep: a number, or a fraction of the round. By default m - b, but at least one.

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
        """Whether the filter needs the server's examples. It does: it measures the losses on them."""
        return True

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by how much its update raises the loss, plus the penalty on its length."""
        if round_.evaluate is None:
            raise InputError(
                "Zeno needs losses on the server's examples (`evaluate`), and this round has none. Give the server "
                "examples, or choose a filter that needs none."
            )
        losses = ServerLosses(round_)
        before = float(np.mean(losses.of(round_.global_model)))
        after = [float(np.mean(losses.of(round_.updates[i, :]))) for i in range(len(round_.clients))]
        squares = squared_norms(round_.updates, round_.global_model)
        values = np.array(after) - before + self.rho * squares
        return Scores(round_.clients, np.clip(np.nan_to_num(values, nan=LARGEST), -LARGEST, LARGEST))

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the lowest scores."""
        m = len(scores.clients)
        keep = max(1, m - resolve_count(self.num_malicious, m)) if self.keep is None else self.keep
        return lowest(scores, keep)
