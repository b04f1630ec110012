"""Which draw of a shard goes into which global draw.

Draws of different shards are independent, so any choice of one draw from every shard makes a global
draw. The paper pairs the l-th of each, in order of arrival, and leaves over what some shards have
more of than others (`paper`). Here every draw is used (`all`), and several times: the draws of a
shard are gone through again and again, each time in another order, so that all are used equally
often and hardly any pair comes twice. `docs/beyond.md` says what that does to errors.
"""

import numpy as np

from quorate._types import IntArray
from quorate.errors import require
from quorate.numerics.streams import Purpose, Streams

PAIRINGS = ("paper", "all")
REPEATS = 8  # times that the draws of the shard with the most are used
_PER_ROW = 4  # uniforms that are made together


def check_pairing(pairing: str) -> None:
    """Refuse what is not one of `PAIRINGS`."""
    require(pairing in PAIRINGS, "pairing", pairing, f"choose one of {', '.join(PAIRINGS)}")


def n_paired(counts: IntArray) -> IntArray:
    """Global draws made of `counts` draws of shards, (..., n_shards): shape (...)."""
    return np.asarray(REPEATS * counts.max(axis=-1))


def every_draw(counts: IntArray, streams: Streams) -> IntArray:
    """Balanced pairing of unequal numbers of draws.

    Parameters
    ----------
    counts
        `counts[..., s]` draws of shard s are there, at least one: shape (..., n_shards).
    streams
        Whose randomness orders the draws.

    Returns
    -------
    IntArray
        `[..., s, l]` is the draw of shard s for global draw l, shape (..., n_shards, largest of
        `n_paired`). A shard's draws come in a random order, then in another one, and so on: among
        the first l, for any l, no draw is used more than once more than another.
    """
    n_global = int(n_paired(counts).max())
    places = np.arange(n_global + int(counts.max()))  # the last order may have to be cut short
    lanes = [(shard, 0) for shard in range(counts.shape[-1])]
    n_rows = -(-len(places) // _PER_ROW)
    uniforms = streams.uniforms(Purpose.PAIRING, lanes, 0, n_rows, _PER_ROW)
    uniforms = uniforms.reshape(len(lanes), -1)[:, : len(places)]
    which_order = places // counts[..., None]
    order = np.argsort(which_order + uniforms, axis=-1)[..., :n_global]
    return np.asarray(order % counts[..., None])
