"""The Weierstrass rule: pairs of draws that lie close to each other, shard by shard up a tree.

Wang & Dunson (2013): where draws θ_1, θ_2 of two subposteriors are the same, they are a draw of the
product. So pairs are accepted with probability exp(-|θ_1 - θ_2|²/2h²), and merged; two by two, the
results are combined in the same way until one is left.

Departures from the paper: distances are measured by (C_1 + C_2)⁻¹, so that units do not matter; and
pairs are merged by consensus weights instead of adding noise around their middle. Under Gaussians
W_1θ_1 + W_2θ_2 is independent of θ_1 - θ_2, which makes the rule exact at any h; it goes from
consensus (h = ∞) to the product of any two densities (h → 0).
"""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate.errors import BadInputError, CombinationWarning, require
from quorate.merging.combined import Combined
from quorate.merging.consensus import merge
from quorate.merging.shard_draws import ShardDraws

_ASSUMES = (
    "Draws of two subposteriors come close to each other often enough: a few dimensions, and "
    "subposteriors that overlap where the posterior is."
)
_PILOT = 20_000  # pairs from which the acceptance rate is known
_LEAST_ACCEPTED = 0.01  # share of pairs; below it h is raised
_WIDE = 1.0  # h from which pairs that are accepted are hardly closer than others


def weierstrass(
    draws: Sequence[ArrayLike] | ShardDraws,
    *,
    seed: int = 1,
    n_draws: int | None = None,
    bandwidth: float | None = None,
) -> Combined:
    """Draws of the product, pairwise by rejection.

    Parameters
    ----------
    draws
        (n_s, d) for each shard.
    seed
        Of pairs and their acceptance.
    n_draws
        How many; as many as the largest shard has by default.
    bandwidth
        h, in sds of the difference of the two draws; n^(-1/(4+d)) of the smaller set by default.
        Raised where less than one pair in a hundred would be accepted, with a warning where it
        was given, or comes to more than 1.
    """
    shards = ShardDraws.of(draws)
    require(bandwidth is None or bandwidth > 0, "bandwidth", bandwidth, "give a number above 0")
    n_draws = n_draws or max(shards.counts)
    _ = shards.covs  # where there is none, the shard is refused by its own number
    require(n_draws > shards.dim, "n_draws", n_draws, f"give more than {shards.dim}")
    found, widest = _tree(shards, n_draws, bandwidth, np.random.default_rng(seed))
    if widest > (bandwidth or _WIDE):
        warnings.warn(
            f"weierstrass: pairs are so far apart that bandwidth {widest:.2g} was needed; above 1 "
            "the draws are close to those of consensus. There are too few draws, too many "
            "dimensions for this rule, or shards that disagree",
            CombinationWarning,
            stacklevel=2,
        )
    return shards.combined(found, "weierstrass", _ASSUMES)


def _tree(
    shards: ShardDraws, n_draws: int, bandwidth: float | None, rng: Generator
) -> tuple[Array, float]:
    """Draws of the product of all, and the widest bandwidth that was used."""
    level, widest = list(shards.scaled), 0.0
    while len(level) > 1:
        for _ in range(len(level) // 2):
            pair = level.pop(0), level.pop(0)
            try:
                product, used = _product(pair, n_draws, bandwidth, rng)
            except BadInputError:
                way_out = "too few are close to each other: raise `bandwidth`, or give more draws"
                raise BadInputError("number of pairs", "too small", way_out) from None
            level.append(product)
            widest = max(widest, used)
    return level[0], widest


def _product(
    pair: tuple[Array, Array], n_draws: int, bandwidth: float | None, rng: Generator
) -> tuple[Array, float]:
    """Draws of the product of two densities, and the bandwidth that was used."""
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
    """Any draw of the one with any draw of the other, shape (n, 2, d)."""
    return np.stack([x[rng.integers(len(x), size=n)] for x in both.scaled], axis=1)


def _distances(pairs: Array, half_width: Array) -> Array:
    """Squared, in sds of the difference."""
    return np.asarray(np.square((pairs[:, 0] - pairs[:, 1]) @ half_width.T).sum(axis=1))


def _wide_enough(distances: Array, bandwidth: float) -> float:
    """The bandwidth, or the least one at which enough pairs are accepted."""

    def excess(log_bandwidth: float) -> float:
        rates = np.exp(-distances / (2 * np.exp(2 * log_bandwidth)))
        return float(rates.mean()) - _LEAST_ACCEPTED

    low = float(np.log(bandwidth))
    if excess(low) >= 0:
        return bandwidth
    from scipy.optimize import brentq  # heavy, and seldom needed

    return float(np.exp(brentq(excess, low, 0.5 * np.log(distances.max()))))
