"""Questions about rows after a run: their log-likelihoods, criteria made of them, and responses.

One piece of work is a block of rows, or of groups, at all points. An answer has `items`: the places
of its rows in their shard, or the codes of its groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.numerics.named_arrays import part
from quorate.protocol.messages import Arrays, ShardFound, ShardTask

BLOCK = 1000  # rows of one piece of work
ITEMS, VALUES, DRAWS, OBSERVED = "items", "values", "draws", "observed"
CRITERIA = ("elpd", "pareto_k", "lppd", "variance")
RowWork = Literal["log_likelihood", "criteria", "responses"]
By = Literal["row", "group"]


@dataclass(frozen=True, eq=False)
class RowQuestion:
    """Something about all rows, or about all groups.

    Parameters
    ----------
    what
        `log_likelihood` at each point; `criteria`, made of all points; or `responses`.
    by
        Whether an item is a row or a group.
    points
        Draws of the parameters, (n_points, d).
    numbers
        Which draws of the run these are, (n_points,).
    given
        What else the work takes.
    sizes
        Number of rows of each shard to ask for.
    block
        Rows of one piece of work, about.
    """

    what: RowWork
    by: By
    points: Array
    numbers: IntArray
    given: Arrays = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    block: int = BLOCK

    @property
    def shards(self) -> tuple[int, ...]:
        """Shards to ask for."""
        return tuple(self.sizes)

    def pieces_of(self, shard: int) -> int:
        """Number of blocks that the rows or groups of a shard are cut into."""
        return max(1, -(-self.sizes[shard] // self.block))

    def task(self, worker: int, shard: int, piece: int) -> ShardTask:
        """One piece of work, for a worker."""
        what, n_pieces = f"{self.what}_by_{self.by}", self.pieces_of(shard)
        fields = (what, piece, n_pieces, self.points, self.numbers, self.given)
        return ShardTask(worker, (shard,), *fields)

    def fault_in(self, answer: ShardFound) -> str:
        """Why an answer cannot be one; an empty string if it can."""
        found = dict(answer.found)
        items = found.pop(ITEMS, None)
        if items is None or items.ndim != 1 or items.dtype.kind != "i":
            return "an answer about rows does not say which rows"
        if self.what == "responses":
            return self._fault_in_responses(found, len(items))
        wanted = (VALUES,) if self.what == "log_likelihood" else CRITERIA
        if set(found) != set(wanted):
            return f"an answer about rows has {', '.join(found)}"
        shape = (len(self.points), len(items)) if self.what == "log_likelihood" else (len(items),)
        return "".join(_fault(name, found[name], shape) for name in wanted)

    def _fault_in_responses(self, found: Arrays, n_items: int) -> str:
        draws, observed = part(found, DRAWS), part(found, OBSERVED)
        if len(draws) + len(observed) != len(found) or not draws:
            return f"responses have {', '.join(found)}"
        shape = (len(self.points), n_items)
        faults = [_fault(name, array, shape) for name, array in draws.items()]
        faults += [_fault(name, array, shape[1:]) for name, array in observed.items()]
        return "".join(faults)


def _fault(name: str, array: NDArray[np.float64], shape: tuple[int, ...]) -> str:
    """Why an array cannot be an answer; its first axes must have this shape."""
    if array.shape[: len(shape)] != shape:
        return f"{name} have shape {array.shape}, where it should begin with {shape}"
    if name != "pareto_k" and array.dtype.kind == "f" and np.isnan(array).any():
        return f"{name} are not numbers"
    return ""
