from __future__ import annotations

import numpy as np

from flanders.attacks import PoisonedFL, View

D = 400


def campaign(attack, steps, own=None):
    """Let the attacker send rows while the global model makes these steps; yield each view and its rows."""
    g, memory = np.random.default_rng(1).normal(size=D), None
    for step in steps:
        view = View(own=np.tile(g + 0.1, (2, 1)), global_model=g, num_clients=5, memory=memory)
        rows = attack(view)
        memory = attack.remember(view, rows)
        yield view, rows, memory
        g = g + step


def test_the_step_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    steps = [rng.normal(size=D) for _ in range(4)]
    sent, signs = np.zeros(D), None
    for number, (view, rows, memory) in enumerate(campaign(PoisonedFL(strength=3.0), steps)):
        if number == 0:
            assert np.array_equal(rows, view.own)
            signs = memory.signs
            assert set(signs.tolist()) == {-1.0, 1.0}
            continue
        last = steps[number - 1]
        scaled = sent / np.linalg.norm(sent) * np.linalg.norm(last) if sent.any() else sent
        rest = np.abs(last - scaled)
        sent = 3.0 * np.linalg.norm(last) * rest / np.linalg.norm(rest) * signs
        np.testing.assert_allclose(rows, np.tile(view.global_model + sent, (2, 1)), atol=1e-9)


def test_the_strength_shrinks_where_the_attack_has_no_effect_and_stays_where_it_has():
    attack, rng = PoisonedFL(period=5), np.random.default_rng(0)
    resisting = [rng.normal(size=D) for _ in range(12)]
    strengths = [memory.strength for _, _, memory in campaign(attack, resisting)]
    assert strengths[4] == 8.0
    np.testing.assert_allclose([strengths[5], strengths[10]], [8 * 0.7, 8 * 0.49])
    signs = next(memory for _, _, memory in campaign(attack, resisting)).signs
    giving_in = [0.1 * signs for _ in range(12)]
    assert {memory.strength for _, _, memory in campaign(attack, giving_in)} == {8.0}


def test_it_rests_in_its_first_round():
    views = [view for view, _, _ in campaign(PoisonedFL(), [np.ones(D)] * 2)]
    assert [PoisonedFL().rests(view) for view in views] == [True, False]
