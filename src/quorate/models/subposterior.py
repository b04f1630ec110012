"""The subposterior of eq. (2) as samplers see it: a log density on unconstrained points."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from quorate._types import Array
from quorate.errors import BadInputError
from quorate.models.protocol import DifferentiableModel, Model, Shard

NONE = -1e300  # stands for a log density of -inf where numbers have to be finite


@dataclass(frozen=True)
class Target:
    """log p(x)/K + log-likelihood of one shard, up to a constant."""

    model: Model
    shard: Shard
    n_shards: float  # K, which divides the log prior

    @property
    def dim(self) -> int:
        """d."""
        return self.model.dim

    @property
    def has_gradient(self) -> bool:
        """Whether the model is a `quorate.models.protocol.DifferentiableModel`."""
        wanted = ("log_prior_and_gradient", "log_likelihood_and_gradient")
        return all(hasattr(self.model, name) for name in wanted)

    @property
    def n_rows(self) -> int | None:
        """Number of rows of the shard; None if it has no arrays."""
        return next((len(rows) for rows in self.shard.values()), None)

    def log_density(self, x: Array) -> float:
        """The log density at x. The prior of the unconstrained point is raised to the power 1/K."""
        return self.model.log_prior(x) / self.n_shards + self.model.log_likelihood(x, self.shard)

    def log_density_and_gradient(self, x: Array) -> tuple[float, Array]:
        """The log density and its gradient, shape (d,), for models with gradients."""
        model = cast(DifferentiableModel, self.model)
        prior, prior_gradient = model.log_prior_and_gradient(x)
        likelihood, gradient = model.log_likelihood_and_gradient(x, self.shard)
        return prior / self.n_shards + likelihood, prior_gradient / self.n_shards + gradient


def log_densities(target: Target, points: Array) -> Array:
    """Log densities at `points` (n, d), shape (n,); `NONE` where they are not finite.

    Points may lie where no chain would go and where a model overflows.
    """

    def value(x: Array) -> float:
        try:
            return float(target.log_density(x))
        except BadInputError:
            return NONE

    with np.errstate(all="ignore"):
        values = np.array([value(x) for x in points])
    return np.where(np.isfinite(values), np.maximum(values, NONE), NONE)
