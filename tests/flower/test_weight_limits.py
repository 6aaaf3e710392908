from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal, Flanders, Guard, KeepAll
from flanders.checks import InputError
from flanders.flower import FilteredStrategy, WeightLimits
from flower.federation import Client, app, flat, grid_of, model, play, strategies

START = model((6, 7), (7,))


def claiming(examples, step=None):
    """Return a twist that claims a number of examples and, if `step` is given, moves every number by it."""

    def twist(message, honest):
        honest["metrics"]["num-examples"] = examples
        if step is not None:
            sent = next(iter(message.content.array_records.values()))
            for name, array in sent.items():
                honest["arrays"][name] = app.Array((array.numpy() + step).astype(array.dtype))
        return app.Message(honest, reply_to=message)

    return twist


@pytest.mark.parametrize("examples", [70_000, 2**53, 1e15])
def test_a_claim_of_many_examples_does_not_buy_the_model(examples, flower_log) -> None:
    """One of ten clients claims to have a thousand times as many examples, and pulls the model its own way."""
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    ((arrays, _),) = play(strategy, grid_of(10, {0: claiming(examples, 1.0)}), START, 1)
    ((fair, _),) = play(
        FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(10, {0: claiming(10, 1.0)}), START, 1
    )
    bought = np.linalg.norm(flat(arrays) - flat(fair)) / np.linalg.norm(flat(START) + 1.0 - flat(fair))
    assert bought < 0.25
    assert "claims above 3 times the median were lowered: 100" in flower_log.text


def test_a_loss_by_which_a_strategy_weighs_does_not_buy_the_model_either() -> None:
    def hopeless(message, honest):
        honest["metrics"]["train_loss"] = 1e12
        return claiming(10, 1.0)(message, honest)

    def make():
        return FilteredStrategy(strategies.QFedAvg(client_learning_rate=0.1, q=1.0), KeepAll())

    ((arrays, _),) = play(make(), grid_of(10, {0: hopeless}), START, 1)
    ((fair, _),) = play(make(), grid_of(10, {0: claiming(10, 1.0)}), START, 1)
    bought = np.linalg.norm(flat(arrays) - flat(fair)) / np.linalg.norm(flat(START) + 1.0 - flat(fair))
    assert bought < 0.35


def test_the_limit_can_be_changed_and_switched_off(flower_log) -> None:
    def average(limits):
        strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), limits=limits)
        return flat(play(strategy, grid_of(10, {0: claiming(10**6, 1.0)}), START, 1)[0][0])

    free = average(WeightLimits(times_median=None))
    bare = flat(play(strategies.FedAvg(), grid_of(10, {0: claiming(10**6, 1.0)}), START, 1)[0][0])
    np.testing.assert_allclose(free, bare, rtol=1e-6)
    assert "100 alone has 100% of the weight" in flower_log.text
    aim = flat(START) + 1.0
    distances = [np.linalg.norm(average(WeightLimits(times_median=times)) - aim) for times in (1, 3, 30, 3000)]
    assert distances == sorted(distances, reverse=True)
    with pytest.raises(InputError, match="`times_median` parameter of WeightLimits must be a number of at least 1"):
        WeightLimits(times_median=0.5)


def test_a_client_with_more_than_half_of_the_weight_is_named(flower_log) -> None:
    play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(3, {0: claiming(33)}), START, 1)
    assert "100 alone has 59% of the weight" in flower_log.text


def flipping(message, honest):
    """Send the opposite of the honest step."""
    sent = next(iter(message.content.array_records.values()))
    for name, array in sent.items():
        step = honest["arrays"][name].numpy() - array.numpy()
        honest["arrays"][name] = app.Array((array.numpy() - step).astype(array.dtype))
    return app.Message(honest, reply_to=message)


def sybils(strategy, rounds, attackers=16, honest=4):
    """Train with a few clients that stay, and many attackers that come under new names from round 3 on."""
    arrays, grid = START, grid_of(honest)
    for number in range(1, rounds + 1):
        for node in [node for node in grid.nodes if node >= 1000]:
            del grid.nodes[node]
        if number >= 3:
            grid.nodes |= {1000 * number + i: Client(1000 * number + i, flipping) for i in range(attackers)}
        ((found, _),) = play(strategy, grid, arrays, 1, first=number)
        arrays = arrays if found is None else found
    return flat(arrays)


@pytest.mark.parametrize("filter_", [Flanders(keep=1.0), Guard(on_doubt="keep")], ids=["flanders", "guard"])
def test_new_names_in_every_round_do_not_turn_the_training_round(filter_) -> None:
    """80% of the clients come under new names in each round, and send the opposite of a step."""
    alone = sybils(FilteredStrategy(strategies.FedAvg(), filter_), 12, attackers=0)
    found = sybils(FilteredStrategy(strategies.FedAvg(), filter_), 12)
    way = flat(START) - alone
    assert np.dot(flat(START) - found, way) / np.dot(way, way) > 0.5  # more than half of the way is done


def test_newcomers_count_in_full_while_few_clients_are_known(flower_log) -> None:
    """Of ten clients two are known: they alone do not decide."""
    strategy = FilteredStrategy(strategies.FedAvg(), Flanders(keep=1.0))
    play(strategy, grid_of(2), START, 1)
    play(strategy, grid_of(10), START, 1, first=2)
    assert "newcomer" not in flower_log.text


def test_a_filter_without_a_memory_has_no_newcomers(flower_log) -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=1.0))
    play(strategy, grid_of(5), START, 1)
    play(strategy, grid_of(20), START, 1, first=2)
    assert "newcomer" not in flower_log.text


def test_newcomers_alone_do_not_make_a_model_where_known_clients_have_replied(flower_log) -> None:
    class Fooled(Flanders):
        """Keeps the clients that it has not seen before."""

        def select(self, scores):
            return np.flatnonzero([int(client) >= 105 for client in scores.clients])

    strategy = FilteredStrategy(strategies.FedAvg(), Fooled(keep=1.0))
    first = play(strategy, grid_of(5), START, 1)[0][0]
    ((found, metrics),) = play(strategy, grid_of(15), first, 1, first=2)
    assert found is None
    assert metrics["flanders-stayed"] == 1
    assert "the filter kept only newcomers: the global model stays" in flower_log.text
    assert "of the total" not in flower_log.text  # no weight was lowered


class Unweighted(strategies.FedAvg):
    """A strategy that reads no weights: it takes the first model."""

    def __init__(self):
        super().__init__(weighted_by_key=None)

    def aggregate_train(self, server_round, replies):
        return next(iter(replies)).content["arrays"], None


@pytest.mark.parametrize(
    ("make", "clients", "share", "said"),
    [
        (strategies.FedAvg, 15, 0.25, "the weight of 10 newcomers was lowered to 25% of the total"),
        (strategies.FedAvg, 6, 0.1, "the weight of 1 newcomer was lowered to 10% of the total"),
        (Unweighted, 15, 0.25, "10 newcomers count in full, since the strategy uses no weights"),
        (Unweighted, 6, 0.1, "1 newcomer counts in full, since the strategy uses no weights"),
    ],
)
def test_the_alarm_says_whether_the_weight_of_newcomers_was_lowered(make, clients, share, said, flower_log) -> None:
    strategy = FilteredStrategy(make(), Flanders(keep=1.0), limits=WeightLimits(newcomers=share))
    first = play(strategy, grid_of(5), START, 1)[0][0]
    assert play(strategy, grid_of(clients), first, 1, first=2)[0][0] is not None
    assert said in flower_log.text
    assert flower_log.text.count("newcomer") == 1
