"""What `Fingerprint()` remembers of accepted clients, and how it weighs what they answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from filters.fingerprint.test_fingerprint import Federation, attacked, rates
from flanders import Defense, Fingerprint, Round
from flanders.filters.fingerprint.crowd import Company, measure_company
from flanders.filters.fingerprint.decision import deviations, score_by_answers
from flanders.filters.fingerprint.learning import company_in
from flanders.filters.fingerprint.questions import ANY, CHANNELS, COMPANY, Answers, ask_questions
from flanders.linalg.products import gram


def known_clients(rounds=4, clients=40):
    """Return a federation and a defence that knows its clients."""
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(rounds):
        federation.model = defense(federation.updates()[:clients], global_model=federation.model).model
    return federation, defense


def test_clients_that_stay_as_they_were_are_kept_while_most_take_longer_steps_from_round_to_round():
    def most_grow(updates, bad, federation):
        bad[:] = np.arange(bad.size) < 32
        growth = 1.15 ** (federation.number - 2)
        updates[bad] = federation.model + growth * (updates[bad] - federation.model)
        return updates

    assert rates(attacked(most_grow, rounds=12))[1] == 0


def test_a_crowd_is_judged_by_what_it_has_in_common_as_far_as_that_is_certain():
    channels, crowd = len(CHANNELS), np.array([True, True, False])
    asked = np.zeros((3, channels), dtype=bool)
    asked[:, COMPANY] = True
    found = Company(np.zeros(3), crowd, level=1.0, doubt=0.4)
    answers = Answers(
        np.zeros((3, channels)), asked, np.eye(3), np.ones(3), np.ones(3), crowd, np.ones(3), (0.0, 0.0), found
    )
    away = deviations(answers, np.full(channels, 0.5), np.full(channels, 0.3))[:, COMPANY]
    np.testing.assert_allclose(away, [1.5, 1.5, -np.inf])  # 1.5 (1 - 0.5) / hypot(0.3, 0.4)


def test_newcomers_and_copies_are_nobody_s_company():
    federation, defense = known_clients(clients=30)
    updates = federation.updates()
    updates[:3] = updates[3]
    found = score_by_answers(
        defense.state.signatures, Round(updates, global_model=federation.model), 5, 0.01
    ).evidence
    group = (np.arange(40) > 3) & (np.arange(40) < 30)
    expected = measure_company(gram(updates, federation.model), group).common
    np.testing.assert_allclose(found.values[:, COMPANY], expected)


def test_the_usual_shares_of_the_layers_are_those_of_clients_that_are_not_suspected():
    layers = {"body.weight": 300, "body.bias": 20, "head.weight": 80}
    federation, defense = known_clients()
    updates = federation.updates()
    updates[:12, 320:] += 8 * federation.rng.normal(size=(12, 80))
    reasons = defense(updates, global_model=federation.model, layers=layers).reasons
    assert set(reasons) == set(range(12))
    assert all("% of the deviation in head.weight (usually " in reason for reason in reasons.values())


@pytest.mark.parametrize(("rounds", "scale"), [(1, 1.0), (9, 3.0), (1000, math.sqrt(30))])
def test_absence_widens_what_is_allowed_up_to_a_point(rounds, scale):
    federation, defense = known_clients()
    answers = ask_questions(
        defense.state.signatures, Round(federation.updates(), global_model=federation.model), 4 + rounds
    )
    np.testing.assert_allclose(answers.scale, scale)


def test_what_is_usual_for_a_client_is_halfway_between_what_was_and_what_is():
    federation, defense = known_clients()
    before = defense.state.signatures
    outcome = defense(federation.updates(), global_model=federation.model)
    after, now = outcome.state.signatures, outcome.scores.evidence.relative[:, ANY]
    old = dict(zip(before.clients, before.usual, strict=True))
    expected = [(old[c] + now[c]) / 2 for c in after.clients]
    np.testing.assert_allclose(after.usual, expected)
    assert np.abs(after.usual - now[list(after.clients)]).max() > 0.01


def test_the_spread_of_what_clients_have_in_common_is_that_within_rounds():
    rounds = np.full((2, 3, len(CHANNELS)), np.nan)
    rounds[:, :, COMPANY] = [[0.1, 0.11, 0.12], [0.5, 0.51, 0.52]]
    assert company_in(list(rounds)) == pytest.approx((0.31, 1.4826 * 0.01))


def test_the_answers_of_five_rounds_are_the_reference():
    _, defense = known_clients(rounds=9)
    assert len(defense.state.signatures.past) == 5


def test_what_was_refused_before_a_round_without_survivors_is_forgotten():
    federation, defense = known_clients()
    updates = federation.updates()
    updates[0] = 2 * federation.model - updates[0]
    assert defense(updates, global_model=federation.model).state.signatures.refused.shape[0] == 1
    noise = 100 * federation.rng.normal(size=updates.shape)
    outcome = defense(federation.model + noise, global_model=federation.model)
    assert outcome.kept.size == 0
    assert outcome.state.signatures.refused is None
