"""Solves with stacks of small symmetric positive definite matrices.

Weights need thousands of inverses of matrices as small as 5 x 5. One LAPACK call per matrix would
be mostly overhead, so elimination here runs across the stack: one operation on all matrices at a
time, five times faster at d = 5. It is Cholesky without square roots (LDLᵀ), so it needs no
pivoting. Large matrices, or few, go to LAPACK's Cholesky.
"""

import numpy as np

from quorate._types import Array
from quorate.errors import SingularCovarianceError, require

_CHUNK = 2048  # matrices eliminated at a time, so that they stay in cache
_LARGE = 16  # dimension from which LAPACK is faster
_FEW = 32  # number of matrices up to which LAPACK is faster


def spd_inverse(matrices: Array) -> Array:
    """Inverses of a stack of matrices (..., d, d), for sums of precisions."""
    stack = matrices.reshape(-1, *matrices.shape[-2:])
    eyes = np.broadcast_to(np.eye(matrices.shape[-1]), stack.shape)
    return spd_solve(stack, eyes).reshape(matrices.shape)


def spd_solve(matrices: Array, columns: Array) -> Array:
    """Solve `matrices` (..., d, d) against `columns` (..., d, n)."""
    dim = matrices.shape[-1]
    stack = matrices.reshape(-1, dim, dim)
    if dim >= _LARGE or len(stack) <= _FEW:
        return _solve_by_cholesky(matrices, columns)
    stacked_columns = columns.reshape(-1, dim, columns.shape[-1])
    solved = np.empty(stacked_columns.shape)
    for start in range(0, len(stack), _CHUNK):
        part = slice(start, start + _CHUNK)
        solved[part] = _eliminate(stack[part], stacked_columns[part])
    return solved.reshape(columns.shape)


def check_ridge(name: str, ridge: float) -> None:
    """Refuse a ridge that is negative or not finite; `name` is the option's name."""
    require(0 <= ridge < np.inf, f"{name} must be a finite number, 0 or more, not {ridge!r}.")


def add_ridge(matrices: Array, ridge: float) -> Array:
    """`matrices` with `ridge` added along their diagonals."""
    return np.asarray(matrices + ridge * np.eye(matrices.shape[-1]))


def _eliminate(stack: Array, columns: Array) -> Array:
    left = np.array(np.moveaxis(stack, 0, -1), order="C")
    right = np.array(np.moveaxis(columns, 0, -1), order="C")
    tiny = np.finfo(float).eps * np.einsum("iim->im", left).max(axis=0)
    for j in range(len(left)):
        if not (left[j, j] > tiny).all():
            raise SingularCovarianceError
        factors = left[j + 1 :, j] / left[j, j]
        left[j + 1 :, j + 1 :] -= factors[:, None] * left[j, j + 1 :]
        right[j + 1 :] -= factors[:, None] * right[j]
    for j in reversed(range(len(left))):
        right[j] -= (left[j, j + 1 :, None] * right[j + 1 :]).sum(axis=0)
        right[j] /= left[j, j]
    return np.moveaxis(right, -1, 0)


def _solve_by_cholesky(matrices: Array, columns: Array) -> Array:
    try:
        lower = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        raise SingularCovarianceError from None
    half = np.linalg.solve(lower, columns)
    return np.asarray(np.linalg.solve(np.swapaxes(lower, -1, -2), half))
