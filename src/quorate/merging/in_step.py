"""Merged draws in an order of their own: as autocorrelated as the draws of the shards.

Re-paired draws have no order: each takes its parts from other moments of the shards' chains. They
look independent, and a diagnostic that reads them as a chain overstates their ESS
(`quorate.merging.ess`). To sort them does not help: in many dimensions they lie too far apart to be
neighbours in a chain that moves slowly.

Here draws are merged that the shards made at the same time: Σ_s W_s θ_s(t). Shards are independent,
so these are draws as good as re-paired ones. As a series in t, their autocovariance is the sum of
those of the shards, in any dimension. So a diagnostic finds the ESS that
`quorate.merging.ess.merged_ess` tells. Re-paired draws know means and spreads better, because they
are not disturbed if shards happen to wander together. So draws in step are given theirs, coordinate
by coordinate, which changes no autocorrelation.
"""

from collections.abc import Sequence

import numpy as np

from quorate._types import Array

_AT_ONCE = 2**14  # draws that are merged together


def merged_in_step(draws: Array, weights: Array, shard_draws: Sequence[Array]) -> Array:
    """Draws merged from shards in step, with the number, means and sds of `draws`: (n, d).

    Parameters
    ----------
    draws
        The re-paired draws, (n, d).
    weights, shard_draws
        As for `quorate.merging.ess.merged_ess`. The n moments are evenly spaced over the draws of
        every shard: some draws are left out if it has more than n, or repeated if it has fewer.
    """
    n_draws = len(draws)
    total = np.zeros(draws.shape)
    for weight, of_shard in zip(weights, shard_draws, strict=True):
        for first in range(0, n_draws, _AT_ONCE):
            last = min(first + _AT_ONCE, n_draws)
            moments = np.arange(first, last) * len(of_shard) // n_draws
            total[first:last] += of_shard[moments] @ weight.T
    spreads, wanted = total.std(axis=0), draws.std(axis=0)
    total -= total.mean(axis=0)
    total *= np.divide(wanted, spreads, out=np.ones_like(spreads), where=spreads > 0)
    total += draws.mean(axis=0)
    return total
