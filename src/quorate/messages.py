"""What the coordinator is told, and what it says. Engines and schemes meet here and nowhere else.

Named tuples rather than frozen dataclasses: as immutable, a third of the cost to make, and a
simulated experiment makes a million of them.
"""

from typing import NamedTuple

from quorate._types import CodedArray

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


class Release(NamedTuple):
    """Global draws 0, …, `n_global` - 1 are there: L(t) of §II has grown."""

    n_global: int


class Stop(NamedTuple):
    """There is nothing more to do. `finished`: all that was asked for is there."""

    finished: bool


Command = Task | Release | Stop

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


class WorkerJoined(NamedTuple):
    """A worker is there and has its shards."""

    worker: int


class WorkerLost(NamedTuple):
    """A worker is gone, with whatever it was doing."""

    worker: int


class DeadlinePassed(NamedTuple):
    """The time that was given is over."""


Event = Block | WorkerJoined | WorkerLost | DeadlinePassed
