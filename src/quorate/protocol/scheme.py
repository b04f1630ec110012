"""What a scheme is: the seam between the algorithms and all that runs, times and reads them.

A scheme has two halves. `SchemeOptions` is what a user writes, such as `Coded(redundancy=3)`. Its
`start` makes a `Scheme`, the state machine of one run.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, CodedArray, IntArray
from quorate.merging.fit import Fit
from quorate.numerics.named_arrays import AnyArray
from quorate.protocol.allocation import Allocation
from quorate.protocol.columns import Shelf
from quorate.protocol.messages import NOTHING, Arrays, Work
from quorate.protocol.sums import Sums
from quorate.protocol.times import Outcomes, Realisations


class Processed(NamedTuple):
    """Draws of some shards, each shard processed on its own: the first axis of every array.

    `vectors` are (n_shards, n, …), for consecutive draws; so are those of `by_draw`, by name.
    `once[draw]` is what is sent once, in the block that has this draw.
    """

    vectors: CodedArray
    by_draw: Arrays = NOTHING
    once: Mapping[int, Arrays] = MappingProxyType({})

    def part(self, shards: slice | list[int], first: int, end: int) -> "Processed":
        """Draws `first` to `end` - 1 of some shards; 0 is the first draw in this object."""
        vectors = self.vectors[shards, first:end]
        if not self.by_draw and not self.once:
            return Processed(vectors)
        by_draw = {name: array[shards, first:end] for name, array in self.by_draw.items()}
        once = {
            draw: {name: array[shards] for name, array in arrays.items()}
            for draw, arrays in self.once.items()
            if first <= draw < end
        }
        return Processed(vectors, by_draw, once)

    def followed_by(self, later: "Processed") -> "Processed":
        """Concatenate these draws and `later` ones."""
        by_draw = {
            name: np.concatenate([array, later.by_draw[name]], axis=1)
            for name, array in self.by_draw.items()
        }
        vectors = np.concatenate([self.vectors, later.vectors], axis=1)
        return Processed(vectors, by_draw, {**self.once, **later.once})


class WorkerSide(Protocol):
    """What a scheme does at worker k, between drawing and sending.

    It keeps nothing itself. What it must remember is a state: arrays by name, which travel with
    blocks, so that any other worker can continue. An array in a state is never changed.
    """

    def start(self, fits: Sequence[Fit | None]) -> Arrays:
        """The state before the first draw, for shards with these fits of warm-up."""

    def process(self, draws: Array, state: Arrays) -> tuple[Processed, Arrays]:
        """Process the next draws of each shard on its own, (n_shards, n, d)."""

    def encode(self, worker: int, processed: Processed) -> tuple[CodedArray, Arrays]:
        """Payload and extras of a block, from the processed draws of the worker's shards."""

    def payload_shapes(self, n_shards: int, dim: int) -> Collection[tuple[int, ...]]:
        """Shapes that the payload of one draw of so many shards may have."""


NOBODY: Mapping[int, str] = MappingProxyType({})


class DrawCounts(NamedTuple):
    """Draws of single shards that workers have sent, alone or as part of a coded sum."""

    received: int
    used: int  # those that a global draw is made of


class Looks(NamedTuple):
    """Global draws as they were at several moments.

    `draws[m, :counts[m]]` are those of moment m, shape (n_moments, most of them, d); the rest is 0.
    """

    draws: Array
    counts: IntArray


class Received(Protocol):
    """All draws that a run has received, and the global draws that they make."""

    @property
    def n_complete(self) -> int:
        """L(t), the number of global draws that are complete."""

    @property
    def n_offered(self) -> int:
        """Global draws that a run which ends now may give: L(t), or more if draws are re-paired."""

    @property
    def n_chains(self) -> int:
        """Chains that global draws come from, in turn; 1 if they are merged."""

    def global_draws(self) -> Array:
        """θ^1, …, θ^L(t), shape (L(t), d), computed now; more where every draw is paired."""

    def looks(self, blocks: NDArray[np.bool_]) -> Looks | None:
        """Global draws at several moments, by a short cut; None to have blocks replayed.

        `blocks[m, i]` says whether the i-th block received counts at moment m, (n_moments,
        n_blocks). Of the blocks for the same shards the first ones count, and a block that counts
        at a moment counts at all later ones.
        """

    def draw_counts(self) -> DrawCounts:
        """How many draws have arrived, and how many of them are used."""

    def shard_draws(self) -> Sequence[Array]:
        """Draws of each included shard, one chain after the other, (n, d); none if only sums come.

        A factor that was added with `add_factor` comes last.
        """

    def weights(self) -> Array | None:
        """W_s of eq. (6) of the included shards, (n_shards, d, d); None if only sums come."""

    @property
    def excluded(self) -> tuple[int, ...]:
        """Shards that global draws leave out."""

    def add_factor(self, draws: Array, fit: Fit | None) -> None:
        """Add one more factor of the posterior, of which all draws are known: shape (n, d)."""


@runtime_checkable
class FirstDraws(Protocol):
    """What `Received` may offer besides: the first global draws, in less memory than all."""

    def first_draws(self, n: int) -> Array:
        """The first n of `Received.global_draws`."""


@runtime_checkable
class CanShelve(Protocol):
    """What `Received` may offer besides: to keep draws outside of memory."""

    def keep_on(self, make_shelf: Callable[[], Shelf]) -> None:
        """Keep draws on a shelf once they are many."""


class Schedule(Protocol):
    """What the coordinator needs: who holds what, who does what next, and when it is enough."""

    @property
    def allocation(self) -> Allocation:
        """Which worker holds which shards."""

    def next_task(self, worker: int, n_draws: int | None) -> Work | None:
        """The next task of `worker` on the way to `n_draws` global draws, if there is one."""

    def receive(self, answer: Any) -> int:
        """Take in an answer. Returns the number of complete global draws, L(t)."""

    def take_back(self, worker: int) -> None:
        """Forget what `worker` was asked for and has not sent."""

    def out_of_reach(self, n_draws: int, alive: Collection[int]) -> tuple[int, ...]:
        """Shards for which `alive` workers and what was received can never give `n_draws` draws."""

    def leave_out(self, shards: Collection[int]) -> int:
        """Make global draws without exactly these shards from now on. Returns L(t)."""

    @property
    def quarantined(self) -> Mapping[int, str]:
        """Workers found to send wrong answers, with reasons; nobody in most schemes."""


class Scheme(Schedule, Protocol):
    """One run of a scheme: what the coordinator, the workers and all readers of draws need."""

    # At worker k

    @property
    def worker_side(self) -> WorkerSide:
        """What a worker does between drawing and sending."""

    @property
    def shares_starts(self) -> bool:
        """Whether a chain may start where another chain of its shard is, without a warm-up."""

    def chain_of(self, worker: int, shard: int) -> int:
        """The chain of `shard` that `worker` draws; on the same chain, randomness is shared."""

    # At the server

    @property
    def received(self) -> Received:
        """The draws received, and what they make."""


@runtime_checkable
class CanGoAhead(Protocol):
    """What a `Scheme` may offer besides: to save its state, and to go on from it at once."""

    def replay_work(self) -> int:
        """How much there is to replay, in evaluations of one point on all shards."""

    def state(self) -> dict[str, AnyArray]:
        """What a replay of all answers so far would lead to; nothing if that takes no time."""

    def go_ahead_to(self, state: Mapping[str, AnyArray]) -> None:
        """Only count the answers that are replayed from now on, until `arrive`."""

    def arrive(self) -> None:
        """Go on from the state; ValueError if it does not fit the answers that were counted."""


@dataclass(frozen=True)
class Setup:
    """What a scheme needs to know of a run besides its own options.

    Parameters
    ----------
    n_workers, dim
        K and d.
    n_draws
        Global draws that will be asked for; None for a run that only time ends.
    block_size
        Draws that a worker is asked for at a time, where the scheme chooses task by task.
    seed
        Key of all that a scheme does at random.
    """

    n_workers: int
    dim: int
    n_draws: int | None = None
    block_size: int = 1
    seed: int = 0


class SchemeOptions(Protocol):
    """A scheme as a user chooses it: a frozen dataclass whose fields are its options.

    The fields are JSON values, so that the journal can keep them. Class attributes describe the
    scheme to figures, the planner and the checks of settings.

    Attributes
    ----------
    name, label, colour
        As users write it, as figures call it, and the colour of its curves, such as "#0072b2".
    published
        Options with which the paper's experiments run it, where they are not the defaults.
    needs_common_randomness
        Whether all holders of a shard must draw the same bits.
    can_leave_out
        Whether a run can continue without shards that nobody holds any more.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    colour: ClassVar[str]
    published: ClassVar[Mapping[str, Any]]
    needs_common_randomness: ClassVar[bool]
    can_leave_out: ClassVar[bool]

    def shards_per_worker(self, n_workers: int) -> int:
        """r, the number of shards that each of K workers holds."""

    def survives(self, n_workers: int) -> int:
        """How many workers a run can lose for sure, whichever they are."""

    def start(self, setup: Setup) -> Scheme:
        """A new run of the scheme."""

    def sums(self, n_workers: int, seed: int) -> Sums:
        """How passes over the posterior sum over all shards; `AnyHolder` for most schemes."""

    def finish_times(self, realisations: Realisations) -> Outcomes | None:
        """When each of many simulated runs finishes, by a short cut; None to have it simulated."""
