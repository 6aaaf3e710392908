"""Finds clients that do not help the server, such as clients with wrong labels, and drops them.

Their updates hardly point against the others, so `opposing` does not find them. But on average, their cosine with
the server's own step is slightly negative, in the layers before the last one. Honest clients learn what the
server's examples need, too, so their average is positive. The average of a client depends only on its own updates
and on the server's step. So no client can make another one seem not to help.

A few honest clients may have a negative average as well. So these clients are only dropped if they are many, and if
the losses on the server's examples are clearly lower without them.
"""

from __future__ import annotations

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.client_ids import ClientId
from flanders.filters.camps.decision import Decision
from flanders.filters.camps.judging import WORSE
from flanders.filters.camps.opposing import Opposing, Opposition, measure_opposition
from flanders.layers import is_fully_connected

HELPFUL = 0.1
"""The test is made only if the averages of the other clients have at least this mean. So it is not made where even
honest clients have little in common with the server's step."""
FEWEST = 0.25
"""Nobody is found if fewer than this share of the clients have a negative average.

A few honest clients with few classes may have one for many rounds: in honest federations with a Dirichlet partition
(alpha 0.1), mostly at most 15% of them. And so few clients with wrong labels do little harm.
"""
BETTER_WITHOUT = 0.05
"""These clients are dropped if the mean loss on the server's examples falls by this share without them.

In honest federations whose clients learn little in a round, many may have a negative average, but the loss hardly
changes without them. In 17,000 rounds of honest federations it fell by this share nine times. If 40% or more
of the clients had flipped labels, it mostly fell by 5 to 30%.
"""
MUCH_WORSE = 3.5
"""If more than half of the clients do not help, they are also dropped if their losses are higher than those of the
other clients by more than this many standard errors.

The other clients are few then. Their mean may be hardly better than the mean of all clients, since it follows the
data of few clients. In 17,000 rounds of honest federations, it never happened that more than half of the clients
did not help.
"""


def unhelpful_rows(
    cosines: FloatMatrix, rows: BoolVector, clients: tuple[ClientId, ...], known: Opposition, server: FloatVector
) -> Opposing:
    """Return which of these rows do not help: their average cosine with the server's step is negative.

    The arguments are those of `opposing_rows`. No row is returned if they are too few (`FEWEST`), or if the other
    rows do not go along with the server's step either (`HELPFUL`).
    """
    m = len(clients)
    averages = known.of(clients, *measure_opposition(cosines, server, rows, decided=False))[:, 2]
    found = rows & (averages < 0)
    rest = rows & ~found
    clear = found.sum() >= FEWEST * m and rest.sum() >= 2 and averages[rest].mean() >= HELPFUL
    return Opposing(found & clear, averages, np.zeros(m))


def drop_unhelpful(decision: Decision, found: Opposing) -> None:
    """Drop the clients that do not help, if the server's losses are clearly lower without them.

    This is done only if all layers are fully connected. With convolutions, honest clients may have negative
    averages, too.
    """
    connected, examples = is_fully_connected(decision.round_.layers or {}), decision.examples
    if not connected or examples is None or not found.rows.any():
        return
    rest = decision.kept & ~found.rows
    gain, t = examples.gain(decision.kept, rest)
    majority = 2 * found.rows.sum() > len(rest)
    if gain < BETTER_WITHOUT or t <= WORSE:
        t = examples.worse(found.rows, rest) if majority else 0.0
        if t <= MUCH_WORSE:
            return

    def why(row: int) -> str:
        cosine = f"mean cosine {found.averages[row]:.2f}"
        words = f"does not go along with the server's step in the first layers ({cosine})"
        return f"{words}; the server's losses are higher with such clients ({t:.1f} standard errors)"

    decision.drop_each(found.rows, np.ones(len(rest)), why)
