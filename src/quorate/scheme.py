"""What a scheme is: the seam between the coordinator, the workers and the algorithms."""

from collections.abc import Collection
from typing import Any, Protocol

from quorate._types import Array, CodedArray
from quorate.allocation import Allocation
from quorate.ledger import DrawCounts
from quorate.messages import Block, Task


class WorkerSide(Protocol):
    """What a scheme does at worker k, between drawing and sending."""

    def process(self, draws: Array, state: Any) -> tuple[CodedArray, Any]:
        """What is done to the draws of each shard on their own, (..., n, d).

        `state` is what the last call gave back, None at first.
        """

    def encode(self, worker: int, processed: CodedArray) -> CodedArray:
        """The payload of a block, from the processed draws of the worker's shards, (r, n, d)."""


class Scheme(Protocol):
    """What every scheme offers to the coordinator and to the workers."""

    # Data allocation

    @property
    def allocation(self) -> Allocation:
        """Who holds what."""

    # At worker k

    @property
    def worker_side(self) -> WorkerSide:
        """What is done there."""

    def chain_of(self, worker: int, shard: int) -> int:
        """The chain of `shard` that `worker` draws; on the same chain, randomness is shared."""

    # At the server

    def next_task(self, worker: int, n_draws: int | None) -> Task | None:
        """What `worker` is to do next on the way to `n_draws` global draws, if anything."""

    def receive(self, block: Block) -> int:
        """Take a block in. Returns how many global draws there are now, L(t)."""

    def take_back(self, worker: int) -> None:
        """What `worker` was asked for and has not sent is not under way any more."""

    def can_reach(self, n_draws: int, alive: Collection[int]) -> bool:
        """Whether `n_draws` global draws can be had from these workers and what was received."""

    def global_draws(self) -> Array:
        """θ^1, …, θ^L(t), shape (L(t), d), computed now; more where every draw is paired."""

    def draw_counts(self) -> DrawCounts:
        """How many draws came, and how many of them are used."""
