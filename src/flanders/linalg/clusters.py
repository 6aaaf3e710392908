"""Finds clusters of single numbers, counts them, and finds clusters in each column of a matrix.

The filters `FLDetector` and `KMeans` use these functions.
"""

from __future__ import annotations

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, on_host, to_numpy, widest_float
from flanders.linalg.blocks import centred_block, column_blocks

MOST_CLUSTERS, REFERENCES = 6, 20
"""The largest number of clusters that `num_clusters` tries, and its number of random sets of values."""


def line_clusters(values: FloatVector, most: int) -> list[tuple[float, IntVector]]:
    """Return the best division of the values into k clusters, for each k from 1 to `most`.

    The best division has the smallest cost: the sum of the squared distances of all values from the means of their
    clusters. For each k the result has this cost, and a label for each value: the number of its cluster. The
    clusters are numbered from low to high. If there are fewer values than `most`, the largest k is the number of
    values.

    In the best division, each cluster is a run of neighbours in the sorted values. So dynamic programming finds the
    division exactly. It takes n^2 steps for each k, where n is the number of values.

    Examples
    --------
    >>> line_clusters(np.array([1.0, 9.0, 1.5, 9.5]), 2)[1]
    (0.25, array([0, 1, 0, 1]))
    """
    n = values.size
    order = np.argsort(values, kind="stable")
    x = values[order] - values.mean()
    sums = np.concatenate([[0.0], np.cumsum(x)])
    squares = np.concatenate([[0.0], np.cumsum(x**2)])
    start, end = np.arange(n)[:, None], np.arange(1, n + 1)[None, :]
    count = np.maximum(end - start, 1)
    spread = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / count
    cost = np.where(end > start, np.maximum(spread, 0.0), np.inf)  # the cost of the run [start, end)
    best = cost[0]
    cuts: list[IntVector] = []
    divisions = []
    for k in range(1, min(most, n) + 1):
        if k > 1:
            before = np.concatenate([[np.inf], best[:-1]])[:, None] + cost
            cuts.append(np.argmin(before, axis=0))
            best = before.min(axis=0)
        labels = np.zeros(n, dtype=np.int64)
        stop = n
        for level in range(k - 1, 0, -1):
            begin = int(cuts[level - 1][stop - 1])
            labels[order[begin:stop]] = level
            stop = begin
        divisions.append((float(best[-1]), labels))
    return divisions


def num_clusters(values: FloatVector, rng: np.random.Generator) -> int:
    """Return the number of clusters by the gap statistic, at most `MOST_CLUSTERS`.

    The costs that `line_clusters` returns for the given values are compared with those for random sets of values.
    Each random set has as many values as `values`, drawn uniformly between the smallest and the largest given
    value.
    """
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return 1

    def costs(x: FloatVector) -> list[float]:
        return [cost for cost, _ in line_clusters(x, MOST_CLUSTERS)]

    random_sets = (rng.uniform(low, high, size=values.size) for _ in range(REFERENCES))
    return num_by_gap(np.array(costs(values)), np.array([costs(x) for x in random_sets]))


def num_by_gap(costs: FloatVector, random_costs: FloatMatrix) -> int:
    """Return the number of clusters by the gap statistic.

    `costs` has the cost of dividing the data into k clusters, for k = 1, 2 and so on. `random_costs` has a row of
    such costs for each random set of data. gap(k) is the mean logarithm of the random sets' costs with k clusters,
    minus the logarithm of the cost of the data. The result is the smallest k with gap(k) >= gap(k + 1) - error(k +
    1), where error(k + 1) is the standard error of gap(k + 1). If there is no such k, the result is the largest k.

    References
    ----------
    Tibshirani, Walther and Hastie, "Estimating the number of clusters in a data set via the gap
    statistic", JRSS B 2001.
    """
    logs = np.log(np.maximum(random_costs, 1e-300))
    gap = logs.mean(axis=0) - np.log(np.maximum(costs, 1e-300))
    error = logs.std(axis=0) * np.sqrt(1 + 1 / len(logs))
    enough = gap[:-1] >= gap[1:] - error[1:]
    return int(np.argmax(enough)) + 1 if enough.any() else len(costs)


def minority_counts(updates: Array, center: Array, separation: float) -> tuple[FloatVector, int]:
    """Return, for each row, in how many telling columns it is in the smaller of two clusters.

    Each column of `updates - center` is divided into its two best clusters. The column is called telling if the
    clusters explain at least the share `separation` of its variance, and do not have the same size. The second
    result is the number of telling columns.

    The two best clusters of a column are its i lowest values and all others, for some i. Let S_i be the sum of the
    i lowest of the m values, and S the sum of all values. The clusters explain the part
    (m S_i - i S)^2 / (i (m - i) m) of the sum of squared distances from the column's mean. In the code, the mean is
    first subtracted from each column, and the column is divided by its largest absolute value, so that no square
    overflows. This does not change the clusters.
    """
    source, center = on_host(updates), on_host(center)
    xp = array_api_compat.array_namespace(source)
    m = source.shape[0]
    if m < 3:
        return np.zeros(m), 0
    device = array_api_compat.device(source)
    sizes = xp.arange(1, m, dtype=widest_float(xp), device=device)[None, :]
    counts: Array = 0
    num_telling: Array = 0
    for columns in column_blocks(source):
        values = centred_block(source, center, columns).T
        values = values - xp.mean(values, axis=1)[:, None]
        largest = xp.max(xp.abs(values), axis=1)[:, None]
        values = values / xp.where(largest > 0, largest, xp.ones_like(largest))
        ordered = xp.sort(values, axis=1)
        running = xp.cumulative_sum(ordered, axis=1)[:, :-1]
        explained = running**2 * m / (sizes * (m - sizes))
        cut = xp.argmax(explained, axis=1)[:, None]  # the position of the highest value in the lower cluster
        best = xp.max(explained, axis=1)
        total = xp.sum(values**2, axis=1)
        num_high = m - 1 - cut
        is_telling = (best >= separation * total) & (total > 0) & (2 * num_high[:, 0] != m)
        high = values > xp.take_along_axis(ordered, cut, axis=1)
        smaller = xp.where(2 * num_high < m, high, ~high) & is_telling[:, None]
        counts = counts + xp.count_nonzero(smaller, axis=0)
        num_telling = num_telling + xp.count_nonzero(is_telling)
    return to_numpy(counts).astype(np.float64), int(num_telling)
