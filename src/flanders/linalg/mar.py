r"""Fits the matrix autoregressive model MAR(w): :math:`X_t = \sum_{i=1}^{w} A_i X_{t-i} B_i^T + E_t`.

With this model, the filter `Flanders` forecasts what the clients send in a round. The letters are those of the
FLANDERS paper. X_t holds the clients' models of round t. It is d x h, with a column for each of h clients and a row
for each of d parameters. The sum is the forecast of X_t from the w rounds before it, and E_t is the error of the
forecast. The coefficients A_i are d x d matrices, and the coefficients B_i are h x h matrices.

The coefficients are found by alternating least squares (Appendix C of the paper). With fixed B_i, a least-squares
problem gives all A_i. With fixed A_i, another one gives all B_i. The two problems are solved in turn.

The matrices A_i are too large for memory, and are never computed. Let the columns of Q be an orthonormal basis of
the span of all columns of all X_t. Then :math:`A_i = Q \tilde A_i Q^T` with a small matrix :math:`\tilde A_i`,
since the solutions have the smallest norm or a ridge penalty. Therefore the model can be fitted to the coordinates
:math:`Q^T X_t`, with the same forecast. The coordinates have at most as many rows as all X_t together have columns.
The function `coordinates` computes them from inner products.

References
----------
Gabrielli et al., "Protecting federated learning from extreme model poisoning attacks via
multidimensional time series anomaly detection". Chen, Xiao and Yang, "Autoregressive models for
matrix-valued time series", Journal of Econometrics 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from flanders.arrays import Array, FloatMatrix, FloatVector, copied, like, rounding_of, to_numpy
from flanders.linalg.products import inner_products

RANK_TOLERANCE = 1e-8
"""Singular values below this share of the largest one count as zero. The limit is well above rounding errors, and
so low that it does not change a forecast."""
TOGETHER = 10
"""For how many steps `fit_pair` prepares the systems of equations at once. Many fits need few steps, and would not
use the rest."""


@dataclass(frozen=True)
class Fit:
    r"""A fitted model and its forecast.

    The model is fitted to matrices X_0 .. X_t. The columns of the forecast are weighted sums of the columns of all
    these matrices except the first w: :math:`\hat X_{t+1} = [X_{w} \dots X_{t}]\, M`.
    """

    coefficients: FloatMatrix
    """M. It has h columns, and h rows for each of the matrices X_w .. X_t."""
    iterations: int
    """How many iterations were made."""
    converged: bool
    """Whether the iterations stopped because the relative change was at most the tolerance."""
    a: tuple[FloatMatrix, ...] = ()
    """A_1 .. A_w; empty if they were not computed."""
    b: tuple[FloatMatrix, ...] = ()
    """B_1 .. B_w; empty if they were not computed."""


def fit(
    matrices: Sequence[FloatMatrix],
    *,
    order: int = 1,
    iterations: int = 100,
    tolerance: float = 1e-8,
    ridge_a: float = 0.0,
    ridge_b: float = 0.0,
) -> Fit:
    """Fit MAR(order) to matrices with a column per client, oldest first, and forecast the next matrix.

    At least `order + 1` matrices are needed. All B_i start as identity matrices. The iterations end when the
    relative change of all B_i is at most `tolerance`, and at the latest after `iterations`. If the columns of all
    matrices together are linearly independent, the first A_i already fit exactly, and one iteration is enough.
    `ridge_a` and `ridge_b` are the factors of the ridge penalties on the A_i and the B_i.
    """
    if len(matrices) == 2 and order == 1 and ridge_a == ridge_b == 0:
        pair_fit = fit_pair(matrices[0], matrices[1], iterations=iterations, tolerance=tolerance)
        if pair_fit is not None:
            return pair_fit
    return fit_by_als(
        matrices, order=order, iterations=iterations, tolerance=tolerance, ridge_a=ridge_a, ridge_b=ridge_b
    )


def fit_by_als(
    matrices: Sequence[FloatMatrix],
    *,
    order: int,
    iterations: int,
    tolerance: float,
    ridge_a: float,
    ridge_b: float,
) -> Fit:
    """Fit MAR(order) by alternating least squares, without the shortcut of `fit_pair`; see `fit`."""
    h = matrices[0].shape[1]
    targets = list(matrices[order:])
    lagged = [[matrices[t - i] for i in range(1, order + 1)] for t in range(order, len(matrices))]
    newest = [matrices[len(matrices) - i] for i in range(1, order + 1)]
    side, stacked = np.hstack(targets), np.vstack(targets)
    b = [np.eye(h)] * order
    step, converged = 0, False
    solve_a = np.empty((0, 0))
    a: list[FloatMatrix] = []
    while step < iterations and not converged:
        step += 1
        solve_a = pseudo_inverse(np.hstack([_below(lags, b) for lags in lagged]), ridge_a)
        a = np.split(side @ solve_a, order, axis=1)
        moved = np.vstack([np.hstack([a[i] @ x for i, x in enumerate(lags)]) for lags in lagged])
        transposed = pseudo_inverse(moved, ridge_b) @ stacked
        new = [block.T for block in np.split(transposed, order, axis=0)]
        change = sum(float(np.linalg.norm(n - o)) for n, o in zip(new, b, strict=True))
        size = sum(float(np.linalg.norm(n)) for n in new)
        converged = change <= tolerance * size
        b = new
    return Fit(solve_a @ _below(newest, b), step, converged, tuple(a), tuple(b))


def fit_pair(
    first: FloatMatrix, second: FloatMatrix, *, iterations: int = 100, tolerance: float = 1e-8
) -> Fit | None:
    r"""Fit MAR(1) to two matrices X_0 and X_1, without penalties. It gives the result of `fit_by_als`, but faster.

    Take the singular value decompositions :math:`X_0 = U_0 \Sigma_0 V_0^T` and :math:`X_1 = U_1 \Sigma_1 V_1^T`.
    Then the iteration depends only on :math:`G = V_0^T B^T`. With :math:`^+` for the pseudo-inverse, one step turns
    G into :math:`(X_1 (\Sigma_0 G)^+ \Sigma_0)^+ X_1`. After the first step, G has the rank r of :math:`V_1^T V_0`.
    From then on it has the form :math:`[I; E]\, C\, [I \; F^T]\, V_1^T`, where C is r x r, and [I; E] is I on top
    of E. Let the index a stand for the r largest singular values of each matrix, and b for the others. Then a step
    replaces C, E and F by

    .. math:: E' = \Sigma_{0b}^2 E\, \Sigma_{0a}^{-2}, \quad F' = \Sigma_{1b}^2 F\, \Sigma_{1a}^{-2}, \quad
              C' = (I + E'^T E')^{-1}(I + E'^T E)\, C\, (I + F^T F)(I + F'^T F)^{-1}.

    Here :math:`(I + E'^T E')^{-1}(I + E'^T E) = I + E'^T (I + E' E'^T)^{-1} (E - E')`, and there is a similar
    identity for F. The number of operations in a step is about r^2 times the number of singular values with the
    index b. If r is 0, or C is almost singular, the result is None, and `fit_by_als` is needed.

    If the columns of each matrix are linearly independent, the first A fits exactly, and B stays the identity
    matrix. The forecast is then :math:`X_1 X_0^+ X_1`.
    """
    u0, s0, v0 = _truncated(first)
    if s0.size == first.shape[1] and _has_independent_columns(second):
        return Fit((v0 / s0) @ (u0.T @ second), min(iterations, 2), iterations > 1)
    _, s1, v1 = _truncated(second)
    cross = v1.T @ v0
    r = int(np.count_nonzero(np.linalg.svd(cross, compute_uv=False) > RANK_TOLERANCE))
    if r == 0:
        return None
    inner = u0.T @ second @ v0
    start = pseudo_inverse(s1[:, None] * cross) * s1  # after the first step, G is start @ v1.T
    if iterations == 1:
        return Fit((v0 / s0) @ inner @ start @ v1.T, 1, False)
    c = start[:r, :r]
    if np.linalg.cond(c) > 1 / RANK_TOLERANCE:
        return None
    sides = np.linalg.solve(c.T, start[r:, :r].T).T, np.linalg.solve(c, start[:r, r:]).T
    e, f = (np.asarray(side, dtype=np.float64) for side in sides)
    shrink_e, shrink_f = (np.asarray((s[r:, None] / s[None, :r]) ** 2, dtype=np.float64) for s in (s0, s1))
    step, converged, before = 1, False, (c, e, f)
    while step < iterations and not converged:
        # E and F do not depend on C. So those of a few steps are computed together, and then C step by step.
        count = min(TOGETHER, iterations - step)
        es, fs = _shrunk(e, shrink_e, count), _shrunk(f, shrink_f, count)
        left = np.eye(len(e)) + es[1:] @ es[1:].transpose(0, 2, 1)
        right = np.linalg.solve(np.eye(len(f)) + fs[:-1] @ fs[1:].transpose(0, 2, 1), fs[:-1])
        e_steps, f_steps = es[:-1] - es[1:], fs[:-1] - fs[1:]
        for k in range(count):
            step += 1
            before = (c, e, f)
            e, f = es[k + 1], fs[k + 1]
            c = c + e.T @ np.linalg.solve(left[k], e_steps[k] @ c)
            c = c + (c @ f_steps[k].T) @ right[k]
            limit, moved = tolerance * _size(c), _size(e_steps[k]) + _size(f_steps[k])
            converged = moved <= limit and moved + _size(c - before[0]) <= limit
            if converged:
                break
    last, final = (np.vstack([c, e @ c]) @ np.hstack([np.eye(r), f.T]) for c, e, f in (before, (c, e, f)))
    return Fit(v1 @ pseudo_inverse(s0[:, None] * last) @ inner @ final @ v1.T, step, converged)


def _shrunk(start: FloatMatrix, factors: FloatMatrix, count: int) -> FloatMatrix:
    """Return `start` and what is left of it after each of `count` steps. A step multiplies it by the factors."""
    rows = [start]
    for _ in range(count):
        rows.append(factors * rows[-1])
    return np.stack(rows)


def _size(matrix: FloatMatrix) -> float:
    """Return the square root of the sum of squares, four times as fast as NumPy's function for many norms."""
    flat = matrix.ravel()
    return math.sqrt(float(flat @ flat))


def _truncated(matrix: FloatMatrix) -> tuple[FloatMatrix, FloatVector, FloatMatrix]:
    """Return the singular value decomposition of a matrix, without the singular values that count as zero."""
    u, s, vt = singular_vectors(matrix)
    real = s > RANK_TOLERANCE * s[0]
    return u[:, real], s[real], vt[real].T


def _has_independent_columns(matrix: FloatMatrix) -> bool:
    """Whether all columns of a matrix are linearly independent: none of as many singular values counts as zero."""
    s = np.linalg.svd(matrix, compute_uv=False)
    return s.size == matrix.shape[1] and bool(s[-1] > RANK_TOLERANCE * s[0])


def forecast(matrices: Sequence[Array]) -> Array:
    """Forecast the models of the next round from those of earlier rounds, oldest first, with MAR(1).

    Each matrix is `(h, d)`, with a row per client. The matrices may be of any array library, and the forecast is of
    the same library. If there is only one matrix, it is the forecast.

    Examples
    --------
    >>> steps = [np.array([[1.0, 0.0], [0.0, 1.0]]) * 2.0**t for t in range(3)]
    >>> forecast(steps)
    array([[8., 0.],
           [0., 8.]])
    """
    xp, newest = array_namespace(*matrices), matrices[-1]
    if len(matrices) == 1:
        return copied(newest)
    h, d = newest.shape
    if d <= h * len(matrices):
        columns = [np.asarray(to_numpy(m), dtype=np.float64).T for m in matrices]
    else:
        # For precision, one model is subtracted from all rows before their inner products are computed. A row of
        # zeros is added first, and becomes minus this model. Then its coordinates are subtracted from those of the
        # other rows, which undoes the first subtraction.
        gram = inner_products([*matrices, xp.zeros_like(newest[:1, :])], newest[0, :])
        basis = coordinates(gram, rounding_of(newest))
        columns = np.split(basis[:, :-1] - basis[:, -1:], len(matrices), axis=1)
    return like(fit(columns).coefficients.T, newest) @ xp.concat(list(matrices[1:]))


def coordinates(gram: FloatMatrix, rounding: float = float(np.finfo(np.float64).eps)) -> FloatMatrix:
    """Return a matrix R with `R.T @ R == gram`: the coordinates of vectors in an orthonormal basis of their span.

    `gram` has the inner products of the vectors, and R has a column for each vector. A direction of the span is
    left out if the parts of all vectors along it are as small as rounding errors. For this test the vectors are
    scaled to unit length, so that short vectors count as much as long ones. In float64, parts below about 1e-7 of
    the length of a vector count as rounding errors. `rounding` is the relative rounding error of `gram`.
    """
    lengths = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    values, vectors = np.linalg.eigh(gram * scale[:, None] * scale[None, :])
    real = values > values.size * rounding * max(float(values[-1]), 0.0)
    if not real.any():
        return np.zeros((1, lengths.size))
    return np.asarray(np.sqrt(values[real])[:, None] * vectors[:, real].T * lengths[None, :])


def pseudo_inverse(matrix: FloatMatrix, ridge: float = 0.0) -> FloatMatrix:
    """Return the matrix P such that `A = Y @ P` is the least-squares solution of `A @ matrix = Y`, for any Y.

    If the ridge is positive, `P = matrix.T (matrix matrix.T + ridge I)^-1`. If it is 0, P is the pseudo-inverse,
    and A is the solution with the smallest norm. Then `RANK_TOLERANCE` says which singular values count as zero.
    """
    u, s, vt = singular_vectors(matrix)
    if ridge > 0:
        inverse = s / (s**2 + ridge)
    else:
        inverse = np.divide(1.0, s, out=np.zeros_like(s), where=s > RANK_TOLERANCE * s[0])
    return np.asarray((vt.T * inverse) @ u.T)


def singular_vectors(matrix: FloatMatrix) -> tuple[FloatMatrix, FloatVector, FloatMatrix]:
    """Return the reduced singular value decomposition.

    LAPACK's divide and conquer algorithm fails on a few harmless matrices of low rank. Then the transpose is
    decomposed. If this fails, too, the triangular factor of a QR decomposition is decomposed.
    """
    try:
        u, s, vt = np.linalg.svd(matrix, full_matrices=False)
        return u, s, vt
    except np.linalg.LinAlgError:
        pass
    try:
        v, s, ut = np.linalg.svd(matrix.T, full_matrices=False)
        return ut.T, s, v.T
    except np.linalg.LinAlgError:
        q, r = np.linalg.qr(matrix)
        u, s, vt = np.linalg.svd(r, full_matrices=False)
        return q @ u, s, vt


def _below(lags: Sequence[FloatMatrix], b: Sequence[FloatMatrix]) -> FloatMatrix:
    """Multiply the matrix of each earlier round by the transpose of its B, and stack the products."""
    return np.vstack([x @ b_i.T for x, b_i in zip(lags, b, strict=True)])
