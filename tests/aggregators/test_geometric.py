from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.aggregators import CenteredClipping, FLTrust, GeometricMedian
from flanders.arrays import to_numpy
from flanders.checks import InputError
from flanders.linalg.geometric_median import geometric_median
from flanders.linalg.products import gram

HUGE = 1e149
"""The square of a row of it is just usable."""


def sum_of_distances(point: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> float:
    return float(weights @ np.linalg.norm(rows - point, axis=1))


def pull_on_first(rows: np.ndarray, weights: np.ndarray) -> float:
    """Return the length of what the other rows pull the first one with; it is the median if it weighs as much."""
    ways = rows[1:] - rows[0]
    return float(np.linalg.norm(weights[1:] @ (ways / np.linalg.norm(ways, axis=1, keepdims=True))))


def random_case(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    m, d = rng.integers(4, 9), rng.integers(2, 5)
    return rng.normal(size=(m, d)), rng.integers(1, 6, size=m).astype(float)


def beside_a_row(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The first row weighs a little too little to be the median, which is therefore close to it."""
    rows, weights = random_case(rng)
    weights[0] = pull_on_first(rows, weights) * (1 - 10 ** -rng.uniform(1, 12))
    return rows, weights


def at_a_row(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    rows, weights = random_case(rng)
    weights[0] = pull_on_first(rows, weights) * (1 + 10 ** -rng.uniform(1, 12))
    return rows, weights


def far_rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    rows, weights = random_case(rng)
    rows[0] *= 10 ** rng.uniform(3, 30)
    rows[1] *= 10 ** rng.uniform(3, 30)
    weights[:2] = 1.0
    return rows, weights


def nearly_a_line(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Half of the weight is on either side, so only what is off the line fixes the median."""
    rows = rng.normal(size=(2 * rng.integers(2, 5), rng.integers(2, 5)))
    rows[:, 1:] *= 10 ** -rng.uniform(1, 5)
    return rows, np.ones(len(rows))


def uneven_weights(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    rows, _ = random_case(rng)
    return rows, 10 ** rng.uniform(-6, 0, size=len(rows))


CASES = [random_case, beside_a_row, at_a_row, far_rows, nearly_a_line, uneven_weights]
UNIQUE_TO_9_DIGITS = [case for case in CASES if case is not nearly_a_line]


class Slow:
    """The geometric median by Newton's method in decimal arithmetic of 100 digits, for rows not on a line."""

    def __init__(self, rows: np.ndarray, weights: np.ndarray) -> None:
        self.rows = np.vectorize(Decimal, otypes=[object])(rows)
        self.weights = np.vectorize(Decimal, otypes=[object])(weights)
        self.weights = self.weights / self.weights.sum()

    def objective(self, z: np.ndarray) -> Decimal:
        return sum(w * self.length(x - z) for x, w in zip(self.rows, self.weights, strict=True))

    @staticmethod
    def length(v: np.ndarray) -> Decimal:
        return (v @ v).sqrt()

    def minimiser(self) -> tuple[np.ndarray, int | None]:
        """Return it, and which row it is, if it is one."""
        k = min(range(len(self.rows)), key=lambda i: self.objective(self.rows[i]))
        ways = [
            (w, x - self.rows[k]) for x, w in zip(self.rows, self.weights, strict=True) if x is not self.rows[k]
        ]
        ways = [(w / n, v) for w, v in ways if (n := self.length(v))]
        pull = sum(q * v for q, v in ways)
        excess = 1 - self.weights[k] / self.length(pull)
        if excess <= 0:
            return self.rows[k], k
        z = self.rows[k] + pull * excess / sum(q for q, _ in ways)
        for _ in range(100):
            gradient, step = self.newton(z)
            if self.length(gradient) < Decimal("1e-30"):
                return z, None
            t, now = Decimal(1), self.objective(z)
            while self.objective(z + t * step) > now - t * (gradient @ step) / 1000:
                t /= 2
            z = z + t * step
        raise AssertionError("the reference has not converged")

    def newton(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d = z.size
        gradient, hessian = z * 0, np.outer(z, z) * 0
        for x, w in zip(self.rows, self.weights, strict=True):
            n = self.length(x - z)
            u = (x - z) / n
            gradient = gradient + w * u
            hessian = hessian + w / n * (np.eye(d, dtype=int) - np.outer(u, u))
        left, right = hessian.copy(), gradient.copy()
        for i in range(d):
            for j in set(range(d)) - {i}:
                factor = left[j, i] / left[i, i]  # a positive matrix needs no other pivot
                left[j] = left[j] - factor * left[i]
                right[j] = right[j] - factor * right[i]
        return gradient, right / np.diagonal(left)


@pytest.fixture
def digits():
    with localcontext() as context:
        context.prec = 100
        yield


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("iterations", [1000, 3, 1])
def test_the_gap_of_the_geometric_median_is_no_smaller_than_what_100_digits_find(case, iterations) -> None:
    rng = np.random.default_rng(CASES.index(case))
    for _ in range(40):
        rows, weights = case(rng)
        found = geometric_median(gram(rows), weights, iterations=iterations)
        slow = Slow(rows, weights)
        best, _ = slow.minimiser()
        z = slow.rows.T @ np.vectorize(Decimal, otypes=[object])(found.coefficients)
        scale = np.median(np.linalg.norm(rows - best.astype(float), axis=1))
        above = float(slow.objective(z) - slow.objective(best))
        assert above <= found.gap + 1e-15 * scale
        if iterations == 1000:
            assert found.gap <= 1e-13 * scale


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("case", UNIQUE_TO_9_DIGITS)
def test_the_geometric_median_is_where_100_digits_find_it(case) -> None:
    rng = np.random.default_rng(10 + CASES.index(case))
    for _ in range(30):
        rows, weights = case(rng)
        best, row = Slow(rows, weights).minimiser()
        found = GeometricMedian(weighted=True)(rows, weights)
        scale = np.median(np.linalg.norm(rows - best.astype(float), axis=1))
        np.testing.assert_allclose(found, best.astype(float), rtol=0, atol=1e-9 * scale)
        if row is not None:
            assert np.array_equal(found, rows[row])
            assert geometric_median(gram(rows), weights).gap == 0


@given(st.integers(0, 2**32), st.integers(3, 9))
def test_no_point_nearby_has_a_smaller_sum_of_distances_than_the_geometric_median(seed, m):
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(m, 3)), rng.integers(1, 4, size=m).astype(float)
    found = GeometricMedian(weighted=True)(rows, weights)
    best = sum_of_distances(found, rows, weights)
    for size in (0.05, 1e-4):
        for step in rng.normal(size=(20, 3)) * size:
            assert best <= sum_of_distances(found + step, rows, weights) + 1e-13


@pytest.mark.parametrize("m", [20, 100, 300])
@pytest.mark.parametrize("d", [2, 10, 5000])
def test_the_gap_is_as_small_with_many_clients_and_few_steps_are_enough(m, d) -> None:
    rng = np.random.default_rng(m)
    rows = rng.normal(size=(m, d)).astype(np.float32)
    rows[: m // 5] *= 50
    products, scale = gram(rows), np.median(np.linalg.norm(rows, axis=1))
    found = geometric_median(products, np.ones(m), iterations=20)
    assert found.gap <= 2e-14 * scale
    assert found.coefficients.sum() == pytest.approx(1)
    ways = rows - found.coefficients @ rows.astype(float)
    assert np.linalg.norm((ways / np.linalg.norm(ways, axis=1, keepdims=True)).mean(axis=0)) < 1e-12


def two_camps(rng: np.random.Generator) -> np.ndarray:
    camp = np.where(np.arange(rng.integers(4, 30)) % 2, 1.0, -1.0)
    return camp[:, None] + rng.normal(size=(camp.size, 3)) * 10 ** -rng.uniform(0, 4)


def stretched(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_cauchy(size=(rng.integers(4, 30), 2)) ** 3 * [1, 1e-4]


@pytest.mark.parametrize("draw", [two_camps, stretched])
def test_a_dozen_steps_are_enough_where_the_objective_is_nearly_flat(draw) -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        rows = draw(rng)
        found = geometric_median(gram(rows), np.ones(len(rows)), iterations=12)
        assert found.gap <= 2e-14 * np.median(np.linalg.norm(rows - found.coefficients @ rows, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_that_is_the_geometric_median_is_returned_bit_by_bit(dtype, convert) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        rows = rng.normal(size=(7, 40)).astype(dtype)
        weights = rng.uniform(1, 2, size=7)
        weights[0] = pull_on_first(rows.astype(float), weights) * (1 + 1e-6)
        order = rng.permutation(7)
        found = GeometricMedian(weighted=True)(convert(rows[order]), weights[order])
        assert to_numpy(found).tobytes() == rows[0].tobytes()


@pytest.mark.parametrize("parameters", [{}, {"smoothing": 0.3}, {"tolerance": 0.0, "iterations": 200}], ids=str)
def test_a_weight_of_n_is_the_client_n_times_to_9_digits_in_the_geometric_median(parameters) -> None:
    rule = GeometricMedian(weighted=True, **parameters)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        counts = np.array([1, 2, 1]) if seed % 4 == 0 else rng.integers(1, 6, size=rng.integers(1, 10))
        rows = np.random.default_rng(seed).normal(size=(counts.size, 3))
        found, repeated = rule(rows, counts), rule(np.repeat(rows, counts, axis=0))
        assert np.linalg.norm(found - repeated) <= 1e-9 * np.linalg.norm(found), seed


def test_the_weights_beside_a_data_point_at_which_weiszfeld_stood_still() -> None:
    rows, counts = np.random.default_rng(68).normal(size=(3, 3)), [1, 2, 1]
    found = GeometricMedian(weighted=True)(rows, counts)
    np.testing.assert_allclose(found, GeometricMedian()(np.repeat(rows, counts, axis=0)), rtol=1e-12)
    assert np.array_equal(found, rows[1])


@pytest.mark.parametrize("case", UNIQUE_TO_9_DIGITS)
def test_the_geometric_median_depends_neither_on_the_order_nor_on_the_global_model(case) -> None:
    rng = np.random.default_rng(8)
    for _ in range(30):
        rows, weights = case(rng)
        order = rng.permutation(len(rows))
        found = GeometricMedian(weighted=True)(rows, weights)
        moved = GeometricMedian(weighted=True)(
            rows[order], weights[order], global_model=rng.normal(size=rows.shape[1])
        )
        np.testing.assert_allclose(moved, found, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("places", "weights", "expected"),
    [
        ([0, 1], [1, 1], 0.5),
        ([0, 1], [2, 1], 0.0),
        ([3], [5], 3.0),
        ([0, 1, 2, 5], [1, 1, 1, 1], 1.5),
        ([0, 1, 2, 5], [1, 2, 2, 1], 1.5),
        ([0, 1, 1, 5, 5, 9], [1, 1, 1, 1, 1, 1], 3.0),
        ([0, 1, 2], [1, 1, 1], 1.0),
        ([0, 1, 2, 50], [0, 1, 0.1, 1], 2.0),
        ([0, 1, 2, 50], [0.1, 0.2, 0, 0.3], 25.5),
        ([0, 0, 7, 7], [1, 1, 1, 1], 3.5),
    ],
)
def test_on_a_line_the_geometric_median_is_the_median_or_the_middle_of_the_medians(
    places, weights, expected
) -> None:
    start, way = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -0.7])
    rows = start + np.outer(places, way)
    rng = np.random.default_rng(0)
    for rule in (GeometricMedian(weighted=True), GeometricMedian(weighted=True, smoothing=1e-3)):
        for _ in range(5):
            order, model = rng.permutation(len(places)), rng.normal(size=3)
            found = rule(rows[order], np.array(weights)[order], global_model=model)
            np.testing.assert_allclose(found, start + expected * way, rtol=0, atol=1e-8)


def test_copies_of_rows_count_as_one_row_of_their_weight() -> None:
    rng = np.random.default_rng(3)
    for d in (3, 2000):
        rows = rng.normal(size=(6, d)).astype(np.float32)
        which = rng.integers(0, 6, size=40)
        found = geometric_median(gram(rows[which]), np.ones(40)).coefficients
        single = geometric_median(gram(rows), np.bincount(which, minlength=6).astype(float)).coefficients
        np.testing.assert_allclose(np.bincount(which, found, minlength=6), single, atol=1e-12)


def test_the_geometric_median_scales_from_the_smallest_rows_to_the_largest() -> None:
    rows, weights = np.random.default_rng(4).normal(size=(7, 3)), [1, 2, 1, 1, 3, 1, 1]
    rule = GeometricMedian(weighted=True)
    for scale in (1e-140, 1e-30, 1e30, HUGE):
        np.testing.assert_allclose(rule(scale * rows, weights) / scale, rule(rows, weights), rtol=1e-12)


def test_rows_of_any_size_among_the_others_pull_no_harder() -> None:
    """A row that is far away counts by its direction alone."""
    rng = np.random.default_rng(4)
    rows, ways = rng.normal(size=(9, 3)), rng.normal(size=(3, 3))
    far = [GeometricMedian()(np.concatenate([rows, size * ways])) for size in (1e12, 1e30, 1e100, HUGE)]
    for found in far:
        np.testing.assert_allclose(found, far[-1], rtol=0, atol=1e-10)
    assert np.linalg.norm(far[0]) < 3


@pytest.mark.parametrize("smoothing", [1e-6, 0.3, 0.9, 3.0])
def test_the_smoothed_geometric_median_minimises_the_smoothed_distances(smoothing) -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        rows, weights = random_case(rng)
        rule = GeometricMedian(weighted=True, smoothing=smoothing)
        exact, found = GeometricMedian(weighted=True)(rows, weights), rule(rows, weights)
        distances = np.linalg.norm(rows - exact, axis=1)
        order = np.argsort(distances)
        half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2, side="right")
        nu = smoothing * distances[order[half]]
        if nu == 0:
            assert np.array_equal(found, exact)
            continue
        ways = rows - found
        pulls = weights[:, None] * ways / np.maximum(np.linalg.norm(ways, axis=1, keepdims=True), nu)
        assert np.linalg.norm(pulls.sum(axis=0)) < 1e-9 * weights.sum()


def test_the_geometric_median_of_a_triangle_sees_every_side_at_120_degrees() -> None:
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]])
    rays = corners - GeometricMedian()(corners)
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    np.testing.assert_allclose(rays @ rays.T, 1.5 * np.eye(3) - 0.5, atol=1e-12)


def test_the_geometric_median_of_four_corners_is_where_the_diagonals_cross() -> None:
    square = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    found = GeometricMedian()(square, global_model=np.array([9.0, -9.0]))
    np.testing.assert_allclose(found, [1.0, 1.0], atol=1e-12)


def test_more_than_half_at_one_point_is_the_geometric_median_wherever_the_others_are() -> None:
    rows = np.array([[1.0, 1.0]] * 4 + [[1e30, 0.0], [0.0, -1e25], [3.0, 3.0]])
    for start in ([0.0, 0.0], [1.0, 1.0], [1e6, 1e6]):
        assert GeometricMedian()(rows, global_model=np.array(start)).tolist() == [1.0, 1.0]


def test_weiszfeld_steps_by_hand() -> None:
    # From 0 the distances are 1, 2, 4, the pulls 1, 1/2, 1/4 of 7/4 in all: (1 + 1 - 1) / (7/4)
    rows = np.array([[1.0], [2.0], [-4.0]])
    assert GeometricMedian(iterations=1)(rows)[0] == pytest.approx(4 / 7)
    # With weights 1, 1, 8 the pulls are 1, 1/2, 2 of 7/2 in all: (1 + 1 - 8) / (7/2)
    assert GeometricMedian(iterations=1, weighted=True)(rows, [1, 1, 8])[0] == pytest.approx(-12 / 7)
    # From 4/7 the distances are 3/7, 10/7, 32/7, the pulls 7/3, 7/10, 7/32.
    expected = (7 / 3 + 14 / 10 - 28 / 32) / (7 / 3 + 7 / 10 + 7 / 32)
    assert GeometricMedian(iterations=2)(rows)[0] == pytest.approx(expected)
    # No distance counts as less than twice the median one, of 2 then of 10/7: the step goes to the mean.
    assert GeometricMedian(iterations=2, smoothing=4.0)(rows)[0] == pytest.approx(-1 / 3)


def test_centered_clipping_by_hand() -> None:
    rows, g = np.array([[1.0, 1.0], [4.0, 5.0]]), np.array([1.0, 1.0])
    # Displacements (0, 0) and (3, 4) of length 5, clipped to 2: (1.2, 1.6), half of it.
    np.testing.assert_allclose(CenteredClipping(radius=2.0, iterations=1)(rows, global_model=g), [1.6, 1.8])
    # From (1.6, 1.8): (-0.6, -0.8) of length 1 stays, (2.4, 3.2) of length 4 becomes (1.2, 1.6); half the sum.
    np.testing.assert_allclose(CenteredClipping(radius=2.0, iterations=2)(rows, global_model=g), [1.9, 2.2])
    # By weight 3 : 1, one step: a quarter of (1.2, 1.6).
    weighted = CenteredClipping(radius=2.0, iterations=1, weighted=True)(rows, [3, 1], global_model=g)
    np.testing.assert_allclose(weighted, [1.3, 1.4])


def test_centered_clipping_takes_the_median_distance_if_it_is_given_no_radius() -> None:
    rows = np.array([[1.0], [3.0], [1e9]])
    assert CenteredClipping(iterations=1)(rows)[0] == pytest.approx((1 + 3 + 3) / 3)
    assert CenteredClipping(radius=0.0)(rows)[0] == 0.0


@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(0, 10))
def test_centered_clipping_never_goes_farther_than_the_radius_a_step(seed, iterations, radius):
    rows = np.random.default_rng(seed).normal(size=(7, 5)) * 1e4
    assert np.linalg.norm(CenteredClipping(radius, iterations)(rows)) <= iterations * radius * (1 + 1e-9)


def test_fltrust_by_hand() -> None:
    g, root = np.array([10.0, 10.0]), np.array([2.0, 0.0])
    rows = g + np.array([[5.0, 0.0], [3.0, 4.0], [0.0, 7.0], [-9.0, 1.0], [0.0, 0.0]])
    # Cosines 1, 0.6, 0, negative, none. Rescaled to length 2: (2, 0) and (1.2, 1.6).
    moved = (np.array([2.0, 0.0]) + 0.6 * np.array([1.2, 1.6])) / 1.6
    np.testing.assert_allclose(FLTrust()(rows, global_model=g, root=root), g + moved)


def test_fltrust_holds_against_any_number_of_opposed_clients() -> None:
    root = np.array([1.0, 1.0])
    rows = np.concatenate([np.full((99, 2), -1e6), [[3.0, 3.0]]])
    np.testing.assert_allclose(FLTrust()(rows, root=root), root)


@pytest.mark.parametrize("root", [np.array([1.0, 0.0]), np.zeros(2)])
def test_fltrust_stays_if_it_trusts_nobody(root) -> None:
    g = np.array([5.0, 6.0])
    model = FLTrust()(g + np.array([[-1.0, 3.0], [-2.0, 0.0]]), global_model=g, root=root)
    assert np.array_equal(model, g)
    assert not np.shares_memory(model, g)


@given(st.integers(0, 2**32), st.integers(0, 30))
def test_fltrust_never_goes_farther_than_the_root_in_float32_however_small_the_updates(seed, exponent):
    rng = np.random.default_rng(seed)
    g = rng.normal(size=40).astype(np.float32)
    root = np.full(40, 0.01, dtype=np.float32)
    rows = (g + rng.normal(size=(5, 40)) * 2.0**-exponent).astype(np.float32)
    model = FLTrust()(rows, global_model=g, root=root)
    wide = FLTrust()(rows.astype(float), global_model=g.astype(float), root=root.astype(float))
    np.testing.assert_allclose(model, wide, atol=1e-6)
    assert np.linalg.norm(wide - g) <= np.linalg.norm(root) * (1 + 1e-6)


def test_fltrust_without_a_root_says_how_to_get_one() -> None:
    with pytest.raises(
        InputError, match=r"FLTrust needs .* this round has none.*pass `root=trained - global_model`"
    ):
        FLTrust()(np.ones((3, 2)))


def test_centered_clipping_keeps_the_radius_of_the_first_step() -> None:
    rows = np.array([[1.0], [3.0], [1e9]])
    found = CenteredClipping(iterations=3)(rows)
    assert found == pytest.approx(CenteredClipping(radius=3.0, iterations=3)(rows))


def test_the_smoothing_of_the_geometric_median_goes_with_the_scale_of_the_models() -> None:
    rows = np.random.default_rng(0).normal(size=(7, 3))
    rule = GeometricMedian(smoothing=0.8)
    assert not np.allclose(rule(rows), GeometricMedian()(rows), rtol=1e-3)
    for scale in (1e-3, 1e3):
        np.testing.assert_allclose(rule(scale * rows), scale * rule(rows), rtol=1e-6)


@pytest.mark.parametrize("aggregator", [CenteredClipping(), CenteredClipping(0.01), GeometricMedian(iterations=3)])
def test_small_steps_from_a_large_model_keep_their_digits_in_float32(aggregator) -> None:
    rng = np.random.default_rng(0)
    model = rng.normal(size=5000).astype(np.float32)
    rows = (model + 1e-3 * rng.normal(size=(50, 5000))).astype(np.float32)
    found = aggregator(rows, global_model=model).astype(np.float64) - model
    exact = aggregator(rows.astype(np.float64), global_model=model.astype(np.float64)) - model
    assert np.linalg.norm(found - exact) < 2e-7 * np.linalg.norm(model)
