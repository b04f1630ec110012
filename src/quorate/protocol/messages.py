"""Messages between the coordinator and the workers. Engines and schemes meet only here.

They are named tuples rather than frozen dataclasses: as immutable, a third of the cost to make, and
a simulated experiment makes a million of them.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from numpy.typing import NDArray

from quorate._types import Array, CodedArray, IntArray

Arrays = Mapping[str, NDArray[Any]]
NOTHING: Arrays = MappingProxyType({})
RECIPE = "recipe"  # of a survey: how the shard was prepared
_FLOAT = 8  # bytes; a complex number is two of them

# ---------------------------------------------------------------- commands


class Task(NamedTuple):
    """Worker `worker` draws, and sends blocks of what its scheme makes of the draws.

    The draws are a pure function of the fields: any holder of the shards draws the same bits.
    The engine chooses how many draws go into a block; the paper sends each on its own.
    """

    worker: int
    shards: tuple[int, ...]
    chain: int  # holders of a shard on the same chain draw the same values
    first_draw: int  # l - 1
    n_draws: int
    start: Arrays | None = None  # state of the chains; None to warm up, or to continue


class Survey(NamedTuple):
    """Worker `worker` looks for the mode of its shards and for other modes, and sends them."""

    worker: int
    shards: tuple[int, ...]


class Evaluate(NamedTuple):
    """Worker `worker` evaluates the sum of the log densities of `shards` at points, and sends it.

    `points` are (n_points, d); they are points `first_point`, … of a question of a lane. With
    `coefficients`, one for each shard, the sum is weighted by them: a coded sum. With `scales`,
    powers of two (d,), gradients are wanted too, in these units. `recipes` has a row for each
    shard: how the worker that surveyed it prepared it. The model prepares the shard the same way.
    """

    worker: int
    shards: tuple[int, ...]
    lane: int
    question: int
    first_point: int
    points: Array
    scales: Array | None = None
    coefficients: CodedArray | None = None
    recipes: Array | None = None


class ShardTask(NamedTuple):
    """Worker `worker` computes something of the rows of one shard, after a run.

    `what` names the work: see `quorate.engines.workers.after`. `points` (n_points, d) are draws of
    the parameters; `numbers` (n_points,) tell which draws of the run they are, and are keys of
    randomness. `given` are other arrays that the work takes, by name. The work on a shard is cut
    into `n_pieces`, of which this is number `piece`.
    """

    worker: int
    shards: tuple[int, ...]  # one
    what: str
    piece: int
    n_pieces: int
    points: Array
    numbers: IntArray
    given: Arrays = NOTHING


class Release(NamedTuple):
    """Global draws 0, …, `n_global` - 1 are complete: L(t) of §II has grown."""

    n_global: int


class Keep(NamedTuple):
    """An answer is accepted. It is journaled before anything that follows from it is done."""

    answer: "Answer"


class Start(NamedTuple):
    """Start worker `worker`, for the `attempt`-th time after the first."""

    worker: int
    attempt: int


class Kill(NamedTuple):
    """End worker `worker` at once, if anything is left of it."""

    worker: int


class Status(StrEnum):
    """What a worker is doing, as the supervisor knows it."""

    STARTING = "starting"
    WORKING = "working"
    WAITING = "waiting"  # for a restart
    RETIRED = "retired"

    @property
    def is_down(self) -> bool:
        """Whether the worker was ended, for a while or for good."""
        return self in (Status.WAITING, Status.RETIRED)


class Happening(StrEnum):
    """What can happen to a worker."""

    LOST = "lost"  # its process ended
    FAILED = "failed"  # its code raised an error
    SILENT = "silent"  # its process gave no sign of life, or its code is stuck
    REFUSED = "refused"  # it sent what cannot be draws
    RETIRED = "retired"  # it is not started again
    QUARANTINED = "quarantined"  # its answers contradict those of others
    RESTARTED = "restarted"
    MOVED = "moved"  # it starts again on another node, through no fault of its own

    @property
    def ends_work(self) -> bool:
        """Whether the worker loses what it was doing."""
        return self is not Happening.RESTARTED

    @property
    def takes_away(self) -> bool:
        """Whether the worker is gone afterwards, for a while or for good."""
        return self.ends_work and self is not Happening.MOVED


class Note(NamedTuple):
    """Something happened to a worker that people will want to know."""

    worker: int
    what: Happening
    details: str


class Stop(NamedTuple):
    """The run ends. `finished`: all that was asked for is complete."""

    finished: bool


Question = Evaluate | Survey | ShardTask  # work with a single answer
Q = TypeVar("Q", Survey, ShardTask)
Work = Task | Evaluate | Survey | ShardTask
Command = Task | Evaluate | Survey | ShardTask | Release | Keep | Start | Kill | Note | Stop

# ---------------------------------------------------------------- events


class Block(NamedTuple):
    """Some consecutive draws of a task, as a worker sends them.

    `payload[i]` belongs to draw `first_draw + i`: draws themselves, Θ_k^l, shape
    (n_draws, n_shards, d); or one coded vector a draw, θ̃_k^l, shape (n_draws, width).
    Blocks of a task arrive in order and without gaps.
    """

    task: Task
    first_draw: int
    payload: CodedArray
    extras: Arrays = NOTHING  # what else its scheme sends, by name
    state: Arrays = NOTHING  # what has changed of the state that a worker needs to continue

    @property
    def size(self) -> int:
        """Draws in it."""
        return len(self.payload)

    @property
    def n_floats(self) -> int:
        """Numbers that its scheme sends; states are not counted, which only restarts need."""
        n_bytes = self.payload.nbytes
        if self.extras:
            n_bytes += sum(array.nbytes for array in self.extras.values())
        return n_bytes // _FLOAT

    @property
    def ends_task(self) -> bool:
        """Whether this block is the last of its task."""
        task = self.task
        return self.first_draw + len(self.payload) >= task.first_draw + task.n_draws


class Values(NamedTuple):
    """Sums of log densities at the points of a task, and of their gradients if it asks for them.

    `values` are (n_points,), `gradients` (n_points × d,). Complex codes pack two numbers of a
    gradient into one.
    The points of the task are not sent back.
    """

    task: Evaluate
    values: CodedArray
    gradients: CodedArray | None = None

    @property
    def size(self) -> int:
        """Points that it is about."""
        return len(self.values)

    @property
    def n_floats(self) -> int:
        """Numbers sent."""
        n_bytes = self.values.nbytes + (0 if self.gradients is None else self.gradients.nbytes)
        return n_bytes // _FLOAT

    @property
    def ends_task(self) -> bool:
        """Always: values come all at once."""
        return True


class _Found(NamedTuple, Generic[Q]):
    """What a worker found about shards: arrays by name."""

    task: Q
    found: Arrays

    @property
    def size(self) -> int:
        """Shards that it is about."""
        return len(self.task.shards)

    @property
    def n_floats(self) -> int:
        """Numbers sent."""
        return sum(array.size for array in self.found.values())

    @property
    def ends_task(self) -> bool:
        """Always: it comes all at once."""
        return True


class Surveyed(_Found[Survey]):
    """What a survey found, by shard and name; nothing of shards that have no mode."""

    __slots__ = ()


class ShardFound(_Found[ShardTask]):
    """What a worker found out about the rows of a shard.

    The points of the task, and what else it was given, are not sent back.
    """

    __slots__ = ()


Answer = Block | Values | Surveyed | ShardFound


class WorkerJoined(NamedTuple):
    """A worker has started and has its shards."""

    worker: int
    node: str = ""  # workers of one node answer together; by default each for itself
    process: str = ""  # workers of one process take turns; by default those of a node


class WorkerLost(NamedTuple):
    """A worker is gone, with the task it was working on."""

    worker: int
    why: str = "ended"
    with_another: bool = False  # another worker of its process was ended: it is not to blame


class WorkerMoved(NamedTuple):
    """A worker is to be started anew on another machine, at once."""

    worker: int
    why: str


class WorkerFailed(NamedTuple):
    """Code of the model or the sampler raised an error in a worker, which ends with it."""

    worker: int
    shard: int | None
    kind: str
    message: str
    traceback: str


class Doing(NamedTuple):
    """What a process is doing: one of its steps, such as an evaluation of the log density."""

    step: str  # empty while it waits for work
    seconds: float  # since when
    longest: Mapping[str, float]  # seconds that finished steps took at most, by kind


class Beat(NamedTuple):
    """A sign of life of the process of a worker; or the word that the process is stopped."""

    worker: int
    doing: Doing | None = None  # None if it could not be asked
    is_stopped: bool = False
    is_needed: bool = False  # others wait for its part of a sum, though it has no task of its own


class Tick(NamedTuple):
    """Time has passed."""


class DeadlinePassed(NamedTuple):
    """The time limit is reached."""


Event = (
    Block
    | Values
    | Surveyed
    | ShardFound
    | WorkerJoined
    | WorkerLost
    | WorkerMoved
    | WorkerFailed
    | Beat
    | Tick
    | DeadlinePassed
)
