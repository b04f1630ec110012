"""What a family of responses offers to regressions, with and without groups."""

from dataclasses import dataclass
from typing import Any, Protocol

from quorate._types import Array
from quorate.models import many_points
from quorate.models.observed import Observed


@dataclass(frozen=True)
class Value:
    """A log-likelihood, with its derivatives if they were requested."""

    log_likelihood: float
    coefficients: Array | None = None  # (p,)
    log_scales: Array | float = 0.0  # one for each scale parameter


class Family(Protocol):
    """The interface of the ready-made likelihoods.

    The last axis of `log_scales` is that of scale parameters; families without any ignore it.
    """

    @property
    def scale_names(self) -> tuple[str, ...]:
        """Names of the positive parameters."""

    def constants(self, seen: Observed) -> tuple[float, Array | None]:
        """Check the responses, and reduce what depends on them but not on η.

        Returns a constant, and for some families the number of responses above 0, 1, ….
        """

    def expected(self, eta: Array, trials: Array | None = None) -> Array:
        """The mean of y, of the shape of η."""

    def responses(
        self, eta: Array, log_scales: Array, uniforms: Array, trials: Array | None = None
    ) -> Array:
        """A draw of y for each entry of η, from one uniform number each."""

    def log_densities(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        """Log density of each y, of the shape of η: (n_points, n_rows). Scales broadcast."""

    def outside(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        """The part of `log_densities` that integrals over parameters of groups leave out.

        `eta` is Xβ, without these parameters. See `quorate.models.groups.regressions.chunks`.
        """

    def prepare(self, seen: Observed) -> Any:
        """Check the rows of a shard and reduce them."""

    def evaluate(self, kept: Any, beta: Array, log_scales: Array, gradient: bool) -> Value:
        """The log-likelihood of a prepared shard at one point."""

    def evaluate_many(
        self, kept: Any, betas: Array, log_scales: Array, gradient: bool
    ) -> many_points.Values:
        """The log-likelihoods at `betas` (n_points, p) and `log_scales` (n_points, k)."""
