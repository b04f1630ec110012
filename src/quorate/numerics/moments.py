"""Running means and covariances of draws: eqs (7), (9) and (11).

Updates are Welford's and Chan's: sums of squares around a running mean, never a difference of large
sums. As in the paper, the covariance divides by the number of draws n, not by n - 1.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from quorate._types import Array
from quorate.numerics.linalg import add_ridge

_WIDE = 800  # sums side by side, from which on it is faster to add up draw by draw


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and scatter of the draws so far, for one sequence or a stack of them.

    Parameters
    ----------
    count
        Number of draws n.
    mean
        Shape (..., d).
    scatter
        Σ (θ - mean)(θ - mean)ᵀ, shape (..., d, d).
    """

    count: int
    mean: Array
    scatter: Array

    @classmethod
    def none(cls, *shape: int) -> "Moments":
        """Moments of no draws. `shape` is that of one draw of the stack, (..., d)."""
        return cls(0, np.zeros(shape), np.zeros((*shape, shape[-1])))

    @classmethod
    def of(cls, draws: Array) -> "Moments":
        """Moments of `draws`, shape (..., n, d)."""
        mean = draws.mean(axis=-2)
        centred = draws - mean[..., None, :]
        return cls(draws.shape[-2], mean, np.swapaxes(centred, -1, -2) @ centred)

    def merge(self, other: "Moments") -> "Moments":
        """Moments of both sets of draws together (Chan, Golub & LeVeque 1983)."""
        count = self.count + other.count
        if not count:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        between = gap[..., :, None] * gap[..., None, :] * (self.count * other.count / count)
        return Moments(count, mean, self.scatter + other.scatter + between)

    def covariance(self, ridge: float = 0.0) -> Array:
        """Ĉ = ridge·I + scatter / n: eqs (7b), (9b), (11b) with σ² = `ridge`."""
        return add_ridge(self.scatter / self.count, ridge)


def running_covariances(draws: Array, before: Moments | None = None) -> tuple[Array, Moments]:
    """Covariance after each draw, as if draws were merged one by one (Welford 1962).

    Parameters
    ----------
    draws
        Shape (..., n, d).
    before
        Moments of earlier draws, if there were any.

    Returns
    -------
    Array, Moments
        The covariance of all draws up to each one, earlier ones included, shape (..., n, d, d); and
        the moments of all of them.
    """
    before = before or Moments.none(*draws.shape[:-2], draws.shape[-1])
    counts = before.count + np.arange(1, draws.shape[-2] + 1)
    centred = draws - before.mean[..., None, :]
    sums = np.cumsum(centred, axis=-2)
    earlier_means = (sums - centred) / np.maximum(counts - 1, 1)[:, None]
    steps = (centred - earlier_means) * np.sqrt((counts - 1) / counts)[:, None]
    outer = steps[..., :, None] * steps[..., None, :]
    outer[..., 0, :, :] += before.scatter
    scatter = _running_sums(outer)
    mean = before.mean + sums[..., -1, :] / counts[-1]
    after = Moments(int(counts[-1]), mean, scatter[..., -1, :, :].copy())
    scatter /= counts[:, None, None]
    return scatter, after


def _running_sums(terms: Array) -> Array:
    """`terms`, (..., n, d, d), each replaced by the sum of all up to it.

    `np.cumsum` sums one sequence after the other, and each sum waits for the one before it. With
    many sequences it takes half the time or less to add all of them draw by draw, and the bits are
    the same.
    """
    by_draw = np.moveaxis(terms, -3, 0)
    if by_draw[0].size < _WIDE:
        return np.cumsum(terms, axis=-3, out=terms)
    for before, after in pairwise(by_draw):
        after += before
    return terms
