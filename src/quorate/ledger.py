"""Draws received, and how many global draws they make.

Shards whose draws always come together form a *cell*: one shard in CMC, the r shards of a group in
G-CMC. A global draw takes one batch from every cell: in order of arrival, as in the paper, or so
that every batch is used (`quorate.pairing`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quorate._types import Array
from quorate.combine.consensus import consensus_weights, merge
from quorate.moments import Moments
from quorate.pairing import every_draw
from quorate.streams import Streams


class DrawCounts(NamedTuple):
    """Draws of single shards that workers have sent, alone or as part of a coded sum."""

    received: int
    used: int  # those that a global draw is made of


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

    def __init__(self, cells: Sequence[tuple[int, ...]]) -> None:
        self.cells = tuple(cells)
        self.n_received = [0] * len(cells)
        self.n_complete = 0
        self._payloads: list[list[Array]] = [[] for _ in cells]
        self._chains: list[list[int]] = [[] for _ in cells]
        self._n_furthest_behind = len(cells)

    def add(self, cell: int, payload: Array, chain: int = 0) -> int:
        """Take batches in, shape (n_draws, n_shards of the cell, d). Returns `n_complete`."""
        self._payloads[cell].append(payload)
        self._chains[cell].append(chain)
        before = self.n_received[cell]
        self.n_received[cell] = before + len(payload)
        if before == self.n_complete:
            self._n_furthest_behind -= 1
            if not self._n_furthest_behind:
                self.n_complete = min(self.n_received)
                self._n_furthest_behind = self.n_received.count(self.n_complete)
        return self.n_complete

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

    def consensus(self, cov_ridge: float, pairing: str = "paper", seed: int = 0) -> Array:
        """Global draws of eqs (8) and (10) from all received by now.

        There are `n_complete` of them, or `quorate.pairing.n_paired` of the batches received with
        `pairing` "all", which orders them by `seed`.
        """
        if not self.n_complete:
            return np.empty((0, 0))
        batches = [self.batches(cell) for cell in range(len(self.cells))]
        covs = [Moments.of(np.swapaxes(batch, 0, 1)).covariance(cov_ridge) for batch in batches]
        if pairing == "all":
            which = every_draw(np.array(self.n_received), Streams(seed))
            draws = [batch[order] for batch, order in zip(batches, which, strict=True)]
        else:
            draws = [batch[: self.n_complete] for batch in batches]
        return merge(consensus_weights(np.concatenate(covs)), np.concatenate(draws, axis=1))

    def draw_counts(self, pairing: str = "paper") -> DrawCounts:
        """Draws received, and those that are part of a global draw."""
        sizes = [len(cell) for cell in self.cells]
        received = sum(n * size for n, size in zip(self.n_received, sizes, strict=True))
        if pairing == "all":
            return DrawCounts(received, received if self.n_complete else 0)
        return DrawCounts(received, self.n_complete * sum(sizes))
