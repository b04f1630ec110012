"""The Weierstrass rule: pairs of close draws, combined shard by shard up a tree.

Wang & Dunson (2013): if draws θ_1, θ_2 of two subposteriors are equal, they are a draw of the
product. So the rule accepts pairs with probability exp(-|θ_1 - θ_2|²/2h²) and merges them. It
combines the results two by two in the same way until one is left.

Departures from the paper: Distances are measured by (C_1 + C_2)⁻¹, so units do not matter. Pairs
are merged by consensus weights instead of adding noise around their midpoint. For Gaussians
W_1θ_1 + W_2θ_2 is independent of θ_1 - θ_2, so the rule is exact at any h. In general it goes from
consensus (h = ∞) to the product of any two densities (h → 0).
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate._warnings import warn
from quorate.errors import BadInputError, CombinationWarning, require
from quorate.merging.combined import Combined
from quorate.merging.consensus import merge
from quorate.merging.shard_draws import ShardDraws

_ASSUMES = (
    "Draws of two subposteriors are close to each other often enough: dimensions are few, and "
    "subposteriors overlap where the posterior is."
)
_PILOT = 20_000  # pairs from which the acceptance rate is measured
_LEAST_ACCEPTED = 0.01  # share of accepted pairs, below which h is raised
_WIDE = 1.0  # h above which accepted pairs are hardly closer than others


def weierstrass(
    draws: Sequence[ArrayLike] | ShardDraws,
    *,
    seed: int = 1,
    n_draws: int | None = None,
    bandwidth: float | None = None,
) -> Combined:
    """Draws of the product of subposteriors, by rejection of distant pairs.

    Parameters
    ----------
    draws
        Arrays (n_s, d), one for each shard.
    seed
        Seed of the pairs and of their acceptance.
    n_draws
        Number of draws; by default that of the largest shard.
    bandwidth
        h, in sds of the difference of two draws; by default n^(-1/(4+d)) with n draws of the
        smaller set. It is raised if fewer than one pair in a hundred would be accepted, with a
        warning if you gave it or if it exceeds 1.
    """
    shards = ShardDraws.of(draws)
    is_valid = bandwidth is None or bandwidth > 0
    require(is_valid, f"bandwidth must be a number above 0, not {bandwidth!r}.")
    n_draws = n_draws or max(shards.counts)
    _ = shards.covs  # refuses a shard without a covariance by its own number
    require(n_draws > shards.dim, f"n_draws must be more than {shards.dim}, not {n_draws!r}.")
    found, widest = _tree(shards, n_draws, bandwidth, np.random.default_rng(seed))
    if widest > (bandwidth or _WIDE):
        warn(
            f"weierstrass: Pairs are so far apart that bandwidth {widest:.2g} was needed. Above 1 "
            "the draws are close to those of consensus. There are too few draws, too many "
            "dimensions for this rule, or shards that disagree.",
            CombinationWarning,
        )
    return shards.combined(found, "weierstrass", _ASSUMES)


def _tree(
    shards: ShardDraws, n_draws: int, bandwidth: float | None, rng: Generator
) -> tuple[Array, float]:
    """Draws of the product of all shards, and the largest bandwidth used."""
    level, widest = list(shards.scaled), 0.0
    while len(level) > 1:
        for _ in range(len(level) // 2):
            pair = level.pop(0), level.pop(0)
            try:
                product, used = _product(pair, n_draws, bandwidth, rng)
            except BadInputError:
                raise BadInputError(
                    "Too few pairs of draws are close to each other. Raise `bandwidth`, or give "
                    "more draws."
                ) from None
            level.append(product)
            widest = max(widest, used)
    return level[0], widest


def _product(
    pair: tuple[Array, Array], n_draws: int, bandwidth: float | None, rng: Generator
) -> tuple[Array, float]:
    """Draws of the product of two densities, and the bandwidth used."""
    both = ShardDraws.of(pair)
    half_width = np.linalg.inv(np.linalg.cholesky(both.covs.sum(axis=0)))
    if bandwidth is None:
        bandwidth = min(both.counts) ** (-1 / (4 + both.dim))
    pilot = _pairs(both, _PILOT, rng)
    bandwidth = _wide_enough(_distances(pilot, half_width), bandwidth)
    accepted: list[Array] = []
    while sum(map(len, accepted)) < n_draws:
        some = _pairs(both, _PILOT, rng)
        limits = 2 * bandwidth**2 * rng.standard_exponential(len(some))
        accepted.append(some[_distances(some, half_width) < limits])
    close = np.concatenate(accepted)[:n_draws]
    return merge(both.weights, close) * both.scale + both.centre, bandwidth


def _pairs(both: ShardDraws, n: int, rng: Generator) -> Array:
    """Random pairs, one draw from each set, shape (n, 2, d)."""
    return np.stack([x[rng.integers(len(x), size=n)] for x in both.scaled], axis=1)


def _distances(pairs: Array, half_width: Array) -> Array:
    """Squared distances of pairs, in sds of the difference."""
    return np.asarray(np.square((pairs[:, 0] - pairs[:, 1]) @ half_width.T).sum(axis=1))


def _wide_enough(distances: Array, bandwidth: float) -> float:
    """`bandwidth`, or the smallest larger one at which enough pairs are accepted."""

    def excess(log_bandwidth: float) -> float:
        rates = np.exp(-distances / (2 * np.exp(2 * log_bandwidth)))
        return float(rates.mean()) - _LEAST_ACCEPTED

    low = float(np.log(bandwidth))
    if excess(low) >= 0:
        return bandwidth
    from scipy.optimize import brentq  # heavy, and seldom needed

    return float(np.exp(brentq(excess, low, 0.5 * np.log(distances.max()))))
