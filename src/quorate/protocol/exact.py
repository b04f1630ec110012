"""Exact draws as a scheme: passes over the posterior, and the draws of the ensemble they make."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array
from quorate.merging.fit import Fit
from quorate.passes.inquiry import Inquiry
from quorate.protocol.messages import Arrays
from quorate.protocol.passes import PassSchedule
from quorate.protocol.scheme import DrawCounts
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.sums import Sums
from quorate.trust.shards import Estimate


class EnsembleDraws:
    """The draws of an ensemble, as the readers of a run see them."""

    excluded: tuple[int, ...] = ()

    def __init__(self, schedule: PassSchedule, inquiry: Inquiry) -> None:
        self._schedule = schedule
        self._inquiry = inquiry

    @property
    def n_complete(self) -> int:
        return self._schedule.n_complete

    @property
    def n_offered(self) -> int:
        return self._schedule.n_complete

    @property
    def n_chains(self) -> int:
        return max(self._inquiry.n_chains, 1)

    def global_draws(self) -> Array:
        return self._inquiry.draws()

    def looks(self, blocks: NDArray[np.bool_]) -> None:
        """None: there is no short cut."""

    def draw_counts(self) -> DrawCounts:
        """Points at which single shards were evaluated, because nothing is drawn from them."""
        return DrawCounts(self._schedule.n_points, self._schedule.n_points_used)

    def shard_draws(self) -> list[Array]:
        return []

    def weights(self) -> None:
        """None: nothing is merged."""

    def add_factor(self, draws: Array, fit: Fit | None) -> None:
        """Nothing: no shard is ever left out."""


class ExactScheme(PassSchedule):
    """One exact run, with any scheme's way to sum over shards."""

    shares_starts = False
    worker_side = SendDraws()  # of no use: workers evaluate

    def __init__(self, sums: Sums, inquiry: Inquiry, devices: Collection[int] = ()) -> None:
        super().__init__(sums, inquiry, needs_surveys=True, devices=devices)
        self.inquiry = inquiry
        self.received = EnsembleDraws(self, inquiry)

    def chain_of(self, worker: int, shard: int) -> int:
        return 0

    def extend(self, n_draws: int) -> None:
        """Ask for more draws in all."""
        self.inquiry.extend(n_draws)
        for lane in list(self._blocks):
            self._blocks.pop(lane)
        self._open_questions()

    def other_modes(self) -> list[Array]:
        """Modes of each shard besides the one that its survey started from, (n, d) each."""
        none = np.empty((0, self.inquiry.dim))
        return [np.asarray(found.get("other_modes", none)) for found in self._found()]

    def fits(self) -> list[Estimate | None]:
        """The Gaussian fit of each shard; None where its survey found none."""
        return [
            Estimate(found["mode"], found["lower"] @ found["lower"].T) if "lower" in found else None
            for found in self._found()
        ]

    def _found(self) -> list[Arrays]:
        """What the survey of each shard found; nothing if there was none."""
        return [self._surveys.get(s, {}) for s in range(self.allocation.n_shards)]
