"""What a sampler is: the seam between targets, workers and the algorithms in `samplers`."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from quorate._types import Array
from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream

State = Mapping[str, NDArray[Any]]  # arrays and nothing else: it travels, and is kept on disk

Determinism = Literal["exact", "pinned", "none"]
"""Who gets the same bits for the same (seed, shard, chain, draw).

exact: everyone, whatever the thread count, BLAS and instruction set, but for ties decided by
rounding, which are as rare as rounding errors are small. pinned: everyone with the same versions,
instruction set and threads. none: nobody is promised anything.
"""


class Sampler(Protocol):
    """Draws from a target in blocks. A block is a pure function of what it is given."""

    @property
    def name(self) -> str:
        """As users write it."""

    @property
    def determinism(self) -> Determinism:
        """What is promised about bits."""

    def warm_up(self, target: Target, stream: ChainStream) -> State:
        """All that a chain needs before its first draw."""

    def draw(
        self, target: Target, state: State, stream: ChainStream, n: int
    ) -> tuple[Array, State]:
        """The next n draws, shape (n, dim), and the state after them.

        `state["index"]` is the index of the next draw. Randomness is found by that index, so that
        one block of 100 and ten blocks of 10 are the same bits.
        """
