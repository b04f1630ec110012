"""Summaries of draws: a row for each scalar, how means settled, workers that are gone or slow."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from quorate._types import Array
from quorate.errors import named_workers
from quorate.numerics.moments import Moments
from quorate.protocol.messages import Happening

INTERVAL = {"3%": 0.03, "97%": 0.97}  # its ends, by the names of their columns
_SENT = {"exact": "answer", "merge": "block"}  # by workers, by method
_MANY_BLOCKS = 10  # of the other workers, before a worker is called slow


def summary_row(values: Array, ess: float) -> dict[str, float]:
    """Mean, sd, 94 % interval, ESS and Monte Carlo standard error of `values` (n,)."""
    values = np.ascontiguousarray(values)
    sd = float(values.std(ddof=1))
    ends = map(float, np.quantile(values, list(INTERVAL.values())))
    return {
        "mean": float(values.mean()),
        "sd": sd,
        **dict(zip(INTERVAL, ends, strict=True)),
        "ess": ess,
        "mcse": sd / ess**0.5,
    }


def sds(draws: Array, weights: Array | None, shard_draws: Sequence[Array]) -> Array:
    """Standard deviations of the coordinates of global draws, (d,).

    Where weights are known, these are the roots of Σ_s diag(W_s Ĉ_s W_sᵀ). Parameters are those of
    `settling`.
    """
    if weights is None:
        return np.asarray(draws.std(axis=0))
    covs = [Moments.of(of).covariance() for of in shard_draws]
    return np.asarray(np.sqrt(np.einsum("sij,sjk,sik->i", weights, np.stack(covs), weights)))


def settling(
    draws: Array, weights: Array | None, shard_draws: Sequence[Array], shares: Array
) -> Array:
    """How far the mean of the first draws is from the mean of all, (n_shares, d).

    The order of re-paired draws says nothing. So where weights are known, the first draws of every
    shard are merged: Σ_s W_s (θ̄_s(share) - θ̄_s).

    Parameters
    ----------
    draws
        Global draws, (n, d).
    weights, shard_draws
        W_s, (n_shards, d, d), and the draws of each shard, (n_s, d); None and nothing for coded
        runs.
    shares
        Shares of the draws, above 0 and at most 1, (n_shares,).
    """
    if weights is None:
        return _gaps(draws, shares)
    of_shards = zip(weights, shard_draws, strict=True)
    parts = [_gaps(of, shares) @ weight.T for weight, of in of_shards]
    return np.asarray(np.sum(parts, axis=0))


def _gaps(draws: Array, shares: Array) -> Array:
    counts = np.ceil(shares * len(draws)).astype(int)
    ends = np.unique(counts)
    pieces = np.add.reduceat(draws - draws.mean(axis=0), [0, *ends[:-1]], axis=0)
    sums = np.cumsum(pieces, axis=0)[np.searchsorted(ends, counts)]
    return np.asarray(sums / counts[:, None])


def gone_in_words(gone: Collection[int], events: Iterable[tuple[int, Happening]]) -> list[str]:
    """Workers that are gone, by what happened to them: `lost workers 1, 3`, `silent worker 4`.

    `events` are all events of workers, in order. That a worker was retired says what was done about
    it, not why it is gone.
    """
    last = dict.fromkeys(sorted(gone), Happening.LOST)
    last |= {
        worker: what
        for worker, what in events
        if worker in last and what.takes_away and what is not Happening.RETIRED
    }
    words = dict.fromkeys(last.values())
    return [
        f"{word} {named_workers([worker for worker in last if last[worker] is word])}"
        for word in words
    ]


def slow_in_words(
    blocks: Sequence[int], lost: Collection[int], method: str, spoken_for: Collection[int] = ()
) -> list[str]:
    """The slowest worker that was not lost, if it sent less than a quarter of the others.

    `blocks` is what each worker sent in a run with this method. Workers whose answers came with
    those of others are not judged.
    """
    sent = {worker: n for worker, n in enumerate(blocks) if worker not in spoken_for}
    slowest = min((k for k in sent if k not in lost), key=sent.__getitem__, default=None)
    if slowest is None:
        return []
    own = sent.pop(slowest)
    others = np.median(list(sent.values())) if sent else 0
    if others < _MANY_BLOCKS or own >= others / 4:
        return []
    what = _SENT[method] + "s" * (own != 1)
    return [f"worker {slowest} was slow: it sent {own} {what}, the others about {others:.0f}"]
