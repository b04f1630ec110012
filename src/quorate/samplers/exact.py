"""Independent draws from Gaussian subposteriors, for simulations and as a benchmark."""

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
    """Independent draws of `GaussianSubposteriors`, whose shards have one subposterior each.

    The draws are those of `GaussianSubposteriors.draws`, but summed in a fixed order. BLAS would
    make their last bits depend on the number of draws.
    """

    thin: int = 1

    name = "exact"
    determinism: Determinism = "exact"

    def __post_init__(self) -> None:
        require(self.thin >= 1, f"thin must be at least 1, not {self.thin!r}.")

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        gaussians = target.model
        if not isinstance(gaussians, GaussianSubposteriors):
            kind = type(gaussians).__name__
            raise BadInputError(
                f"sampler='exact' draws only from quorate.GaussianSubposteriors, not from {kind}. "
                "Use 'auto'."
            )
        which = target.shard[ROWS]
        require(
            len(which) == 1,
            f"A shard has {len(which)} of the {gaussians.n_shards} subposteriors, but each needs "
            f"exactly one. Use {gaussians.n_shards} workers.",
        )
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
    """Cholesky factor of a covariance (d, d), computed in a fixed order, without BLAS."""
    rest, lower = np.array(cov, dtype=np.float64), np.zeros_like(cov, dtype=np.float64)
    for j in range(len(rest)):
        if not rest[j, j] > 0:
            raise SingularCovarianceError
        lower[j:, j] = rest[j:, j] / np.sqrt(rest[j, j])
        rest[j:, j:] -= lower[j:, j, None] * lower[None, j:, j]
    return lower
