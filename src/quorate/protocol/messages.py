"""What the coordinator is told, and what it says. Engines and schemes meet here and nowhere else.

Named tuples rather than frozen dataclasses: as immutable, a third of the cost to make, and a
simulated experiment makes a million of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from numpy.typing import NDArray

from quorate._types import CodedArray

Arrays = Mapping[str, NDArray[Any]]
NOTHING: Arrays = MappingProxyType({})
POINTS = "points"  # what a task starts from that asks for log densities, at these, not for draws

# ---------------------------------------------------------------- commands


class Task(NamedTuple):
    """Worker `worker` is to draw, and to send blocks of what its scheme makes of the draws.

    The draws are a pure function of its fields: any holder of the shards draws the same bits.
    How many draws go into a block is for the engine to choose; the paper sends each on its own.
    """

    worker: int
    shards: tuple[int, ...]
    chain: int  # holders of a shard on the same chain draw the same values
    first_draw: int  # l - 1
    n_draws: int
    start: Arrays | None = None  # where the chains stand; None to warm up, or to go on


class Release(NamedTuple):
    """Global draws 0, …, `n_global` - 1 are there: L(t) of §II has grown."""

    n_global: int


class Keep(NamedTuple):
    """A block counts: it is to be kept before anything that follows from it is done."""

    block: "Block"


class Start(NamedTuple):
    """Worker `worker` is to be started, for the `attempt`-th time after the first."""

    worker: int
    attempt: int


class Kill(NamedTuple):
    """Worker `worker` is to be ended at once, if there is anything left of it."""

    worker: int


class Note(NamedTuple):
    """Something happened to a worker that people will want to know."""

    worker: int
    what: str  # lost, failed, silent, refused, restarted, retired
    details: str


class Stop(NamedTuple):
    """There is nothing more to do. `finished`: all that was asked for is there."""

    finished: bool


Command = Task | Release | Keep | Start | Kill | Note | Stop

# ---------------------------------------------------------------- events


class Block(NamedTuple):
    """Some consecutive draws of a task, as a worker sends them.

    `payload[i]` belongs to draw `first_draw + i`: draws themselves, Θ_k^l, shape
    (n_draws, n_shards, d); or one coded vector a draw, θ̃_k^l, shape (n_draws, width).
    Blocks of a task come in order and without gaps.
    """

    task: Task
    first_draw: int
    payload: CodedArray
    extras: Arrays = NOTHING  # what else its scheme sends, by name
    state: Arrays = NOTHING  # what has changed of all that a worker needs to go on from here

    @property
    def n_floats(self) -> int:
        """Numbers that its scheme has it send; states are not counted, which only restarts need."""
        n = _n_floats(self.payload)
        return n + sum(map(_n_floats, self.extras.values())) if self.extras else n


def _n_floats(array: NDArray[Any]) -> int:
    return array.size * 2 if array.dtype.kind == "c" else array.size


class WorkerJoined(NamedTuple):
    """A worker is there and has its shards."""

    worker: int


class WorkerLost(NamedTuple):
    """A worker is gone, with whatever it was doing."""

    worker: int
    why: str = "ended"


class WorkerFailed(NamedTuple):
    """Code of the model or the sampler raised an error in a worker, which ends with it."""

    worker: int
    shard: int | None
    kind: str
    message: str
    traceback: str


class Tick(NamedTuple):
    """Time has passed."""


class DeadlinePassed(NamedTuple):
    """The time that was given is over."""


Event = Block | WorkerJoined | WorkerLost | WorkerFailed | Tick | DeadlinePassed
