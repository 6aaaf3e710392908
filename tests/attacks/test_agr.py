from __future__ import annotations

import numpy as np
import pytest

from flanders.attacks import AgrMinMax, AgrMinSum, AgrTailored, View
from flanders.attacks.agr import DIRECTIONS, selected_rows
from flanders.linalg.products import squared_distances


def random_view(seed: int, m: int = 15, b: int = 4, d: int = 25) -> View:
    rng = np.random.default_rng(seed)
    g = rng.normal(size=d)
    models = g + 0.4 + rng.normal(size=(m, d)) * rng.uniform(0.1, 2, size=d)
    return View(models[:b], g, num_clients=m, benign=models[b:])


def line_view(b: int, *benign: float, g: float = 0.0) -> View:
    rows = np.array(benign)[:, None]
    return View(np.full((b, 1), g), np.full(1, g), num_clients=b + len(benign), benign=rows)


def farthest_honest(x: np.ndarray, honest: np.ndarray) -> tuple[float, float]:
    return float(((honest - x) ** 2).sum(axis=1).max()), float(squared_distances(honest).max())


def sum_to_honest(x: np.ndarray, honest: np.ndarray) -> tuple[float, float]:
    return float(((honest - x) ** 2).sum()), float(squared_distances(honest).sum(axis=1).max())


def test_min_max_goes_as_far_from_the_farthest_as_the_two_farthest_are_apart() -> None:
    np.testing.assert_allclose(AgrMinMax()(line_view(2, 1.0, 2.0, 6.0)), [[1.0], [1.0]])  # 6 - (6 - 1)
    np.testing.assert_allclose(AgrMinMax(direction="unit")(line_view(1, 1.0, 2.0, 6.0, g=9.0)), [[6.0]])  # 1 + 5


def test_min_sum_goes_until_the_sum_is_that_of_the_loneliest() -> None:
    # The loneliest, 3, has 9 + 9 = 18; at 1 - t, off the mean 1, the sum is 6 + 3 t^2.
    np.testing.assert_allclose(AgrMinSum()(line_view(1, 0.0, 0.0, 3.0)), [[-1.0]])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_directions_are_those_of_the_paper(direction: str) -> None:
    view = random_view(0)
    assert view.benign is not None
    mu, step = view.benign.mean(axis=0), view.benign.mean(axis=0) - view.global_model
    p = {"std": -view.benign.std(axis=0), "unit": -step / np.linalg.norm(step), "sign": -np.sign(step)}[direction]
    moved = AgrMinMax(direction=direction)(view)[0] - mu
    np.testing.assert_allclose(moved / np.linalg.norm(moved), p / np.linalg.norm(p))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("attack", "measure"), [(AgrMinMax, farthest_honest), (AgrMinSum, sum_to_honest)])
@pytest.mark.parametrize("seed", range(4))
def test_no_larger_gamma_satisfies_the_constraint(attack: type, measure: object, direction: str, seed: int) -> None:
    view = random_view(seed)
    assert view.benign is not None
    assert callable(measure)
    mu, x = view.benign.mean(axis=0), attack(direction=direction)(view)[0]
    found, allowed = measure(x, view.benign)
    assert found <= allowed * (1 + 1e-9)
    for stretch in np.concatenate([[1 + 1e-5], np.linspace(1.01, 20, 200)]):
        found, allowed = measure(mu + stretch * (x - mu), view.benign)
        assert found > allowed


def test_equal_honest_models_leave_no_room() -> None:
    assert np.array_equal(AgrMinMax()(line_view(2, 3.0, 3.0)), [[3.0], [3.0]])
    assert np.array_equal(AgrMinMax(direction="sign")(line_view(1, 3.0)), [[3.0]])


@pytest.mark.parametrize("target", ["krum", "multi-krum", "bulyan"])
@pytest.mark.parametrize("seed", range(3))
def test_tailored_goes_as_far_as_its_target_still_selects_it(target: str, seed: int) -> None:
    view = random_view(seed, m=15, b=3)
    assert view.benign is not None
    honest = view.benign
    x, mu = AgrTailored(target=target)(view), honest.mean(axis=0)

    def malicious_selected(stretch: float) -> int:
        sent = np.vstack([mu + stretch * (x - mu), honest])
        return int(np.sum(selected_rows(target, squared_distances(sent), 3) < 3))

    wanted = 1 if target == "krum" else 3
    assert malicious_selected(1.0) == wanted
    assert malicious_selected(1.0 + 1e-3) < wanted


def test_tailored_falls_back_to_min_max_where_nothing_fools_the_target() -> None:
    # A lone row beside the middle one of five always has a larger Krum score than that one.
    view = line_view(1, 1.0, 2.0, 3.0, 4.0, 5.0)
    np.testing.assert_allclose(AgrTailored(target="krum")(view), AgrMinMax()(view))
    np.testing.assert_allclose(AgrTailored(target="krum")(view), [[1.0]])


def test_tailored_ends_below_twice_its_start_against_a_majority() -> None:
    view = line_view(5, 1.0, 2.0, 3.0)  # mean 2, deviation sqrt(2/3): Krum sees five rows at distance zero
    rows = AgrTailored(target="krum", gamma_init=10.0)(view)
    np.testing.assert_allclose(rows, np.full((5, 1), 2 - 20 * np.sqrt(2 / 3)), atol=1e-3)
