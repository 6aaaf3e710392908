from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flanders.attacks import View
from flanders.checks import InputError
from flanders.linalg.neighbours import krum_scores
from flanders.linalg.products import squared_distances
from flanders.published.attacks import AgrMinMaxReference, LieReference, OptReference, reference_z

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("b", "z"), [(20, 0.730), (60, 0.890), (80, 0.993), (100, 1.0)])
def test_lie_uses_the_published_z(b: int, z: float) -> None:
    assert reference_z(100, b) == pytest.approx(z, abs=5e-4)


def test_lie_uses_the_root_of_the_deviation_of_all_models() -> None:
    view = View(np.array([[0.0]]), np.zeros(1), num_clients=2, benign=np.array([[8.0]]))
    # mean 4, deviation 4, s = 1, z = Phi(0) = 1/2: 4 - 1/2 * 2
    np.testing.assert_allclose(LieReference()(view), [[3.0]])


BENIGN = np.array([[1.0, -1.0, 1.0], [4.0, 3.0, 3.0]])  # apart by (3, 4 | 2)


def opt_view(**changes: object) -> View:
    own = np.tile(BENIGN[0], (2, 1))
    return replace(View(own, np.zeros(3), num_clients=4, benign=BENIGN), **changes)  # type: ignore[arg-type]


def test_opt_starts_at_the_published_bound() -> None:
    # The least Krum score is 0, the norms by tensor add up to 5 + 2, and Krum falls for it.
    strength = 49 / np.sqrt(2)
    found = OptReference(layer_sizes=(2, 1)).craft(opt_view(), RNG)
    np.testing.assert_allclose(found, np.tile([1 - strength, -1 + strength, 1 - strength], (2, 1)))


def test_opt_without_layer_sizes_takes_the_model_as_one_piece() -> None:
    found = OptReference(num_tensors=4).craft(opt_view(), RNG)
    np.testing.assert_allclose(found[0, 0], 1 - 29 / np.sqrt(4))


def test_opt_caps_its_strength() -> None:
    found = OptReference().craft(opt_view(benign=BENIGN * 100), RNG)
    np.testing.assert_allclose(found[0], BENIGN[0] * 100 - 999 * np.sign(BENIGN[0]))


def test_opt_attacks_the_first_benign_model_of_the_first_round_for_ever() -> None:
    attack = OptReference()
    memory = attack.remember(opt_view(), BENIGN)
    later = opt_view(benign=BENIGN + 5, memory=memory)
    moved = attack.craft(later, RNG) - BENIGN[0]
    np.testing.assert_allclose(moved / np.abs(moved), np.tile(-np.sign(BENIGN[0]), (2, 1)))
    assert attack.remember(later, BENIGN) is memory


@pytest.mark.parametrize("b", [1, 3, 8])
def test_opt_is_the_largest_half_of_its_bound_that_krum_picks(b: int) -> None:
    rng = np.random.default_rng(b)
    m, d, c = 20, 6, max(b, 2)
    models = rng.normal(size=(m, d)) + 3
    own, benign = models[:b], models[b:]
    w = benign[0]
    scores = krum_scores(squared_distances(models), c)[b:]
    by_tensor = [np.linalg.norm(benign[:, :4] - w[:4], axis=1), np.linalg.norm(benign[:, 4:] - w[4:], axis=1)]
    strength = scores.min() / ((m - 2) * (c - 1) * np.sqrt(2)) + (sum(by_tensor) ** 2).max() / np.sqrt(2)

    def picked(strength: float) -> bool:
        sent = np.vstack([benign, np.tile(w - strength * np.sign(w), (b, 1))])
        return bool(np.argmin(krum_scores(squared_distances(sent), c)) >= m - b)

    while strength > 1e-5 and not picked(strength):
        strength /= 2
    view = View(own, np.zeros(d), num_clients=m, benign=benign)
    found = OptReference(layer_sizes=(4, 2)).craft(view, RNG)
    np.testing.assert_allclose(found, np.tile(w - strength * np.sign(w), (b, 1)))


def test_opt_says_when_the_layer_sizes_do_not_fit_the_model() -> None:
    with pytest.raises(InputError, match="describes a model of 5 parameters, but the models have 3"):
        OptReference(layer_sizes=(4, 1)).craft(opt_view(), RNG)


def test_agr_falls_through_to_six_deviations() -> None:
    view = View(np.array([[1.0]]), np.zeros(1), num_clients=3, benign=np.array([[0.0], [2.0]]))
    np.testing.assert_allclose(AgrMinMaxReference()(view), [[1 - 6 * np.sqrt(2 / 3)]])


def test_agr_searches_upwards_where_its_test_passes() -> None:
    # All at zero but two at -1 and 1: deviation sqrt(2/100), and 1 may be 2 away: gamma up to sqrt(50).
    benign = np.zeros((90, 1))
    benign[:2, 0] = [-1.0, 1.0]
    view = View(np.zeros((10, 1)), np.zeros(1), num_clients=100, benign=benign)
    found = AgrMinMaxReference()(view)[0, 0]
    assert found >= -1
    assert found == pytest.approx(-1.0, abs=1e-4)


def test_opt_can_step_from_the_rounds_own_global_model_instead() -> None:
    g = np.array([2.0, -3.0, 4.0])
    view = opt_view(global_model=g, memory=np.array([-1.0, 1.0, -1.0]))
    moved = OptReference(stale=False).craft(view, RNG) - g
    np.testing.assert_array_equal(np.sign(moved), np.tile(-np.sign(g), (2, 1)))
