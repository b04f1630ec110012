"""Summaries of draws: a row for each scalar, how the means settled, and which workers are gone."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from quorate._types import Array
from quorate.errors import named_workers
from quorate.protocol.messages import Happening

INTERVAL = {"3%": 0.03, "97%": 0.97}  # its ends, by the names of their columns


def summary_row(values: Array, ess: float) -> dict[str, float]:
    """Mean, sd, 94 % interval, ESS and Monte Carlo standard error of `values` (n,)."""
    sd = float(values.std(ddof=1))
    ends = map(float, np.quantile(values, list(INTERVAL.values())))
    return {
        "mean": float(values.mean()),
        "sd": sd,
        **dict(zip(INTERVAL, ends, strict=True)),
        "ess": ess,
        "mcse": sd / ess**0.5,
    }


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
    parts = [draws]
    if weights is not None:
        parts = [of @ weight.T for weight, of in zip(weights, shard_draws, strict=True)]
    return np.asarray(np.sum([_gaps(part, shares) for part in parts], axis=0))


def _gaps(draws: Array, shares: Array) -> Array:
    counts = np.ceil(shares * len(draws)).astype(int)
    sums = np.cumsum(draws - draws.mean(axis=0), axis=0)
    return np.asarray(sums[counts - 1] / counts[:, None])


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
