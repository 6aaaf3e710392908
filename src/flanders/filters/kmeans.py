"""AUROR: clients that are in the minority cluster of most telling parameters."""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatVector, IntVector, on_host, to_numpy, widest
from flanders.checks import check_number
from flanders.filters.filter import Scores, check_keep, lowest
from flanders.filters.stateless import Stateless
from flanders.linalg.blocks import centred_block, column_blocks
from flanders.round import Round


@dataclass(frozen=True)
class KMeans(Stateless):
    """Drop the clients that fall in the smaller of two clusters in most telling parameters (AUROR).

    Each parameter's values are cut in two clusters by exact 2-means. A parameter is telling if the cut
    explains at least `separation` of its variance. A client's score is the share of telling parameters in
    which it is in the smaller cluster; it is dropped if that exceeds `suspicion`, or with `keep`
    the lowest scores are kept. At least `least_telling` of all parameters count as telling, so that a few
    that split by chance convict nobody. Trusts the majority of the round.

    Examples
    --------
    >>> updates = np.array([[1., 0.], [1.1, 5.], [0.9, 0.1], [7., 5.1]])
    >>> KMeans(separation=0.9).score(None, Round(updates)).values
    array([0., 0., 0., 1.])

    References
    ----------
    Shen, Tople and Saxena, "AUROR: defending against poisoning attacks in collaborative deep
    learning systems", ACSAC 2016.
    """

    keep: float | None = None
    separation: float = 0.9
    suspicion: float = 0.5
    least_telling: float = 0.02

    def __post_init__(self) -> None:
        check_keep("KMeans", self.keep)
        check_number("KMeans", "separation", self.separation, 0, 1)
        check_number("KMeans", "suspicion", self.suspicion, 0, 1)
        check_number("KMeans", "least_telling", self.least_telling, 0, 1)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by how often it is in the smaller cluster."""
        minority, telling = minority_counts(round_.updates, round_.global_model, self.separation)
        values = minority / max(telling, self.least_telling * round_.updates.shape[1], 1.0)
        return Scores(round_.clients, values, suspects=values > self.suspicion)

    def select(self, scores: Scores) -> IntVector:
        """Keep who is rarely in the smaller cluster, or the `keep` lowest scores."""
        if self.keep is not None:
            return lowest(scores, self.keep)
        return np.flatnonzero(scores.values <= self.suspicion)


def minority_counts(updates: Array, center: Array, separation: float) -> tuple[FloatVector, int]:
    """Return in how many telling columns each row is in the smaller of two exact clusters, and how many tell.

    On a line the two clusters of least squares are a low and a high run of the sorted values, and the
    cut after i values explains (m S_i - i S)^2 / (i (m - i) m) of the m values' total, with S_i the
    running sum. Two clusters of the same size tell nothing. Each column is brought to a largest value of 1
    first: the clusters stay the same, and no square overflows.
    """
    source, center = on_host(updates), on_host(center)
    xp = array_api_compat.array_namespace(source)
    m = source.shape[0]
    if m < 3:
        return np.zeros(m), 0
    device = array_api_compat.device(source)
    sizes = xp.arange(1, m, dtype=widest(xp), device=device)[None, :]
    minority: FloatVector = np.zeros(m)
    telling = 0
    for columns in column_blocks(source):
        values = centred_block(source, center, columns).T
        values = values - xp.mean(values, axis=1)[:, None]
        largest = xp.max(xp.abs(values), axis=1)[:, None]
        values = values / xp.where(largest > 0, largest, xp.ones_like(largest))
        ordered = xp.sort(values, axis=1)
        running = xp.cumulative_sum(ordered, axis=1)[:, :-1]
        explained = running**2 * m / (sizes * (m - sizes))
        cut = xp.argmax(explained, axis=1)[:, None]  # the last place of the low cluster
        most = xp.max(explained, axis=1)
        whole = xp.sum(values**2, axis=1)
        num_high = m - 1 - cut
        tells = (most >= separation * whole) & (whole > 0) & (2 * num_high[:, 0] != m)
        high = values > xp.take_along_axis(ordered, cut, axis=1)
        smaller = xp.where(2 * num_high < m, high, ~high) & tells[:, None]
        minority = minority + to_numpy(xp.count_nonzero(smaller, axis=0))
        telling += int(xp.count_nonzero(tells))
    return minority, telling
