"""Independent draws from Gaussian subposteriors, for simulation and as a yardstick."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quorate._types import Array
from quorate.errors import SingularCovarianceError, require
from quorate.sampler import Determinism, State
from quorate.samplers.base import Base
from quorate.streams import ChainStream
from quorate.subposterior import GaussianSubposteriors
from quorate.target import Target


@dataclass(frozen=True)
class ExactSampler:
    """Draws of `subposteriors`, the shard being that of the stream; the target is not asked.

    The draws are those of `GaussianSubposteriors.draws`, summed in a fixed order instead of by
    BLAS, whose last bits depend on how many draws are asked for.
    """

    subposteriors: GaussianSubposteriors
    thin: int = 1

    name = "exact"
    determinism: Determinism = "exact"

    def __post_init__(self) -> None:
        require(self.thin >= 1, "thin", self.thin, "use 1 to keep every draw, or more")

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        return {"index": np.array(0)}

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        index, dim, lane = int(state["index"]), self.subposteriors.dim, (stream.shard, stream.chain)
        normals = stream.streams.normals([lane], index * self.thin, n * self.thin, dim)[0]
        base = self._bases[stream.shard]
        draws = np.array([base.point(z) for z in normals[:: self.thin]]).reshape(n, dim)
        return draws, {"index": np.array(index + n)}

    @cached_property
    def _bases(self) -> list[Base]:
        pairs = zip(self.subposteriors.means, self.subposteriors.covs, strict=True)
        return [Base(mean, fixed_order_cholesky(cov)) for mean, cov in pairs]


def fixed_order_cholesky(cov: Array) -> Array:
    """Lower factor of a covariance (d, d), by operations whose order no BLAS decides."""
    rest, lower = np.array(cov, dtype=np.float64), np.zeros_like(cov, dtype=np.float64)
    for j in range(len(rest)):
        if not rest[j, j] > 0:
            raise SingularCovarianceError
        lower[j:, j] = rest[j:, j] / np.sqrt(rest[j, j])
        rest[j:, j:] -= lower[j:, j, None] * lower[None, j:, j]
    return lower
