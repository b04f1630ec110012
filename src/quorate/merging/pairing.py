"""Pairing: which draw of each shard goes into which global draw.

Draws of different shards are independent, so one draw of every shard, however chosen, makes a
global draw. The pairing `paper` takes the l-th draw of each shard, in order of arrival, and leaves
surplus draws of fast shards unused. The pairing `all` uses every draw, several times: it goes
through the draws of a shard again and again, each time in a new order. All draws are then used
equally often, and hardly any pair occurs twice. `docs/explanation/beyond.md` gives the effect on
errors.
"""

import numpy as np

from quorate._types import IntArray
from quorate.errors import require
from quorate.numerics.streams import Purpose, Streams

PAIRINGS = ("paper", "all")
REPEATS = 8  # uses of each draw of the shard that has the most draws
_PER_ROW = 4  # uniforms generated together


def check_pairing(pairing: str) -> None:
    """Refuse a pairing that is not one of `PAIRINGS`."""
    known = ", ".join(PAIRINGS)
    require(pairing in PAIRINGS, f"Unknown pairing {pairing!r}. Choose one of {known}.")


def n_paired(counts: IntArray) -> IntArray:
    """Number of global draws, shape (...), from `counts` draws of shards, (..., n_shards)."""
    return np.asarray(REPEATS * counts.max(axis=-1))


def order_of(shard: int, count: int, n_global: int, streams: Streams) -> IntArray:
    """`every_draw` of one shard with `count` draws, for the first `n_global` global draws."""
    places = np.arange(n_global + count)  # the last order may be cut short
    n_rows = -(-len(places) // _PER_ROW)
    uniforms = streams.uniforms(Purpose.PAIRING, [(shard, 0)], 0, n_rows, _PER_ROW)
    order = np.argsort(places // count + uniforms.reshape(-1)[: len(places)])[:n_global]
    return np.asarray(order % count)


def every_draw(counts: IntArray, streams: Streams) -> IntArray:
    """Balanced pairing of unequal numbers of draws.

    Parameters
    ----------
    counts
        `counts[..., s]` is the number of draws of shard s, at least 1: shape (..., n_shards).
    streams
        Random numbers that order the draws.

    Returns
    -------
    IntArray
        `[..., s, l]` is the draw of shard s for global draw l, shape (..., n_shards, largest of
        `n_paired`). A shard's draws come in a random order, then in another one, and so on. Among
        the first l global draws, for any l, uses of two draws of a shard differ by at most one.
    """
    n_global = int(n_paired(counts).max())
    places = np.arange(n_global + int(counts.max()))  # the last order may be cut short
    lanes = [(shard, 0) for shard in range(counts.shape[-1])]
    n_rows = -(-len(places) // _PER_ROW)
    uniforms = streams.uniforms(Purpose.PAIRING, lanes, 0, n_rows, _PER_ROW)
    uniforms = uniforms.reshape(len(lanes), -1)[:, : len(places)]
    which_order = places // counts[..., None]
    order = np.argsort(which_order + uniforms, axis=-1)[..., :n_global]
    return np.asarray(order % counts[..., None])
