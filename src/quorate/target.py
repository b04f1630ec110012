"""The subposterior of eq. (2) as samplers see it: a log density on unconstrained points."""

from dataclasses import dataclass

from quorate._types import Array
from quorate.model import Model, Shard


@dataclass(frozen=True)
class Target:
    """log p(x)/K + log-likelihood of one shard, up to a constant."""

    model: Model
    shard: Shard
    n_shards: int

    @property
    def dim(self) -> int:
        """d."""
        return self.model.dim

    def log_density(self, x: Array) -> float:
        """The prior is that of the unconstrained point, and it is what 1/K is the power of."""
        return self.model.log_prior(x) / self.n_shards + self.model.log_likelihood(x, self.shard)
