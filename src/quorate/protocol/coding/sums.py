"""What a coded run offers to readers of draws: sums over all shards, never draws of single ones."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array
from quorate.errors import BadInputError
from quorate.merging.fit import Fit
from quorate.protocol.scheme import DrawCounts, Looks


class CodedRun(Protocol):
    """The parts in which coded runs differ; see `quorate.protocol.scheme.Received`."""

    n_complete: int

    def global_draws(self) -> Array:
        """θ^1, …, θ^L(t), shape (L(t), d)."""

    def looks(self, blocks: NDArray[np.bool_]) -> Looks | None:
        """Global draws at several moments; None to have them replayed."""

    def draw_counts(self) -> DrawCounts:
        """How many draws have arrived, and how many of them are used."""


@dataclass(frozen=True, eq=False)
class DecodedSums:
    """A coded run as `quorate.protocol.scheme.Received`."""

    run: CodedRun
    excluded: tuple[int, ...] = ()  # a sum has all shards in it

    @property
    def n_complete(self) -> int:
        return self.run.n_complete

    n_offered = n_complete
    n_chains = 1

    def global_draws(self) -> Array:
        return self.run.global_draws()

    def looks(self, blocks: NDArray[np.bool_]) -> Looks | None:
        return self.run.looks(blocks)

    def draw_counts(self) -> DrawCounts:
        return self.run.draw_counts()

    def shard_draws(self) -> list[Array]:
        return []

    def weights(self) -> None:
        return None

    def add_factor(self, draws: Array, fit: Fit | None) -> None:
        raise BadInputError("A coded sum has all shards in it. No factor can be added to it.")
