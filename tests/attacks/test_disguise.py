from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flanders.attacks import Attack, KeptSignature, Lie, NoisyClones, OnOff, SlowDrift, View
from flanders.catalog import ATTACKS
from flanders.simulation import Simulation
from settings import make_setting

RNG = np.random.default_rng(0)


def random_view(seed: int = 0, m: int = 12, b: int = 4, d: int = 50) -> View:
    rng = np.random.default_rng(seed)
    g = rng.normal(size=d)
    models = g + 0.3 + rng.normal(size=(m, d))
    ids = tuple(range(m))
    return View(models[:b], g, m, ids[:b], models[b:], ids[b:], server_columns=np.arange(d))


def play(attack: Attack, views: list[View], start: int = 1) -> list[np.ndarray]:
    """Attack round after round, honestly before `start`; return what was sent beyond the honest models."""
    memory, added = None, []
    for number, seen in enumerate(views, 1):
        view = replace(seen, memory=memory)
        sent = attack.craft(view, np.random.default_rng(number)) if number >= start else view.own
        memory = attack.remember(view, sent)
        added.append(sent - view.own)
    return added


def test_slow_drift_grows_by_its_rate_up_to_its_cap_in_lengths_of_each_honest_update() -> None:
    views = [random_view(seed) for seed in range(6)]
    added = play(SlowDrift(rate=0.2, cap=0.5), views)
    for view, pull, length in zip(views, added, [0.2, 0.4, 0.5, 0.5, 0.5, 0.5], strict=True):
        honest = np.linalg.norm(view.own - view.global_model, axis=1)
        np.testing.assert_allclose(np.linalg.norm(pull, axis=1), length * honest)


def test_slow_drift_pulls_against_the_first_honest_mean_it_saw_for_ever() -> None:
    views = [random_view(seed) for seed in range(4)]
    benign = views[0].benign
    assert benign is not None
    step = benign.mean(axis=0) - views[0].global_model
    for pull in play(SlowDrift(), views, start=3)[2:]:
        for row in pull:
            np.testing.assert_allclose(row / np.linalg.norm(row), -step / np.linalg.norm(step))


def test_slow_drift_starts_to_grow_when_it_starts_to_poison() -> None:
    views = [random_view(seed) for seed in range(4)]
    early, late = play(SlowDrift(), views), play(SlowDrift(), views, start=3)
    np.testing.assert_allclose(late[2], early[2] / 3)
    np.testing.assert_allclose(late[3], early[3] / 2)


def test_slow_drift_is_honest_until_somebody_moves() -> None:
    still = View(np.ones((1, 2)), np.ones(2), num_clients=2)
    moving = View(np.array([[4.0, 5.0]]), np.ones(2), num_clients=2)  # step (3, 4)
    first, second = play(SlowDrift(rate=0.1), [still, moving])
    assert np.array_equal(first, [[0.0, 0.0]])
    np.testing.assert_allclose(second, [[-0.3, -0.4]])


@pytest.mark.parametrize("start", [1, 4])
def test_on_off_attacks_and_behaves_in_turn_from_its_first_poisoned_round_on(start: int) -> None:
    added = play(
        OnOff(on=2, off=3, base=ATTACKS.make("sign-flip")), [random_view(seed) for seed in range(15)], start
    )
    poisoned = [number for number, row in enumerate(added, 1) if row.any()]
    assert poisoned == [n for n in range(start, 16) if (n - start) % 5 < 2]


def test_on_off_sends_in_its_turn_what_its_base_sends_with_the_same_memory() -> None:
    views = [random_view(seed) for seed in range(4)]
    np.testing.assert_array_equal(
        play(OnOff(on=9, base=ATTACKS.make("budget")), views), play(ATTACKS.make("budget"), views)
    )


def test_the_base_of_on_off_sees_what_was_sent_in_the_honest_rounds() -> None:
    base, views = ATTACKS.make("budget"), [random_view(seed) for seed in range(3)]
    first = base.remember(views[0], base.craft(views[0], RNG))
    second = base.remember(replace(views[1], memory=first), views[1].own)
    third = play(OnOff(on=1, off=1, base=ATTACKS.make("budget")), views)[2]
    np.testing.assert_array_equal(third, base.craft(replace(views[2], memory=second), RNG) - views[2].own)


def test_on_off_without_honest_rounds_is_its_base() -> None:
    views = [random_view(seed) for seed in range(3)]
    np.testing.assert_array_equal(play(OnOff(on=1, off=0, base=Lie()), views), play(Lie(), views))


def test_kept_signature_shifts_each_client_by_what_lie_shifts_the_mean() -> None:
    view = random_view(m=12, b=5)
    assert view.benign is not None
    shift = Lie()(view)[0] - view.benign.mean(axis=0)
    np.testing.assert_allclose(KeptSignature()(view) - view.own, np.tile(shift, (5, 1)))
    np.testing.assert_allclose(KeptSignature(z=2)(view), view.own - 2 * view.benign.std(axis=0))


def test_a_rescaled_kept_signature_has_the_honest_length_and_the_shifted_direction() -> None:
    view = random_view()
    g = view.global_model
    plain, rescaled = KeptSignature(z=1.5)(view) - g, KeptSignature(z=1.5, rescale=True)(view) - g
    lengths = np.linalg.norm(rescaled, axis=1, keepdims=True)
    np.testing.assert_allclose(lengths[:, 0], np.linalg.norm(view.own - g, axis=1))
    np.testing.assert_allclose(rescaled / lengths, plain / np.linalg.norm(plain, axis=1, keepdims=True))


def test_a_kept_signature_resembles_its_client_and_not_the_others() -> None:
    rng = np.random.default_rng(0)
    signatures, g = rng.normal(size=(12, 300)), np.zeros(300)
    models = signatures + 0.3 * rng.normal(size=(12, 300))
    view = View(models[:3], g, num_clients=12, benign=models[3:])
    correlations = np.corrcoef(KeptSignature(z=0.5)(view), signatures)[:3, 3:]
    assert np.array_equal(correlations.argmax(axis=1), [0, 1, 2])
    assert np.diagonal(correlations).min() > 0.8
    lie = np.corrcoef(Lie(z=0.5)(view), signatures)[:3, 3:]
    assert np.diagonal(lie).max() < 0.5


def test_noisy_clones_are_as_far_off_the_base_attack_as_they_were_told_and_from_each_other() -> None:
    view = random_view(d=2000)
    clean = ATTACKS.make("agr-min-max")(view)
    noise = NoisyClones(noise=0.1)(view, np.random.default_rng(0)) - clean
    length = np.linalg.norm(clean[0] - view.global_model)
    np.testing.assert_allclose(np.linalg.norm(noise, axis=1), 0.1 * length)
    assert np.abs(np.corrcoef(noise) - np.eye(4)).max() < 0.1


def test_noisy_clones_without_noise_are_their_base() -> None:
    view = random_view()
    np.testing.assert_array_equal(NoisyClones(noise=0, base=Lie())(view), Lie()(view))


def test_noisy_clones_of_an_attack_with_a_memory_share_it() -> None:
    views = [random_view(seed) for seed in range(3)]
    static = play(ATTACKS.make("static"), views)
    noisy = play(NoisyClones(noise=1e-6, base=ATTACKS.make("static")), views)
    np.testing.assert_allclose(noisy, static, atol=1e-3)


def test_nobody_counts_as_malicious_in_a_round_in_which_the_attacker_rests():
    setting = make_setting(num_clients=10, rounds=8, attack=OnOff(on=2, off=1), fraction=0.4, start=2)
    counts = [int(np.sum(record.malicious)) for record in Simulation(setting).run()]
    assert counts == [0, 4, 4, 0, 4, 4, 0, 4]


def test_clones_of_an_attack_that_rests_rest_too():
    attack, memory, rested = NoisyClones(base=ATTACKS.make("on-off")), None, []
    for _ in range(5):
        view = replace(random_view(), memory=memory)
        sent = attack.craft(view, np.random.default_rng(0))
        rested.append(attack.rests(view))
        assert np.array_equal(sent, view.own) is rested[-1]
        memory = attack.remember(view, sent)
    assert rested == [False, False, True, True, False]
