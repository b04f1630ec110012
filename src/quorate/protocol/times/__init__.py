"""When many simulated runs finish, computed on whole arrays: a short cut past the event loop.

The planner compares many options over hundreds of realisations. Running every scheme event by event
would take minutes, so a scheme may offer the arithmetic of its finish times here. The planner
simulates schemes that do not. With blocks and tasks of one draw the times equal those of
`quorate.simulate` to rounding. With larger blocks they are approximate: a block counts when all of
it has arrived, a worker that dies loses its task, and the queue of tasks at a worker is ignored.

Arrays are over (realisation, worker, block) unless stated.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from quorate._types import Array
from quorate.numerics.streams import Streams


class Latency(Protocol):
    """Computing times of workers, and when they die; see `quorate.engines.latency`."""

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        """Times of units `first` to `first + n - 1` of every worker, shape (n_workers, n)."""

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        """When each worker dies, infinity if never. Shape (n_workers,)."""


@dataclass(frozen=True)
class Work:
    """The work of a run: how many draws, and the time of each.

    Parameters
    ----------
    latency
        Time of one draw of one shard, one time for each block of them.
    n_workers, n_draws
        K, and the global draws to get.
    block
        Draws of single shards that a worker makes and sends together.
    task
        Draws of one shard that a worker is asked for at a time, at most, where the scheme chooses
        task by task.
    warm_up
        How many draws of a shard the warm-up of its chain is worth.
    start
        Time before workers begin.
    seed
        Random seed.
    """

    latency: Latency
    n_workers: int
    n_draws: int
    block: int = 1
    task: int = 1
    warm_up: float = 0.0
    start: float = 0.0
    seed: int = 0


class Outcomes(NamedTuple):
    """For each realisation: when it finishes, infinity if never, and vectors of d floats sent."""

    times: Array
    n_vectors: Array


class Realisations:
    """Times of blocks and deaths in many runs, made on demand and shared by all schemes."""

    def __init__(self, work: Work, first: int, n: int) -> None:
        self.work = work
        self._streams = [Streams(work.seed, first + i) for i in range(n)]
        deaths = [work.latency.death_times(streams, work.n_workers) for streams in self._streams]
        self.deaths: Array = np.array(deaths)
        self._times: Array = np.empty((n, work.n_workers, 0))

    def up_to(self, n_blocks: int) -> Array:
        """Time of a draw in each of the first `n_blocks` blocks, and in some more."""
        n_known = self._times.shape[2]
        if n_blocks > n_known:
            n_more, n_workers = n_blocks - n_known, self.work.n_workers
            latency = self.work.latency
            more = [latency.times(each, n_workers, n_known, n_more) for each in self._streams]
            self._times = np.concatenate([self._times, np.array(more)], axis=2)
        return self._times
