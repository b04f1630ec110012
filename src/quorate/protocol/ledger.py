"""The draws of single shards that a run has received, and the global draws they make.

Shards whose draws always arrive together form a *cell*: one shard in CMC, the r shards of a group
in G-CMC. A global draw takes one batch from every cell: in order of arrival, as in the paper, or so
that every batch is used (`quorate.merging.pairing`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array
from quorate.errors import require
from quorate.merging.centres import shift_of
from quorate.merging.consensus import consensus_weights, merge
from quorate.merging.fit import Fit, fits_among
from quorate.merging.pairing import REPEATS, check_pairing, every_draw, order_of
from quorate.merging.weights import shrunk_covariances
from quorate.numerics.linalg import check_ridge
from quorate.numerics.moments import Moments
from quorate.numerics.streams import Streams
from quorate.protocol.columns import Columns, OnDemand, Shelf, concatenated
from quorate.protocol.looks import consensus_looks, draws_seen
from quorate.protocol.messages import Arrays
from quorate.protocol.scheme import DrawCounts, Looks
from quorate.protocol.stretches import Stretch, by_chain, of_shard

WEIGHTS = ("draws", "shrunk")
_AT_ONCE = 2**22  # numbers that are merged in one go
_FEWEST_ROWS = 2**8  # global draws that are merged together, at least


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
        """Merging by the options of a scheme; weights without a ridge are shrunk by default."""
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
        self._columns = Columns()  # of batches, by cell
        self._make_shelf: Callable[[], Shelf] | None = None
        self._stretches: list[list[Stretch]] = [[] for _ in cells]
        self._fits: dict[int, Fit] = {}  # by shard
        self._cell_of_block: list[int] = []
        self._size_of_block: list[int] = []
        self._n_furthest_behind = len(cells)

    def add(self, cell: int, payload: Array, chain: int = 0, extras: Arrays | None = None) -> int:
        """Take in batches of shape (n_draws, n_shards of the cell, d). Returns `n_complete`.

        `extras` may hold the fits that warm-up found of the shards.
        """
        n_draws, before = len(payload), self.n_received[cell]
        self._columns.append(cell, payload)
        stretches = self._stretches[cell]
        if not stretches or stretches[-1].chain != chain:
            stretches.append(Stretch(chain, before))
        self._cell_of_block.append(cell)
        self._size_of_block.append(n_draws)
        if extras:
            self._fits |= fits_among(extras, self.cells[cell])
        self.n_received[cell] = before + n_draws
        if before == self.n_complete:
            self._n_furthest_behind -= 1
            if not self._n_furthest_behind:
                self._count()
        return self.n_complete

    def keep_on(self, make_shelf: Callable[[], Shelf]) -> None:
        """Keep batches outside of memory once they are many."""
        self._make_shelf = make_shelf
        self._columns.keep_on(make_shelf())

    def _count(self) -> None:
        counts = [n for cell, n in enumerate(self.n_received) if cell not in self._left_out]
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
        self._stretches.append([Stretch(0, 0)])
        self._columns.append(len(self.cells) - 1, draws[:, None])
        if fit is not None:
            self._fits[shard] = fit
        self._count()

    def batches(self, cell: int) -> Array:
        """All batches received of a cell, shape (n_received, n_shards of the cell, d).

        Of a cell that has sent none: an empty array that fits anywhere.
        """
        return self._columns.rows(cell) if cell in self._columns else np.empty((0, 1, 1))

    def shard_draws(self) -> Sequence[Array]:
        """All draws of each shard that is included, one chain after the other: (n, d), or empty.

        Draws outside of memory are put together when they are asked for, as they are now.
        """
        makers = [maker for cell in self.included for maker in self._makers(cell)]
        return OnDemand(makers) if self._columns.is_shelved else tuple(make() for make in makers)

    def _makers(self, cell: int) -> list[Callable[[], Array]]:
        """For each shard of a cell, a function that puts its draws together."""
        n_shards = len(self.cells[cell])
        if not self._stretches[cell]:
            return [partial(np.empty, (0, self._dim))] * n_shards
        known = self.batches(cell), tuple(self._stretches[cell])
        if self._columns.is_shelved:
            return [partial(of_shard, *known, i) for i in range(n_shards)]
        in_order = concatenated(by_chain(*known))
        return [partial(in_order.__getitem__, (slice(None), i)) for i in range(n_shards)]

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
        if self._has_shift(weights):
            merged += self._shift(weights, batches)
        return merged

    def first_draws(self, n: int) -> Array:
        """The first n of `global_draws`; many of them are merged in little memory."""
        n_numbers = REPEATS * n * sum(map(len, self.cells)) * self._dim
        if not self.n_complete or n_numbers <= _AT_ONCE:
            return self.global_draws()[:n]
        batches = [self.batches(cell) for cell in self.included]
        if not self.merging.every_draw:
            batches = [batch[: self.n_complete] for batch in batches]
        orders = self._orders([len(batch) for batch in batches], n)
        weights = self.weights()
        merged = np.empty((n, self._dim))
        n_rows = max(_FEWEST_ROWS, _AT_ONCE // (len(weights) * self._dim))
        for first in range(0, n, n_rows):
            some = slice(first, min(first + n_rows, n))
            picked = np.empty((some.stop - first, *weights.shape[:2]))
            shard = 0
            for of, order in zip(batches, orders, strict=True):
                picked[:, shard : shard + of.shape[1]] = of[order[some].astype(np.intp)]
                shard += of.shape[1]
            merged[some] = merge(weights, picked)
        if self._has_shift(weights):
            merged += self._shift(weights, batches)
        return merged

    def _orders(self, counts: Sequence[int], n: int) -> list[Array]:
        """Which batch of each cell goes into each of n global draws, as float64, (n,) each."""
        if not self.merging.every_draw:
            return [np.arange(float(n))] * len(counts)
        streams, kept = Streams(self.merging.seed), Columns(self._make_shelf and self._make_shelf())
        for i, count in enumerate(counts):
            kept.append(i, order_of(i, count, n, streams).astype(np.float64))
        return [kept.rows(i) for i in range(len(counts))]

    def _has_shift(self, weights: Array) -> bool:
        """Whether merged draws are centred anew; draws of one shard are right."""
        return self.merging.weights == "shrunk" and len(weights) > 1

    def _shift(self, weights: Array, batches: Sequence[Array]) -> Array:
        """What centring adds to every merged draw, (1, d)."""
        known = zip(_by_shard(batches), self._fits_included(), strict=True)
        return merge(weights, np.stack([shift_of(*of) for of in known])[None])

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
        return self._columns.row_shape[-1]

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


def _by_shard(batches: Sequence[Array]) -> list[Moments]:
    """Moments of the draws of every shard, from the batches (n, n_shards, d) of all cells."""
    return [Moments.of(draws) for batch in batches for draws in np.swapaxes(batch, 0, 1)]
