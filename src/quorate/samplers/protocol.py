"""The protocol that every sampler implements."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from quorate._types import Array
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream

State = Mapping[str, NDArray[Any]]  # only arrays, because it is sent and stored

Determinism = Literal["exact", "pinned", "none"]
"""Which machines get the same bits for the same (seed, shard, chain, draw).

exact: all, whatever their thread count, BLAS and instruction set, except for ties that rounding
decides, which are as rare as rounding errors are small. pinned: those with the same versions,
instruction set and threads. none: no guarantee.
"""


class Sampler(Protocol):
    """Draws blocks from a target. A block is a pure function of its arguments."""

    @property
    def name(self) -> str:
        """Name of the sampler, as users write it."""

    @property
    def determinism(self) -> Determinism:
        """Guarantee about bits."""

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        """State of a chain before its first draw."""

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        """The next n draws, shape (n, dim), and the state after them.

        `state["index"]` is the index of the next draw, and the key of its random numbers. So one
        block of 100 draws has the same bits as ten blocks of 10.
        """
