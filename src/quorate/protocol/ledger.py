"""The draws of single shards that a run has received, and the global draws they make.

Shards whose draws always arrive together form a *cell*: one shard in CMC, the r shards of a group
in G-CMC. A global draw takes one batch from every cell: in order of arrival, as in the paper, or so
that every batch is used (`quorate.merging.pairing`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.merging.centres import shift_of
from quorate.merging.consensus import consensus_weights, merge
from quorate.merging.fit import Fit, fits_among
from quorate.merging.pairing import check_pairing, every_draw, n_paired
from quorate.merging.weights import shrunk_covariances
from quorate.numerics.linalg import add_ridge, check_ridge, spd_inverse
from quorate.numerics.moments import Moments, running_covariances
from quorate.numerics.streams import Streams
from quorate.protocol.messages import Arrays
from quorate.protocol.scheme import DrawCounts, Looks

WEIGHTS = ("draws", "shrunk")
_MATRICES_AT_ONCE = 2048  # covariances of shards at several moments, to stay in cache


# How the paper merges: draws paired in order of arrival, weights from draws alone.
PAPER: Mapping[str, Any] = MappingProxyType({"pairing": "paper", "weights": "draws"})


class MergingOptions(Protocol):
    """The options of a scheme that say how its draws are merged."""

    @property
    def pairing(self) -> str: ...

    @property
    def weights(self) -> str | None: ...

    @property
    def cov_ridge(self) -> float: ...


@dataclass(frozen=True)
class Merging:
    """How draws of shards become global draws.

    Parameters
    ----------
    cov_ridge
        σ² on every Ĉ, with weights "draws".
    pairing, seed
        One of `quorate.merging.pairing.PAIRINGS`, and the key of its randomness.
    weights
        What Ĉ is estimated from: "draws" as in the paper, or "shrunk" towards the fits of warm-up,
        see `quorate.merging.weights`.
    """

    cov_ridge: float = 0.0
    pairing: str = "paper"
    seed: int = 0
    weights: str = "draws"

    def __post_init__(self) -> None:
        check_ridge("cov_ridge", self.cov_ridge)
        check_pairing(self.pairing)
        require(
            self.weights in WEIGHTS, f"No weights {self.weights!r}. Choose {' or '.join(WEIGHTS)}."
        )
        require(
            self.weights == "draws" or not self.cov_ridge,
            "Shrunk weights have no ridge. Leave out `cov_ridge`, or use weights='draws'.",
        )

    @classmethod
    def chosen(cls, options: "MergingOptions", seed: int = 0) -> "Merging":
        """As the options of a scheme say; weights without a ridge are shrunk by default."""
        weights = options.weights or ("draws" if options.cov_ridge else "shrunk")
        return cls(options.cov_ridge, options.pairing, seed, weights)

    @property
    def every_draw(self) -> bool:
        """Whether draws are re-paired so that all are used."""
        return self.pairing == "all"


class Ledger:
    """The batches received so far, by cell.

    Attributes
    ----------
    cells
        `cells[c]` are the shards of cell c. Over all cells they are 0, …, K-1, in order.
    n_received
        `n_received[c]` is L_k(t) of CMC, or L_{K_g}(t) of G-CMC: batches received of cell c.
    n_complete
        L(t) = min over cells of `n_received`.
    """

    n_chains = 1

    def __init__(self, cells: Sequence[tuple[int, ...]], merging: Merging | None = None) -> None:
        self.cells = list(cells)
        self.merging = merging or Merging()
        self.n_received = [0] * len(cells)
        self.n_complete = 0
        self._left_out: set[int] = set()  # cells
        self._payloads: list[list[Array]] = [[] for _ in cells]
        self._chains: list[list[int]] = [[] for _ in cells]
        self._fits: dict[int, Fit] = {}  # by shard
        self._cell_of_block: list[int] = []
        self._size_of_block: list[int] = []
        self._n_furthest_behind = len(cells)

    def add(self, cell: int, payload: Array, chain: int = 0, extras: Arrays | None = None) -> int:
        """Take in batches of shape (n_draws, n_shards of the cell, d). Returns `n_complete`.

        `extras` may hold the fits that warm-up found of the shards.
        """
        self._payloads[cell].append(payload)
        self._chains[cell].append(chain)
        self._cell_of_block.append(cell)
        self._size_of_block.append(len(payload))
        if extras:
            self._fits |= fits_among(extras, self.cells[cell])
        before = self.n_received[cell]
        self.n_received[cell] = before + len(payload)
        if before == self.n_complete:
            self._n_furthest_behind -= 1
            if not self._n_furthest_behind:
                self._count()
        return self.n_complete

    def _count(self) -> None:
        counts = [self.n_received[cell] for cell in self.included]
        self.n_complete = min(counts)
        self._n_furthest_behind = counts.count(self.n_complete)

    @property
    def included(self) -> list[int]:
        """Cells that global draws are made of."""
        return [cell for cell in range(len(self.cells)) if cell not in self._left_out]

    def lacking(self, n_draws: int) -> list[int]:
        """Included cells of which fewer than `n_draws` batches have arrived."""
        return [cell for cell in self.included if self.n_received[cell] < n_draws]

    def leave_out(self, shards: Collection[int]) -> int:
        """Leave out exactly the cells of `shards`, not all cells. Returns `n_complete`."""
        self._left_out = {
            i for i, cell in enumerate(self.cells) if not set(cell).isdisjoint(shards)
        }
        self._count()
        return self.n_complete

    @property
    def excluded(self) -> tuple[int, ...]:
        """Shards that global draws leave out."""
        return tuple(shard for cell in sorted(self._left_out) for shard in self.cells[cell])

    def add_factor(self, draws: Array, fit: Fit | None) -> None:
        """Add one more factor of the posterior, of which all draws are known: shape (n, d)."""
        shard = sum(map(len, self.cells))
        self.cells.append((shard,))
        self.n_received.append(len(draws))
        self._payloads.append([draws[:, None]])
        self._chains.append([0])
        if fit is not None:
            self._fits[shard] = fit
        self._count()

    def batches(self, cell: int) -> Array:
        """All batches received of a cell, shape (n_received, n_shards of the cell, d).

        Of a cell that has sent none: an empty array that fits anywhere.
        """
        payloads = self._payloads[cell]
        return np.concatenate(payloads) if payloads else np.empty((0, 1, 1))

    def chains(self, cell: int) -> list[Array]:
        """The batches of a cell, those of each chain on their own and in order."""
        by_chain: dict[int, list[Array]] = {}
        for chain, payload in zip(self._chains[cell], self._payloads[cell], strict=True):
            by_chain.setdefault(chain, []).append(payload)
        return [np.concatenate(by_chain[chain]) for chain in sorted(by_chain)]

    def shard_draws(self) -> list[Array]:
        """All draws of each shard that is included, one chain after the other: (n, d), or empty."""
        listed = []
        for cell in self.included:
            n_shards = len(self.cells[cell])
            chains = self.chains(cell) or [np.empty((0, n_shards, 0))]
            listed += list(np.swapaxes(np.concatenate(chains), 0, 1))
        return listed

    def weights(self) -> Array:
        """W_s of eq. (6) for the shards that are included, from all received by now."""
        moments = _by_shard([self.batches(cell) for cell in self.included])
        if self.merging.weights == "shrunk":
            return consensus_weights(shrunk_covariances(moments, self._fits_included()))
        ridge = self.merging.cov_ridge
        return consensus_weights(np.stack([of.covariance(ridge) for of in moments]))

    def _fits_included(self) -> list[Fit | None]:
        return [self._fits.get(shard) for cell in self.included for shard in self.cells[cell]]

    def global_draws(self) -> Array:
        """Global draws of eqs (8) and (10) from all received by now.

        There are `n_complete` of them, or `quorate.merging.pairing.n_paired` of the batches
        received with pairing "all".
        """
        if not self.n_complete:
            return np.empty((0, 0))
        batches = [self.batches(cell) for cell in self.included]
        if self.merging.every_draw:
            counts = np.array([len(batch) for batch in batches])
            which = every_draw(counts, Streams(self.merging.seed))
            draws = [batch[order] for batch, order in zip(batches, which, strict=True)]
        else:
            draws = batches = [batch[: self.n_complete] for batch in batches]
        weights = self.weights()
        merged = merge(weights, np.concatenate(draws, axis=1))
        if self.merging.weights == "shrunk" and len(weights) > 1:  # draws of one shard are right
            known = zip(_by_shard(batches), self._fits_included(), strict=True)
            merged += merge(weights, np.stack([shift_of(*of) for of in known])[None])
        return merged

    def looks(self, blocks: NDArray[np.bool_]) -> Looks | None:
        """Global draws at several moments; see `quorate.protocol.scheme.Received`.

        Shrunk weights have no short cut.
        """
        if self.merging.weights != "draws" or self._left_out:
            return None
        n_batches = draws_seen(blocks, self._cell_of_block, self._size_of_block, len(self.cells))
        sizes = [len(cell) for cell in self.cells]
        n_most = int(n_batches.max(initial=0))
        draws = np.zeros((n_most, sum(sizes), self._dim))
        for cell, shards in enumerate(self.cells):
            batches = self.batches(cell)[:n_most]
            draws[: len(batches), shards[0] : shards[-1] + 1] = batches
        return consensus_looks(draws, n_batches, sizes, self.merging)

    @property
    def _dim(self) -> int:
        return next((payloads[0].shape[-1] for payloads in self._payloads if payloads), 0)

    @property
    def n_offered(self) -> int:
        """L(t); with re-paired draws as many as the shard with the most draws has."""
        return max(self.n_received) if self.merging.every_draw else self.n_complete

    def draw_counts(self) -> DrawCounts:
        """Draws received, and those that are part of a global draw."""
        sizes = [len(cell) for cell in self.cells]
        received = sum(n * size for n, size in zip(self.n_received, sizes, strict=True))
        if self.merging.every_draw:
            return DrawCounts(received, received if self.n_complete else 0)
        return DrawCounts(received, self.n_complete * sum(sizes[cell] for cell in self.included))


def draws_seen(
    blocks: NDArray[np.bool_], senders: Sequence[int], sizes: Sequence[int], n_senders: int
) -> IntArray:
    """How many draws of each sender count at each moment, shape (n_moments, n_senders).

    Block i, of `sizes[i]` draws, is from `senders[i]`. Of the blocks of one sender the first ones
    count: `blocks` is as in `quorate.protocol.scheme.Received.looks`.
    """
    sent_by = np.asarray(senders, dtype=np.int64)
    order = np.argsort(sent_by, kind="stable")
    n_blocks = np.bincount(sent_by, minlength=n_senders)
    starts = np.cumsum(n_blocks) - n_blocks
    sorted_blocks = np.zeros((len(blocks), len(order) + 1), dtype=bool)  # one that never counts
    sorted_blocks[:, :-1] = blocks[:, order]
    counts = np.add.reduceat(sorted_blocks, starts, axis=1, dtype=np.int64)
    n_seen = np.where(n_blocks, counts, 0)  # of no blocks `reduceat` makes the next one
    totals = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(np.asarray(sizes)[order], out=totals[1:])
    return np.asarray(totals[starts + n_seen] - totals[starts])


def consensus_looks(
    draws: Array, n_batches: IntArray, sizes: Sequence[int], merging: Merging
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
    shards, n_known = np.arange(draws.shape[1]), np.repeat(n_batches, sizes, axis=1)
    n_complete = n_batches.min(axis=1)
    counts = np.where(n_complete, n_paired(n_batches), 0) if merging.every_draw else n_complete
    seen = np.zeros((len(counts), int(counts.max(initial=0)), draws.shape[-1]))
    begun = np.flatnonzero(counts)
    at_once = max(1, _MATRICES_AT_ONCE // draws.shape[1])
    for first in range(0, len(begun), at_once):
        some = begun[first : first + at_once]
        precisions = spd_inverse(add_ridge(covs[shards, n_known[some] - 1], merging.cov_ridge))
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


def _by_shard(batches: Sequence[Array]) -> list[Moments]:
    """Moments of the draws of every shard, from the batches (n, n_shards, d) of all cells."""
    return [Moments.of(draws) for batch in batches for draws in np.swapaxes(batch, 0, 1)]
