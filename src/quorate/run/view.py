"""One view of the draws of a run: for its result, stopping rule, report, live page and planner.

It knows the scheme and what the scheme has received, whether the run is under way or was read from
its journal. So all of them show the same draws and the same effective sample size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quorate._types import Array
from quorate.merging.ess import effective_draws, fewest_draws
from quorate.numerics.ess import ess_of_chains, in_chains, nested_rhat, split_rhat
from quorate.protocol.columns import OnDemand
from quorate.protocol.scheme import FirstDraws, Scheme


@dataclass(frozen=True, eq=False)
class View:
    """The draws that a scheme has received, up to those that were asked for.

    Parameters
    ----------
    scheme
        One run of it.
    dim
        d.
    n_asked
        Global draws that were asked for.
    """

    scheme: Scheme
    dim: int
    n_asked: int

    @property
    def n_draws(self) -> int:
        """Global draws that are complete, up to those that were asked for."""
        return min(self.scheme.received.n_complete, self.n_asked)

    def global_draws(self) -> Array:
        """Global draws, unconstrained, (n, d).

        A run that ended early has as many as its longest shard, if draws are re-paired. Raises
        `SingularCovarianceError` where there are too few draws for weights.
        """
        received = self.scheme.received
        n_draws = min(received.n_offered, self.n_asked)
        first = received.first_draws(n_draws) if isinstance(received, FirstDraws) else None
        draws = received.global_draws()[:n_draws] if first is None else first
        return draws.reshape(-1, self.dim)

    def shard_draws(self) -> Sequence[Array]:
        """Draws of each included shard, unconstrained, (n, d); none if only sums are sent."""
        found = self.scheme.received.shard_draws()
        if isinstance(found, OnDemand):
            return found
        return tuple(draws.reshape(-1, self.dim) for draws in found)

    def weights(self) -> Array | None:
        """W_s of the included shards; None if only sums are sent, or nothing is complete."""
        return self.scheme.received.weights() if self.scheme.received.n_complete else None

    def ess(self) -> Array:
        """Effective number of draws of each coordinate, (d,); NaN where there are too few."""
        received = self.scheme.received
        if received.n_chains > 1:
            return ess_of_chains(self.global_draws(), received.n_chains)
        if received.n_complete < fewest_draws(self.dim):
            return np.full(self.dim, np.nan)
        weights = self.weights()
        # With weights, shards alone tell the ESS: there is no need to merge their draws.
        draws = self.global_draws() if weights is None else np.empty((self.n_draws, self.dim))
        return effective_draws(draws, weights, self.shard_draws())

    def r_hat(self) -> Array:
        """R-hat of each coordinate, (d,): of chains, or the worst among shards."""
        received = self.scheme.received
        if received.n_chains > 1:
            return nested_rhat(in_chains(self.global_draws(), received.n_chains))
        parts = self.shard_draws() or [self.global_draws()]
        return np.asarray(np.max([split_rhat(draws[None]) for draws in parts], axis=0))

    def least_ess(self) -> float:
        """The smallest effective number of draws; 0 as long as there are too few to tell."""
        return float(np.nan_to_num(np.min(self.ess())))
