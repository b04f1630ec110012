"""Solves with stacks of small symmetric positive definite matrices.

Weights need thousands of inverses of matrices as small as 5 x 5. One LAPACK call per matrix would
be mostly overhead, so elimination here runs across the stack: one operation on all matrices at a
time, five times faster at d = 5. It is Cholesky without square roots (LDLᵀ), so it needs no
pivoting. Large matrices, or few, go to LAPACK's Cholesky.
"""

from math import prod

import numpy as np

from quorate._types import Array
from quorate.errors import SingularCovarianceError, require

_CHUNK = 2048  # matrices eliminated at a time, so that they stay in cache
_LARGE = 16  # dimension from which LAPACK is faster
_FEW = 32  # number of matrices up to which LAPACK is faster


def spd_inverse(matrices: Array) -> Array:
    """Inverses of a stack of matrices (..., d, d), for sums of precisions."""
    return _solve(matrices, np.broadcast_to(np.eye(matrices.shape[-1]), matrices.shape), True)


def scaled_inverse(covs: Array) -> Array:
    """Inverses of covariances (..., d, d), computed from correlations: whatever the units."""
    sds = np.sqrt(np.diagonal(covs, axis1=-2, axis2=-1))
    products = sds[..., :, None] * sds[..., None, :]
    return np.asarray(spd_inverse(covs / products) / products)


def spd_solve(matrices: Array, columns: Array) -> Array:
    """Solve `matrices` (..., d, d) against `columns` (..., d, n)."""
    return _solve(matrices, columns, False)


def check_ridge(name: str, ridge: float) -> None:
    """Refuse a ridge that is negative or not finite; `name` is the option's name."""
    require(0 <= ridge < np.inf, f"{name} must be a finite number, 0 or more, not {ridge!r}.")


def add_ridge(matrices: Array, ridge: float) -> Array:
    """`matrices` with `ridge` added along their diagonals."""
    return np.asarray(matrices + ridge * np.eye(matrices.shape[-1]))


def _solve(matrices: Array, columns: Array, are_identities: bool) -> Array:
    dim, n_columns = columns.shape[-2:]
    stack = matrices.reshape(-1, dim, dim)
    if dim >= _LARGE or len(stack) <= _FEW:
        return _solve_by_cholesky(matrices, columns)
    stacked_columns = columns.reshape(-1, dim, n_columns)
    solved = np.empty(stacked_columns.shape)
    # One large place to work in for all steps of all chunks. Many arrays of middling size would be
    # given back to the system each time, and come back page by page: a tenth of a simulated run.
    shape = 2, dim, dim + n_columns
    work = np.empty(prod(shape) * _CHUNK)
    for start in range(0, len(stack), _CHUNK):
        part = slice(start, start + _CHUNK)
        n = len(stack[part])
        both, products = work[: prod(shape) * n].reshape(*shape, n)
        both[:, :dim] = np.moveaxis(stack[part], 0, -1)
        both[:, dim:] = np.moveaxis(stacked_columns[part], 0, -1)
        _eliminate(both, products, are_identities)
        solved[part] = np.moveaxis(both[:, dim:], -1, 0)
    return solved.reshape(columns.shape)


def _eliminate(both: Array, products: Array, are_identities: bool) -> None:
    """Put solutions in the place of the columns; `both` are matrices and columns side by side."""
    dim = len(both)
    left, right = both[:, :dim], both[:, dim:]
    tiny = np.finfo(float).eps * np.einsum("iim->im", left).max(axis=0)
    for j in range(dim):
        if not (left[j, j] > tiny).all():
            raise SingularCovarianceError
        factors = left[j + 1 :, j] / left[j, j]
        row = both[j, j + 1 : dim + j + 1 if are_identities else None]  # beyond it is 0
        below = np.s_[j + 1 :, j + 1 : j + 1 + len(row)]
        both[below] -= np.multiply(factors[:, None], row, out=products[below])
    for j in reversed(range(dim)):
        known = np.multiply(left[j, j + 1 :, None], right[j + 1 :], out=products[j + 1 :, dim:])
        right[j] -= known.sum(axis=0)
        right[j] /= left[j, j]


def _solve_by_cholesky(matrices: Array, columns: Array) -> Array:
    try:
        lower = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        raise SingularCovarianceError from None
    half = np.linalg.solve(lower, columns)
    return np.asarray(np.linalg.solve(np.swapaxes(lower, -1, -2), half))
