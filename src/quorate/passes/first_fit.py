"""Where the passes of a run begin: the product of Gaussian fits.

A new run multiplies the fits that surveys of its shards found. A run with rows added to an earlier
one multiplies the fit of the earlier posterior with those of the new shards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from quorate._types import Array
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit

Surveys = Mapping[int, Mapping[str, Array]]


@dataclass(frozen=True, eq=False)
class Before:
    """The Gaussian fit of the posterior of the first `n_shards` shards, of an earlier run."""

    mean: Array  # (d,)
    lower: Array  # (d, d), lower triangular
    n_shards: int

    def fits(self, surveys: Surveys) -> list[tuple[Array, Array]]:
        """The fit, and those of the shards that came after it."""
        new = {shard: of for shard, of in surveys.items() if shard >= self.n_shards}
        return [(self.mean, self.lower), *fits_of(new)]


def fits_of(surveys: Surveys) -> list[tuple[Array, Array]]:
    """A mode and a Cholesky factor for each shard that has a fit, in the order of shards."""
    found = [surveys[shard] for shard in sorted(surveys)]
    return [(of["mode"], of["lower"]) for of in found if "lower" in of]


def product_of(fits: Sequence[tuple[Array, Array]], n_shards: int) -> Base:
    """The product of Gaussian fits of shards, each a mode and a Cholesky factor.

    Where some shards have no fit, the others stand for all.
    """
    total, pulls = np.zeros((len(fits[0][0]),) * 2), np.zeros(len(fits[0][0]))
    for mode, lower in fits:
        half = solve_triangular(lower, np.eye(len(mode)), lower=True)
        precision = half.T @ half
        total += precision
        pulls += precision @ mode
    mean = np.asarray(np.linalg.solve(total, pulls))
    cov = np.linalg.inv(total) * (len(fits) / n_shards)
    return Base.around(LaplaceFit(mean, np.linalg.cholesky(cov)))
