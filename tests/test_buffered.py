from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders import AsyncRounds, Defense, KeepAll
from flanders.checks import InputError
from libraries import LIBRARIES


def test_steps_of_different_ages_are_added_to_the_newest_model() -> None:
    rounds = AsyncRounds(np.zeros(2), Defense(KeepAll()), size=2, discount=lambda age: 1.0 / (1 + age))
    for client in ("a", "b", "slow"):
        assert (rounds.begin(client) == 0).all()
    assert rounds.add("a", np.array([1.0, 0.0])) is None
    rounds.add("b", np.array([3.0, 0.0]))
    np.testing.assert_array_equal(rounds.model, [2.0, 0.0])
    np.testing.assert_array_equal(rounds.begin("c"), [2.0, 0.0])
    assert rounds.add("slow", np.array([0.0, 6.0])) is None
    assert rounds.waiting["slow"].age == 1
    rounds.add("c", np.array([2.0, 0.0]))  # it has not moved
    np.testing.assert_allclose(rounds.model, [2.0, 6.0 * 0.5 / 1.5])


@pytest.mark.parametrize("weight", [1.7e308, 10**400, 10**5000, float("nan"), -1, "x"], ids=[*"abcdef"])
def test_a_weight_that_cannot_be_used_loses_no_reply_of_others(weight) -> None:
    rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=2)
    for client in ("a", "b", "bad", "worse"):
        rounds.begin(client)
    for client in ("bad", "worse"):
        with pytest.raises(InputError, match=r"`weight` parameter of AsyncRounds\.add"):
            rounds.add(client, np.ones(3), weight)
    rounds.add("a", np.ones(3))
    assert rounds.add("b", np.ones(3)).kept.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [complex, object, "U3", "M8[s]", bool])
def test_an_array_of_another_kind_is_an_error(kind) -> None:
    rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=1)
    rounds.begin("a")
    with pytest.raises(InputError, match=r"Client 'a' has sent an array of type .*Ignore its reply"):
        rounds.add("a", np.zeros(3).astype(kind))


def crowd(d=400, m=24, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=d), 0.7 * rng.normal(size=(m, d))


@pytest.mark.parametrize("library", LIBRARIES)
def test_attackers_are_dropped_whatever_the_age_of_replies(library) -> None:
    """Every third client is slow: its replies are two rounds old."""
    asarray, (target, own) = LIBRARIES[library], crowd()
    rng, d, m = np.random.default_rng(1), 400, 24
    rounds = AsyncRounds(asarray(np.zeros(d)), Defense(seed=0), size=12)
    wronged = caught = missed = 0
    held: dict[int, tuple[int, np.ndarray]] = {}
    for moment in range(120):
        for client in rng.permutation(m)[:6].tolist():
            if client not in held:
                held[client] = (moment, np.asarray(rounds.begin(client)))
                continue
            if client % 3 == 0 and moment - held[client][0] < 6:
                continue
            start = held.pop(client)[1]
            step = 0.95**rounds.number * (target + own[client]) + 0.2 * rng.normal(size=d)
            update = start - step if client < 6 else start + step
            outcome = rounds.add(client, asarray(update))
            if outcome is not None:
                bad = {c.client for c in outcome.clients if c.client < 6}
                caught += len(bad & set(outcome.dropped))
                missed += len(bad - set(outcome.dropped))
                wronged += len(set(outcome.dropped) - bad)
    assert rounds.number > 5
    assert caught > 9 * missed
    assert wronged <= 0.05 * 12 * rounds.number
    model = np.asarray(rounds.model)
    assert model @ target > 0.9 * np.linalg.norm(model) * np.linalg.norm(target)


def test_replies_that_are_too_old_or_that_nobody_asked_for_are_not_used() -> None:
    rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=1, max_age=1)
    rounds.begin("old")
    for number in range(3):
        rounds.begin(number)
        assert rounds.add(number, np.ones(3)) is not None
    assert len(rounds._models) == 1  # the start of a client that is too late is forgotten
    with pytest.raises(InputError, match=r"No reply of client 'old' .* is more than 1 rounds old"):
        rounds.add("old", np.ones(3))
    with pytest.raises(InputError, match=r"No reply of client 2 .* it has already replied"):
        rounds.add(2, np.ones(3))
    with pytest.raises(InputError, match="No reply of client 'stranger' is expected: it was not given a model"):
        rounds.add("stranger", np.ones(3))
    assert not rounds.waiting
    rounds.begin("short")
    with pytest.raises(InputError, match=r"'short' has sent an array of shape \(2,\)"):
        rounds.add("short", np.ones(2))


def test_a_reply_that_is_not_finite_does_not_stop_the_round() -> None:
    rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=2)
    for client in "ab":
        rounds.begin(client)
    rounds.add("a", np.array([np.nan, 0, 0]))
    outcome = rounds.add("b", np.ones(3))
    assert outcome.unusable == ("a",)
    np.testing.assert_array_equal(rounds.model, np.ones(3))


def test_a_reply_is_used_up_to_the_highest_age_and_not_beyond() -> None:
    for others, used in ((2, True), (3, False)):
        rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=1, max_age=2)
        rounds.begin("slow")
        for number in range(others):
            rounds.begin(number)
            rounds.add(number, np.ones(3))
        if used:
            assert rounds.add("slow", np.ones(3)).kept.size == 1
        else:
            with pytest.raises(InputError, match="more than 2 rounds old"):
                rounds.add("slow", np.ones(3))


def test_models_are_kept_only_while_a_client_trains_from_them() -> None:
    rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=1, max_age=50)
    rounds.begin("slow")
    for number in range(30):
        rounds.begin(number)
        rounds.add(number, np.ones(3) * number)
    assert len(rounds._models) == 2
    assert rounds.add("slow", np.ones(3)).kept.size == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "The `size` parameter of AsyncRounds"),
        ({"max_age": -1}, "The `max_age` parameter of AsyncRounds"),
        ({"defense": KeepAll()}, "The `defense` parameter of AsyncRounds must be a Defense"),
    ],
)
def test_wrong_parameters_are_named(arguments, message) -> None:
    with pytest.raises(InputError, match=message):
        AsyncRounds(np.zeros(3), **arguments)
    with pytest.raises(InputError, match="must be a flat model"):
        AsyncRounds(np.zeros((3, 1)))


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0, "many", None, True])
def test_the_weight_of_one_client_does_not_cost_the_others_their_replies(weight) -> None:
    rounds = AsyncRounds(np.zeros(2), Defense(KeepAll()), size=2)
    for client in "abc":
        rounds.begin(client)
    rounds.add("a", np.ones(2))
    with pytest.raises(InputError, match="weight"):
        rounds.add("b", np.ones(2), weight)
    assert rounds.add("c", np.ones(2)).kept.tolist() == [0, 1]


@pytest.mark.parametrize("bad", [torch.ones(2), np.array(["a", "b"])], ids=["another library", "text"])
def test_a_bad_reply_does_not_cost_the_client_its_good_one(bad) -> None:
    rounds = AsyncRounds(np.zeros(2), Defense(KeepAll()), size=1)
    rounds.begin("a")
    with pytest.raises(ValueError, match=r"same kind of array|array of type"):
        rounds.add("a", bad)
    assert not rounds.waiting
    assert rounds.add("a", np.ones(2)).kept.tolist() == [0]


def test_clients_that_all_claim_nothing_count_alike() -> None:
    rounds = AsyncRounds(np.zeros(2), Defense(KeepAll()), size=2)
    for client in "ab":
        rounds.begin(client)
    rounds.add("a", np.ones(2), 0)
    rounds.add("b", np.full(2, 3.0), 0)
    np.testing.assert_array_equal(rounds.model, [2.0, 2.0])


@pytest.mark.parametrize("client", [1.5, None, float("nan"), (1,), b"a", True, [1]])
def test_a_client_whose_name_is_no_id_is_refused_before_it_can_cost_a_round(client) -> None:
    rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=2)
    for name in ("a", "b"):
        rounds.begin(name)
    with pytest.raises(InputError, match="client id must be an int or a string"):
        rounds.begin(client)
    rounds.add("a", np.ones(3))
    assert rounds.add("b", np.ones(3)).kept.tolist() == [0, 1]
