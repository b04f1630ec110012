"""Draws received, and how many global draws they make.

Shards whose draws always come together form a *cell*: one shard in CMC, the r shards of a group in
G-CMC. A global draw takes one batch from every cell: in order of arrival, as in the paper, or so
that every batch is used (`quorate.merging.pairing`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.merging.centres import shift_of
from quorate.merging.consensus import consensus_weights, merge
from quorate.merging.fit import Fit, fits_among
from quorate.merging.pairing import check_pairing, every_draw
from quorate.merging.weights import shrunk_covariances
from quorate.numerics.linalg import check_ridge
from quorate.numerics.moments import Moments
from quorate.numerics.streams import Streams
from quorate.protocol.messages import Arrays

WEIGHTS = ("draws", "shrunk")


class DrawCounts(NamedTuple):
    """Draws of single shards that workers have sent, alone or as part of a coded sum."""

    received: int
    used: int  # those that a global draw is made of


@dataclass(frozen=True)
class Merging:
    """How draws of shards become global draws.

    Parameters
    ----------
    cov_ridge
        σ² on every Ĉ, with weights "draws".
    pairing, seed
        One of `quorate.merging.pairing.PAIRINGS`, and by which randomness.
    weights
        What Ĉ is estimated from: "draws" as in the paper, or "shrunk" towards what warm-up found,
        see `quorate.merging.weights`.
    """

    cov_ridge: float = 0.0
    pairing: str = "paper"
    seed: int = 0
    weights: str = "draws"

    def __post_init__(self) -> None:
        check_ridge("cov_ridge", self.cov_ridge)
        check_pairing(self.pairing)
        choices = " or ".join(WEIGHTS)
        require(self.weights in WEIGHTS, "weights", self.weights, f"choose {choices}")
        alone = "a ridge has no part in shrunk weights: use weights='draws'"
        require(self.weights == "draws" or not self.cov_ridge, "cov_ridge", self.cov_ridge, alone)


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
    excluded
        Cells that have no part in global draws, since nobody is left who holds them.
    """

    def __init__(self, cells: Sequence[tuple[int, ...]], merging: Merging | None = None) -> None:
        self.cells = list(cells)
        self.merging = merging or Merging()
        self.n_received = [0] * len(cells)
        self.n_complete = 0
        self.excluded: set[int] = set()
        self._payloads: list[list[Array]] = [[] for _ in cells]
        self._chains: list[list[int]] = [[] for _ in cells]
        self._fits: dict[int, Fit] = {}  # by shard
        self._n_furthest_behind = len(cells)

    def add(self, cell: int, payload: Array, chain: int = 0, extras: Arrays | None = None) -> int:
        """Take batches in, shape (n_draws, n_shards of the cell, d). Returns `n_complete`.

        `extras` may have what warm-up found of the shards.
        """
        self._payloads[cell].append(payload)
        self._chains[cell].append(chain)
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
        return [cell for cell in range(len(self.cells)) if cell not in self.excluded]

    def exclude(self, cells: Collection[int]) -> int:
        """Leave cells out from now on, not all of them. Returns `n_complete`."""
        self.excluded |= set(cells)
        self._count()
        return self.n_complete

    def include_all(self) -> int:
        """Leave nothing out any more. Returns `n_complete`."""
        self.excluded.clear()
        self._count()
        return self.n_complete

    def append(self, draws: Array, fit: Fit | None) -> None:
        """One more shard, of which all draws are there: shape (n_draws, d)."""
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

    def consensus(self) -> Array:
        """Global draws of eqs (8) and (10) from all received by now.

        There are `n_complete` of them, or `quorate.merging.pairing.n_paired` of the batches
        received with
        pairing "all".
        """
        if not self.n_complete:
            return np.empty((0, 0))
        batches = [self.batches(cell) for cell in self.included]
        if self.merging.pairing == "all":
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

    def draw_counts(self) -> DrawCounts:
        """Draws received, and those that are part of a global draw."""
        sizes = [len(cell) for cell in self.cells]
        received = sum(n * size for n, size in zip(self.n_received, sizes, strict=True))
        if self.merging.pairing == "all":
            return DrawCounts(received, received if self.n_complete else 0)
        return DrawCounts(received, self.n_complete * sum(sizes[cell] for cell in self.included))


def _by_shard(batches: Sequence[Array]) -> list[Moments]:
    """Moments of the draws of every shard, from the batches (n, n_shards, d) of all cells."""
    return [Moments.of(draws) for batch in batches for draws in np.swapaxes(batch, 0, 1)]
