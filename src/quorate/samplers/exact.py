"""Independent draws from Gaussian subposteriors, for simulation and as a yardstick."""

from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError, SingularCovarianceError, require
from quorate.models.gaussian import ROWS, GaussianSubposteriors
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers.base import Base
from quorate.samplers.protocol import Determinism, State


@dataclass(frozen=True)
class ExactSampler:
    """Draws of `GaussianSubposteriors`, whose shards have one subposterior each.

    The draws are those of `GaussianSubposteriors.draws`, summed in a fixed order instead of by
    BLAS, whose last bits depend on how many draws are asked for.
    """

    thin: int = 1

    name = "exact"
    determinism: Determinism = "exact"

    def __post_init__(self) -> None:
        require(self.thin >= 1, "thin", self.thin, "use 1 to keep every draw, or more")

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        gaussians = target.model
        if not isinstance(gaussians, GaussianSubposteriors):
            way_out = "it draws from quorate.GaussianSubposteriors alone: use 'auto'"
            raise BadInputError("sampler", self.name, way_out)
        which = target.shard[ROWS]
        n_shards = f"{gaussians.n_shards} subposteriors: use as many workers"
        require(len(which) == 1, "rows of a shard", len(which), f"there are {n_shards}")
        lower = fixed_order_cholesky(gaussians.covs[which[0]])
        mean = np.array(gaussians.means[which[0]], dtype=np.float64)
        return {"index": np.array(0), "mean": mean, "lower": lower}

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        index, dim, lane = int(state["index"]), target.dim, (stream.shard, stream.chain)
        normals = stream.streams.normals([lane], index * self.thin, n * self.thin, dim)[0]
        base = Base(state["mean"], state["lower"])
        draws = np.array([base.point(z) for z in normals[:: self.thin]]).reshape(n, dim)
        return draws, {**state, "index": np.array(index + n)}


def fixed_order_cholesky(cov: Array) -> Array:
    """Lower factor of a covariance (d, d), by operations whose order no BLAS decides."""
    rest, lower = np.array(cov, dtype=np.float64), np.zeros_like(cov, dtype=np.float64)
    for j in range(len(rest)):
        if not rest[j, j] > 0:
            raise SingularCovarianceError
        lower[j:, j] = rest[j:, j] / np.sqrt(rest[j, j])
        rest[j:, j:] -= lower[j:, j, None] * lower[None, j:, j]
    return lower
