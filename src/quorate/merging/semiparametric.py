"""The semiparametric rule: a Gaussian for each subposterior, times a kernel-density correction.

Neiswanger, Wang & Xing (2014, §3.3): the estimate of subposterior s is

    N(θ | μ_s, C_s) · 1/n_s Σ_i N(θ | θ_i, h²C_s) / N(θ_i | μ_s, C_s).

The product over shards is a mixture of Gaussians with one component for each vector of indices
(i_1, …, i_K). Independence Metropolis within Gibbs draws the indices, one shard at a time, and θ
comes from their component. Exact for every shape as h → 0 and n_s → ∞, and for Gaussians at any h.

Departures from the paper: Kernels have the shape h²C_s instead of h²I. So units do not matter, and
the rule needs only two numbers and a vector per draw. Many chains of indices run side by side.
Draws are kept only after h has reached its last value, n^(-1/(4+d)) by default. The factor
1/N(θ_i | μ_s, C_s) is cut off where the farthest of n_s Gaussian draws would lie. Without the cut a
few draws in the tail of a skewed subposterior carry all the weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import chdtri

from quorate._types import Array, IntArray
from quorate._warnings import warn
from quorate.errors import CombinationWarning, require
from quorate.merging.combined import Combined
from quorate.merging.shard_draws import ShardDraws

_ASSUMES = (
    "There are enough draws to estimate the subposteriors' densities: dimensions are few, and "
    "subposteriors overlap where the posterior is."
)
_CHAINS = 200
_ANNEALING = 200  # sweeps in which h falls from 1 to its last value
_LAST = 20  # of these, from which the acceptance rate is measured
_MOVES = 2  # of every index between two kept draws, on average
_MOST_SWEEPS = 50  # between two kept draws


def semiparametric(
    draws: Sequence[ArrayLike] | ShardDraws,
    *,
    seed: int = 1,
    n_draws: int | None = None,
    bandwidth: float | None = None,
) -> Combined:
    """Draws of the product of semiparametric density estimates.

    Parameters
    ----------
    draws
        (n_s, d) for each shard.
    seed
        Seed of the indices and of the draws around them.
    n_draws
        Number of draws; by default that of the largest shard.
    bandwidth
        h, in sds of each subposterior; by default n^(-1/(4+d)) with n draws of the smallest shard.
    """
    shards = ShardDraws.of(draws)
    n_draws = n_draws or max(shards.counts)
    if bandwidth is None:
        bandwidth = min(shards.counts) ** (-1 / (4 + shards.dim))
    require(0 < bandwidth < np.inf, f"bandwidth must be a number above 0, not {bandwidth!r}.")
    if len(shards.scaled) == 1:
        return shards.combined(shards.scaled[0], "semiparametric", _ASSUMES)
    rng = np.random.default_rng(seed)
    chains = _Chains.start(shards, min(_CHAINS, n_draws), rng)
    points = _walk(chains, n_draws, bandwidth)
    points += bandwidth * np.sqrt(1 + bandwidth**2) * rng.standard_normal(points.shape)
    points /= 1 + bandwidth**2
    lower = np.linalg.cholesky(shards.product_cov)
    found = shards.product_mean + points @ lower.T
    return shards.combined(found, "semiparametric", _ASSUMES)


@dataclass
class _Chains:
    """Vectors of indices, one for each chain, and the terms of their weights.

    Let θ̄ = Σ W_s θ_s, with all θ measured from m. The log weight of a vector of indices is -½ times

        (Σ_s θ_sᵀ P_s θ_s - θ̄ᵀ V⁻¹ θ̄) / h² + θ̄ᵀ V⁻¹ θ̄ / (1 + h²) - Σ_s (θ_s - μ_s)ᵀ P_s (θ_s - μ_s).

    Parameters
    ----------
    lengths, misfits, steps
        θᵀ P_s θ, (θ - μ_s)ᵀ P_s (θ - μ_s) and V^(-½) W_s θ of every draw of every shard.
    indices
        Shape (n_shards, n_chains).
    """

    lengths: list[Array]
    misfits: list[Array]
    steps: list[Array]
    indices: IntArray
    rng: Generator

    @classmethod
    def start(cls, shards: ShardDraws, n_chains: int, rng: Generator) -> "_Chains":
        whiten = np.linalg.inv(np.linalg.cholesky(shards.product_cov))
        lengths, misfits, steps = [], [], []
        for s, values in enumerate(shards.scaled):
            precision = shards.precisions[s]
            from_product, from_own = values - shards.product_mean, values - shards.means[s]
            lengths.append(np.einsum("ni,ij,nj->n", from_product, precision, from_product))
            misfit = np.einsum("ni,ij,nj->n", from_own, precision, from_own)
            misfits.append(np.minimum(misfit, chdtri(shards.dim, 1 / len(values))))
            steps.append(from_product @ (whiten @ shards.weights[s]).T)
        indices = np.array([rng.integers(len(x), size=n_chains) for x in lengths])
        return cls(lengths, misfits, steps, indices, rng)

    def points(self) -> Array:
        """V^(-½) θ̄ of every chain, shape (n_chains, d)."""
        chosen = [x[i] for x, i in zip(self.steps, self.indices, strict=True)]
        return np.asarray(np.sum(chosen, axis=0))

    def sweep(self, bandwidth: float) -> Array:
        """Propose a new index for every shard in turn. Returns acceptance rates by shard."""
        points = self.points()
        n_chains, rates = len(points), np.zeros(len(self.indices))
        narrow = 1 / bandwidth**2
        pull = narrow - 1 / (1 + bandwidth**2)
        for s, now in enumerate(self.indices):
            new = self.rng.integers(len(self.lengths[s]), size=n_chains)
            moved = points + self.steps[s][new] - self.steps[s][now]
            gain = narrow * (self.lengths[s][now] - self.lengths[s][new])
            gain += pull * (np.square(moved).sum(axis=1) - np.square(points).sum(axis=1))
            gain += self.misfits[s][new] - self.misfits[s][now]
            accepted = -2 * self.rng.standard_exponential(n_chains) < gain
            rates[s] = np.mean(accepted & (new != now))
            points = np.where(accepted[:, None], moved, points)
            self.indices[s] = np.where(accepted, new, now)
        return rates


def _walk(chains: _Chains, n_draws: int, bandwidth: float) -> Array:
    """Anneal, then keep the chains' points at regular intervals, shape (n_draws, d)."""
    start = max(1.0, bandwidth)
    schedule = start * (bandwidth / start) ** np.linspace(0, 1, _ANNEALING - _LAST)
    for h in schedule:
        chains.sweep(h)
    rate = float(np.mean([chains.sweep(bandwidth) for _ in range(_LAST)], axis=0).min())
    n_sweeps = min(_MOST_SWEEPS, int(np.ceil(_MOVES / max(rate, 1e-9))))
    if rate * _MOST_SWEEPS < 1:
        warn(
            f"semiparametric: Only {rate:.1%} of proposals for some shard were accepted, so draws "
            "repeat each other. Raise `bandwidth`, or use another rule if there are many "
            "dimensions or shards that disagree.",
            CombinationWarning,
        )
    kept = []
    for _ in range(-(-n_draws // chains.indices.shape[1])):
        for _ in range(n_sweeps):
            chains.sweep(bandwidth)
        kept.append(chains.points())
    return np.concatenate(kept)[:n_draws]
