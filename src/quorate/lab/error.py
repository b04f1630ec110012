"""How far draws are from the truth: the error of eq. (3)."""

import numpy as np

from quorate._types import Array


def relative_error(second_moments: Array, expected: Array) -> Array:
    """Error of eq. (3), averaged over the test functions f_ij(θ) = θ[i]θ[j] of §VI.

    A function whose expectation is 0 has no relative error, and is left out.

    Parameters
    ----------
    second_moments
        Averages of θθᵀ over global draws, shape (..., d, d).
    expected
        E[θθᵀ] under the true posterior, shape (d, d).

    Returns
    -------
    Array
        Shape (...).
    """
    has_one = expected != 0
    errors = np.abs(second_moments[..., has_one] / expected[has_one] - 1)
    return np.asarray(errors.mean(axis=-1))


def second_moment(draws: Array) -> Array:
    """Average of θθᵀ over `draws` (..., n, d): shape (..., d, d)."""
    return np.asarray(np.swapaxes(draws, -1, -2) @ draws / draws.shape[-2])
