"""What surveys say of how the passes of a run begin: the product of Gaussian fits, and how large.

A new run multiplies the fits that surveys of its shards found. A run with rows added to an earlier
one multiplies the fit of the earlier posterior with those of the new shards.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from quorate._types import Array
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit

Surveys = Mapping[int, Mapping[str, Array]]
ON_A_CORE = 64  # points that fill a core: the chains of an ensemble, at most
_BESIDE_CORES = 2048  # points for a device, if cores answer for some of the shards


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


def points_at_once(found: Collection[Mapping[str, Array]]) -> int:
    """How many points fill what surveyed the shards: devices say so, cores do not.

    The least of devices counts. Beside cores, a device gets no more than these can do in a while.
    """
    measured = [int(of["at_once"]) for of in found if "at_once" in of]
    if not measured:
        return ON_A_CORE
    return min(measured) if len(measured) == len(found) else min(*measured, _BESIDE_CORES)
