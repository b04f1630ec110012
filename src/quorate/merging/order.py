"""An order of merged draws in which they are as autocorrelated as the draws of the shards.

Re-paired draws have no order of their own: each takes its parts from other moments of the shards'
chains. In a random order they look independent, and a diagnostic that reads them as a chain
overstates their ESS (`quorate.merging.ess`). The order that is made here follows the shards in
step: the sums Σ_s W_s θ_s(t) of draws that the shards made at the same time. A draw is placed where
it, averaged with its neighbours, is close to the average of the shards there. So running means
wander as those of the shards' chains do.

How closely draws can follow depends on how many there are to choose from. The stronger they are
pulled, the lower their ESS as a chain. They are pulled until it is `merged_ess`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from quorate._types import Array, IntArray
from quorate.merging.ess import fewest_draws, merged_ess
from quorate.numerics.ess import bulk_ess

_CLOSE = 0.05  # difference of the logarithms of two ESS that need not be made smaller
# How many neighbours on a side are averaged, and by how much the shards' wandering is magnified
_PULLS = (
    *((2, 1.0), (4, 1.0), (4, 1.5), (8, 1.5), (8, 2.0)),
    *((16, 2.0), (16, 3.0), (32, 3.0), (32, 5.0)),
)
_SWEEPS, _ALL_SWEEPS = 4, 50_000  # for each pull, and so many draws in all of them
_MOST_AT_ONCE = 128  # draws that are placed together
_FEWEST_OF_A_SHARD = 8


def order_of_chains(
    draws: Array, weights: Array, shard_draws: Sequence[Array], n_chains: int
) -> IntArray:
    """The order in which to cut merged draws into chains.

    Parameters
    ----------
    draws
        The merged draws, (n_draws, d).
    weights, shard_draws
        As for `quorate.merging.ess.merged_ess`.
    n_chains
        Number of chains of equal length that the ordered draws will be cut into.

    Returns
    -------
    IntArray
        Numbers of the draws, (n_draws,). As they are, if there are too few to tell.
    """
    order, dim = np.arange(len(draws)), draws.shape[1]
    n_fewest = min(map(len, shard_draws))
    if len(draws) < max(fewest_draws(dim), 8 * n_chains) or n_fewest < _FEWEST_OF_A_SHARD:
        return order
    wanted = np.minimum(merged_ess(weights, shard_draws), len(draws))

    def surplus(order: IntArray) -> float:
        """How far the draws look better than they are: mean logarithm of a ratio of ESS."""
        n_steps = len(order) // n_chains
        chains = draws[order[: n_steps * n_chains]].reshape(n_chains, n_steps, dim)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.log(bulk_ess(chains) / wanted)
        known = ratios[np.isfinite(ratios)]
        return float(known.mean()) if len(known) else 0.0

    if surplus(order) < _CLOSE:
        return order
    followed = _in_step(weights, shard_draws, len(draws))
    return _pulled(draws, followed, int(np.nanargmin(wanted)), surplus)


def _in_step(weights: Array, shard_draws: Sequence[Array], n_draws: int) -> Array:
    """Σ_s W_s θ_s(t) at `n_draws` moments, evenly spaced over the draws of every shard."""
    total = np.zeros((n_draws, weights.shape[1]))
    for weight, draws in zip(weights, shard_draws, strict=True):
        total += draws[np.arange(n_draws) * len(draws) // n_draws] @ weight.T
    return total


def _pulled(
    draws: Array, followed: Array, slowest: int, surplus: Callable[[IntArray], float]
) -> IntArray:
    """The order with the smallest surplus, of those with ever stronger pulls."""
    order = np.empty(len(draws), dtype=np.int64)
    order[np.argsort(followed[:, slowest])] = np.argsort(draws[:, slowest])
    root = _whitening(draws)
    places, steps = (draws - draws.mean(axis=0)) @ root, (followed - followed.mean(axis=0)) @ root
    if np.allclose(places[order], steps, atol=1e-6):
        return order  # one shard: the order is its own
    best, least = order, surplus(order)
    for width, gain in _PULLS:
        if least < _CLOSE:
            break
        order = _following(places, gain * steps, order, width)
        found = surplus(order)
        if abs(found) < abs(least):
            best, least = order, found
        if found < _CLOSE:
            break
    return best


def _whitening(draws: Array) -> Array:
    """R with (draws - mean) R of covariance I; directions without spread become 0."""
    values, axes = np.linalg.eigh(np.atleast_2d(np.cov(draws.T)))
    inverse = np.where(values > 1e-12 * values[-1], 1 / np.sqrt(np.maximum(values, 1e-300)), 0.0)
    return np.asarray(axes * inverse)


def _following(places: Array, steps: Array, order: IntArray, width: int) -> IntArray:
    """A better order: weighted averages of 2 `width` + 1 neighbours come closer to those of steps.

    Moments that lie further apart than `width` have no neighbour in common, so draws at many of
    them are exchanged together, by an assignment that is the best there is.
    """
    from scipy.optimize import linear_sum_assignment

    order, n_draws = order.copy(), len(order)
    kernel = 1 - np.abs(np.arange(-width, width + 1)) / (width + 1)
    gaps = _averaged(places[order] - steps, kernel)  # with `width` more at both ends
    stride = max(width + 1, -(-n_draws // _MOST_AT_ONCE))
    n_sweeps = max(1, min(_SWEEPS, _ALL_SWEEPS // n_draws))
    for _ in range(n_sweeps):
        for first in range(stride):
            at = np.arange(first, n_draws, stride)
            here = places[order[at]]
            which, where = linear_sum_assignment(here @ (gaps[at + width] - here).T)
            order[at[where]] = order[at[which]]
            moves = places[order[at]] - here
            for lag, share in enumerate(kernel):
                gaps[first + lag : first + lag + stride * len(at) : stride] += share * moves
    return order


def _averaged(values: Array, kernel: Array) -> Array:
    """Values averaged along the first axis, with as many more at each end as the kernel reaches."""
    return np.stack([np.convolve(column, kernel, "full") for column in values.T], axis=1)
