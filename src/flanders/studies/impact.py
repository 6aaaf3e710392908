r"""Probabilities that a round has a certain number of malicious clients. `docs/studies.md` uses them.

The server draws the clients of a round at random: m of K clients. Of all K clients, b are malicious. The number X
of malicious clients in the round has a hypergeometric distribution: :math:`\Pr(X = x) = \binom{b}{x}
\binom{K-b}{m-x} / \binom{K}{m}`. In the functions, K is `clients`, b is `malicious` and m is `selected`.

References
----------
Gabrielli et al., "Protecting federated learning from extreme model poisoning attacks via multidimensional time
series anomaly detection", appendix on the impact of malicious clients at each round.
"""

from __future__ import annotations

from scipy.stats import hypergeom

from flanders.checks import check_number


def chance_of_exactly(count: int, *, clients: int, malicious: int, selected: int) -> float:
    """Return the probability that exactly `count` of the selected clients are malicious.

    Examples
    --------
    >>> round(chance_of_exactly(2, clients=10, malicious=4, selected=3), 4)
    0.3
    """
    _check(clients, malicious, selected, count)
    return float(hypergeom.pmf(count, clients, malicious, selected))


def chance_of_at_least(count: int, *, clients: int, malicious: int, selected: int) -> float:
    """Return the probability that at least `count` of the selected clients are malicious.

    Examples
    --------
    The example of the paper: 5 of 100 clients are malicious, and 20 are selected. In "about two out of three"
    rounds, at least one malicious client is among them.

    >>> round(chance_of_at_least(1, clients=100, malicious=5, selected=20), 3)
    0.681
    """
    _check(clients, malicious, selected, count)
    return float(hypergeom.sf(count - 1, clients, malicious, selected))


def chance_of_majority(*, clients: int, malicious: int, selected: int) -> float:
    """Return the probability that more than half of the selected clients are malicious.

    Examples
    --------
    >>> round(chance_of_majority(clients=100, malicious=40, selected=10), 3)
    0.154
    """
    return chance_of_at_least(selected // 2 + 1, clients=clients, malicious=malicious, selected=selected)


def chance_over_rounds(count: int, rounds: int, *, clients: int, malicious: int, selected: int) -> float:
    """Return the probability that at least one of `rounds` rounds has at least `count` malicious clients.

    The clients of each round are drawn independently of other rounds.

    Examples
    --------
    >>> round(chance_over_rounds(1, 3, clients=100, malicious=5, selected=20), 3)
    0.967
    """
    check_number("chance_over_rounds", "rounds", rounds, 0, whole=True)
    chance_of_fewer = 1 - chance_of_at_least(count, clients=clients, malicious=malicious, selected=selected)
    return 1 - chance_of_fewer**rounds


def expected_malicious(*, clients: int, malicious: int, selected: int) -> float:
    """Return the expected number of malicious clients among the selected clients, m b / K.

    Examples
    --------
    >>> expected_malicious(clients=100, malicious=5, selected=20)
    1.0
    """
    _check(clients, malicious, selected)
    return selected * malicious / clients


def _check(clients: int, malicious: int, selected: int, count: int = 0) -> None:
    check_number("impact", "clients", clients, 1, whole=True)
    check_number("impact", "malicious", malicious, 0, clients, whole=True)
    check_number("impact", "selected", selected, 1, clients, whole=True)
    check_number("impact", "count", count, 0, whole=True)
