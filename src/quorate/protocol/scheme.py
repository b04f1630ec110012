"""What a scheme is: the seam between the coordinator, the workers and the algorithms."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from quorate._types import Array, CodedArray
from quorate.merging.fit import Fit
from quorate.protocol.allocation import Allocation
from quorate.protocol.ledger import DrawCounts
from quorate.protocol.messages import NOTHING, Arrays, Block, Task


class Processed(NamedTuple):
    """Draws of some shards, each shard processed on its own: the first axis of every array.

    `vectors` are (n_shards, n, …), for consecutive draws; so are those of `by_draw`, by name.
    `once[draw]` is what is sent once, in the block that has this draw.
    """

    vectors: CodedArray
    by_draw: Arrays = NOTHING
    once: Mapping[int, Arrays] = MappingProxyType({})

    def part(self, shards: slice | list[int], first: int, end: int) -> "Processed":
        """Of some shards, the draws `first` to `end` - 1, where 0 is the first there is."""
        by_draw = {name: array[shards][:, first:end] for name, array in self.by_draw.items()}
        once = {
            draw: {name: array[shards] for name, array in arrays.items()}
            for draw, arrays in self.once.items()
            if first <= draw < end
        }
        return Processed(self.vectors[shards][:, first:end], by_draw, once)

    def followed_by(self, later: "Processed") -> "Processed":
        """These draws and those that come after them."""
        by_draw = {
            name: np.concatenate([array, later.by_draw[name]], axis=1)
            for name, array in self.by_draw.items()
        }
        vectors = np.concatenate([self.vectors, later.vectors], axis=1)
        return Processed(vectors, by_draw, {**self.once, **later.once})


class WorkerSide(Protocol):
    """What a scheme does at worker k, between drawing and sending.

    It keeps nothing itself. What it has to remember is a state: arrays by name, which travel, so
    that any other worker can go on from there. An array is never changed once it is in a state.
    """

    def start(self, fits: Sequence[Fit | None]) -> Arrays:
        """The state before the first draw, for shards with these fits of warm-up."""

    def process(self, draws: Array, state: Arrays) -> tuple[Processed, Arrays]:
        """What is done to the next draws of each shard on their own, (n_shards, n, d)."""

    def encode(self, worker: int, processed: Processed) -> tuple[CodedArray, Arrays]:
        """Payload and extras of a block, from the processed draws of the worker's shards."""

    def payload_shapes(self, n_shards: int, dim: int) -> Collection[tuple[int, ...]]:
        """What the payload of one draw of so many shards may look like."""


NOBODY: Mapping[int, str] = MappingProxyType({})


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

    @property
    def shares_starts(self) -> bool:
        """Whether a chain may begin where another of its shard stands, and not warm up itself."""

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

    def exclude(self, n_draws: int, alive: Collection[int]) -> int:
        """Leave out the shards that stand in the way of that, if not all do. Returns L(t)."""

    @property
    def quarantined(self) -> Mapping[int, str]:
        """Workers that were found to send what is wrong, with reasons; nobody in most schemes."""

    def global_draws(self) -> Array:
        """θ^1, …, θ^L(t), shape (L(t), d), computed now; more where every draw is paired."""

    def draw_counts(self) -> DrawCounts:
        """How many draws came, and how many of them are used."""
