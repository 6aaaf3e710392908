"""The matrix autoregressive model against slow, direct transcriptions of its formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.linalg import mar


def direct_als(matrices, order, iterations, ridge_a=0.0, ridge_b=0.0):
    """The normal equations of the paper's Appendix C in d x d and h x h, written out, without convergence test."""
    d, h = matrices[0].shape

    def inverse(square, ridge):
        return np.linalg.inv(square + ridge * np.eye(len(square))) if ridge else np.linalg.pinv(square, rcond=1e-13)

    b = [np.eye(h) for _ in range(order)]
    times = range(order, len(matrices))
    for _ in range(iterations):
        lagged = {t: np.vstack([matrices[t - i - 1] @ b[i].T for i in range(order)]) for t in times}
        cross = sum(matrices[t] @ lagged[t].T for t in times)
        a = cross @ inverse(sum(lagged[t] @ lagged[t].T for t in times), ridge_a)
        a = [a[:, i * d : (i + 1) * d] for i in range(order)]
        moved = {t: np.hstack([a[i] @ matrices[t - i - 1] for i in range(order)]) for t in times}
        cross = sum(matrices[t].T @ moved[t] for t in times)
        joint = cross @ inverse(sum(moved[t].T @ moved[t] for t in times), ridge_b)
        b = [joint[:, i * h : (i + 1) * h] for i in range(order)]
    return sum(a[i] @ matrices[-i - 1] @ b[i].T for i in range(order))


def fitted(matrices, order=1, **settings):
    found = mar.fit(matrices, order=order, **settings)
    return np.hstack(matrices[order:]) @ found.coefficients, found


def fitted_from_gram(matrices, order=1, **settings):
    stacked = np.hstack(matrices)
    basis = mar.coordinates(stacked.T @ stacked)
    h = matrices[0].shape[1]
    reduced = [basis[:, i * h : (i + 1) * h] for i in range(len(matrices))]
    found = mar.fit(reduced, order=order, **settings)
    return np.hstack(matrices[order:]) @ found.coefficients


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("parameters", [7, 60])
def test_the_fit_and_its_gram_form_equal_direct_als(order, ridge, parameters, rng):
    """With 7 parameters the fit is not exact and ALS works; with 60 it is."""
    h, length = 5, order + 3
    matrices = [rng.normal(size=(parameters, h)) for _ in range(length)]
    expected = direct_als(matrices, order, 6, ridge, ridge)
    settings = {"iterations": 6, "tolerance": 0.0, "ridge_a": ridge, "ridge_b": ridge}
    if order > 1 and ridge == 0.0:
        settings["iterations"] = 1  # later solves are rank-deficient: normal equations square their condition
        expected = direct_als(matrices, order, 1)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(fitted(matrices, order, **settings)[0], expected, atol=1e-8 * scale)
    np.testing.assert_allclose(fitted_from_gram(matrices, order, **settings), expected, atol=1e-8 * scale)


def test_one_pair_is_fitted_exactly_and_forecast_in_closed_form(rng):
    first, second = rng.normal(size=(2, 40, 6))
    forecast, found = fitted([first, second])
    np.testing.assert_allclose(forecast, second @ np.linalg.pinv(first) @ second, atol=1e-10)
    assert found.converged
    assert found.iterations <= 2


@pytest.mark.parametrize(
    ("rank0", "rank1"), [(5, 9), (9, 5), (7, 7), (12, 12), (12, 8), (1, 12), (8, 12), (11, 12)]
)
@pytest.mark.parametrize("iterations", [1, 2, 3, 10, 60])
def test_one_pair_with_dependent_columns_is_fitted_as_by_als(rank0, rank1, iterations, rng):
    """Repeated columns, as from colluders or absent clients: the short way must equal the long way."""
    columns = rng.normal(size=(40, 12))
    first = columns[:, rng.integers(0, rank0, size=12) if rank0 < 12 else np.arange(12)]
    first[:, :rank0] = columns[:, :rank0]
    other = first[:, :12] @ rng.normal(size=(12, 12)) * 0.3 + rng.normal(size=(40, 12))
    second = other[:, np.arange(12) % rank1]
    settings = {"iterations": iterations, "tolerance": 0.0}
    short = mar.fit_pair(first, second, **settings)
    long = mar.fit_by_als([first, second], order=1, ridge_a=0.0, ridge_b=0.0, **settings)
    expected = second @ long.coefficients
    assert short is not None
    np.testing.assert_allclose(second @ short.coefficients, expected, atol=1e-7 * np.abs(expected).max())


def test_one_pair_whose_columns_have_nothing_in_common_is_left_to_als():
    first, second = np.zeros((4, 2)), np.zeros((4, 2))
    first[0, 0] = second[1, 1] = 1.0
    assert mar.fit_pair(first, second) is None
    assert np.all(np.isfinite(mar.fit([first, second]).coefficients))


def test_a_series_that_follows_the_model_is_forecast(rng):
    a, b = rng.normal(size=(4, 4)) / 2, rng.normal(size=(6, 6)) / 2
    series = [rng.normal(size=(4, 6))]
    for _ in range(12):
        series.append(a @ series[-1] @ b.T)
    scale = [np.linalg.norm(x) for x in series]
    series = [x / scale[0] for x in series]
    forecast, found = fitted(series[:-1], iterations=3000, tolerance=1e-12)
    assert np.linalg.norm(forecast - series[-1]) < 1e-3 * np.linalg.norm(series[-1])
    assert found.iterations > 1


def test_fewer_matrices_than_a_pair_forecast_the_newest(rng):
    only = rng.normal(size=(3, 5))
    np.testing.assert_array_equal(mar.forecast([only]), only)


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_a_forecast_of_many_parameters_is_that_of_the_fit_to_the_matrices_as_they_are(library, rng):
    model = rng.normal(size=2000)
    first = model + 0.01 * rng.normal(size=(6, 2000))
    second = first + 0.003 * rng.normal(size=(6, 2000))
    found = mar.forecast([library(first), library(second)])
    expected = second.T @ mar.fit([first.T, second.T]).coefficients
    assert isinstance(found, type(library(first)))
    np.testing.assert_allclose(np.asarray(found), expected.T, rtol=1e-9, atol=1e-9)


def test_coordinates_reproduce_inner_products_of_columns_of_very_different_length(rng):
    columns = rng.normal(size=(30, 8)) * 10.0 ** np.arange(-4, 4)
    columns[:, 5] = columns[:, 2]
    gram = columns.T @ columns
    basis = mar.coordinates(gram)
    lengths = np.sqrt(np.diag(gram))
    np.testing.assert_allclose(
        (basis.T @ basis) / np.outer(lengths, lengths), gram / np.outer(lengths, lengths), atol=1e-13
    )
    assert basis.shape[0] == 7


@pytest.mark.parametrize("failures", [0, 1, 2])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7)])
def test_a_decomposition_that_lapack_gives_up_on_is_found_another_way(rng, monkeypatch, failures, shape):
    matrix, left = rng.normal(size=shape), failures
    svd = np.linalg.svd

    def fails_at_first(a, full_matrices=True):
        nonlocal left
        left -= 1
        if left >= 0:
            raise np.linalg.LinAlgError("SVD did not converge")
        return svd(a, full_matrices=full_matrices)

    monkeypatch.setattr(np.linalg, "svd", fails_at_first)
    u, s, vt = mar.singular_vectors(matrix)
    assert u.shape == (shape[0], 4)
    assert vt.shape == (4, shape[1])
    np.testing.assert_allclose((u * s) @ vt, matrix, atol=1e-12)
    np.testing.assert_allclose(u.T @ u, np.eye(4), atol=1e-12)


def test_products_summed_in_float32_show_no_more_directions_than_there_are(rng):
    vectors = rng.normal(size=(12, 3)).astype(np.float32)
    gram = (vectors @ vectors.T).astype(np.float64)
    assert mar.coordinates(gram, float(np.finfo(np.float32).eps)).shape == (3, 12)
