"""Global draws as they were at several moments of a run, all at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.merging.consensus import merge
from quorate.merging.pairing import every_draw, n_paired
from quorate.numerics.linalg import spd_inverse
from quorate.numerics.moments import running_covariances
from quorate.numerics.streams import Streams
from quorate.protocol.scheme import Looks

if TYPE_CHECKING:
    from quorate.protocol.ledger import Merging

_MATRICES_AT_ONCE = 2048  # covariances of shards at several moments, to stay in cache


def draws_seen(
    blocks: NDArray[np.bool_], senders: Sequence[int], sizes: Sequence[int], n_senders: int
) -> IntArray:
    """How many draws of each sender count at each moment, shape (n_moments, n_senders).

    Block i, of `sizes[i]` draws, is from `senders[i]`. `blocks` is as in
    `quorate.protocol.scheme.Received.looks`: a block that counts at a moment counts at all later
    ones.
    """
    n_moments = len(blocks)
    since = n_moments - blocks.sum(axis=0)  # the first moment; `n_moments` for those that never do
    keys = since * n_senders + np.asarray(senders, dtype=np.int64)
    new = np.bincount(keys, weights=sizes, minlength=(n_moments + 1) * n_senders)
    return new.reshape(-1, n_senders)[:-1].cumsum(axis=0).astype(np.int64)


def consensus_looks(
    draws: Array, n_batches: IntArray, sizes: Sequence[int], merging: "Merging"
) -> Looks:
    """Global draws of eqs (8) and (10) at several moments of a run, all at once.

    Parameters
    ----------
    draws
        In order of arrival, shape (n, n_shards, d).
    n_batches
        How many batches of each cell have arrived by each moment, shape (n_moments, n_cells).
    sizes
        Number of shards of each cell.
    """
    covs, _ = running_covariances(np.swapaxes(draws, 0, 1))
    covs += merging.cov_ridge * np.eye(draws.shape[-1])
    shards, n_known = np.arange(draws.shape[1]), np.repeat(n_batches, sizes, axis=1)
    n_complete = n_batches.min(axis=1)
    counts = np.where(n_complete, n_paired(n_batches), 0) if merging.every_draw else n_complete
    seen = np.zeros((len(counts), int(counts.max(initial=0)), draws.shape[-1]))
    begun = np.flatnonzero(counts)
    at_once = max(1, _MATRICES_AT_ONCE // draws.shape[1])
    for first in range(0, len(begun), at_once):
        some = begun[first : first + at_once]
        precisions = spd_inverse(covs[shards, n_known[some] - 1])
        posterior_covs = spd_inverse(precisions.sum(axis=1))
        if merging.every_draw:
            which = every_draw(n_batches[some], Streams(merging.seed))
            paired = draws[np.swapaxes(np.repeat(which, sizes, axis=1), 1, 2), shards]
        else:
            paired = draws[: counts[some].max()]
        merged = merge(precisions, paired) @ posterior_covs
        merged[np.arange(merged.shape[1]) >= counts[some, None]] = 0.0
        seen[some, : merged.shape[1]] = merged
    return Looks(seen, counts)
