"""Fits without groups, where searches for modes start."""

from collections.abc import Callable, Iterable

import numpy as np

from quorate._types import Array
from quorate.models.groups.regressions.chunks import Chunk
from quorate.models.groups.regressions.points import Points, RoughFit, pooled

_STEPS = 6
_LONGEST_STEP = 3.0  # in any coefficient
_LEAST_INFORMATION = 1e-2


def pooled_by_newton(
    chunks_at: Callable[[Points], Iterable[Chunk]], start: Array, p: int, q: int
) -> RoughFit:
    """A fit of p coefficients without groups, by a few steps of Newton's method.

    Parameters
    ----------
    chunks_at
        The rows of all groups at points, where each group has q parameters, which are 0.
    start
        All coordinates, (d,).
    """
    covs, scales = (np.eye(q)[None],), np.zeros(1)
    beta, information = start[:p], np.eye(p)
    for _ in range(_STEPS):
        slope, information = np.zeros(p), _LEAST_INFORMATION * np.eye(p)
        for chunk in chunks_at(Points(beta[None], scales, covs)):
            nothing = np.zeros((q, 1, len(chunk.bundle.which)))
            slopes, bends = chunk.rows.slopes_and_curvatures(nothing)
            columns = chunk.bundle.columns
            slope += np.einsum("sg,spg->p", slopes[:, 0], columns)
            information += np.einsum("spg,sg,srg->pr", columns, bends[:, 0], columns, optimize=True)
        step = np.linalg.solve(information, slope)
        beta = beta + step * min(1.0, _LONGEST_STEP / np.abs(step).max(initial=1e-300))
    return pooled(beta, information, start)
