"""Answers about rows, put together: arrays of items and draws, in memory or in a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import IntArray
from quorate.errors import require
from quorate.numerics.named_arrays import part
from quorate.protocol.messages import Arrays
from quorate.protocol.row_questions import DRAWS, ITEMS, OBSERVED, VALUES

MOST_BYTES = 2e9  # held in memory
Places = Callable[[int, IntArray], IntArray]  # of items of a shard in the result


class Table:
    """An array of n items at draws (n_chains, n_steps), which is filled as answers come.

    It is stored item by item, so that an answer is written in one place.

    Parameters
    ----------
    n_items, shape
        Number of items; number of chains, and of draws of each.
    path
        A file for the array, in numpy's format; it is complete or absent. None for memory.
    """

    def __init__(self, n_items: int, shape: tuple[int, int], path: str | Path | None) -> None:
        self._n_items, self._shape = n_items, shape
        self._path = None if path is None else Path(path)
        self._array: NDArray[Any] | None = None

    def put(self, places: IntArray, values: NDArray[Any]) -> None:
        """Values (n_draws, k, ...) of k items, one chain after the other."""
        array = self._array
        if array is None:
            array = self._array = self._made(values)
        by_item = np.moveaxis(values, 0, 1)
        array[places] = by_item.reshape(len(places), *self._shape, *values.shape[2:])

    def done(self) -> NDArray[Any]:
        """The array as ArviZ has it: (n_chains, n_steps, n_items, ...)."""
        assert self._array is not None
        if self._path is not None:
            self._array.flush()  # type: ignore[attr-defined]
            self._partial.replace(self._path)
        return np.moveaxis(self._array, 0, 2)

    def _made(self, values: NDArray[Any]) -> NDArray[Any]:
        shape = (self._n_items, *self._shape, *values.shape[2:])
        if self._path is not None:
            partial = self._partial
            return np.lib.format.open_memmap(partial, mode="w+", dtype=values.dtype, shape=shape)
        require_memory(float(np.prod(shape)) * values.dtype.itemsize)
        return np.empty(shape, values.dtype)

    @property
    def _partial(self) -> Path:
        assert self._path is not None
        return self._path.with_name(f".{self._path.name}.partial")


def require_memory(n_bytes: float) -> None:
    """Refuse what would take too much memory."""
    require(
        n_bytes <= MOST_BYTES,
        f"All rows at all draws take {n_bytes / 1e9:.1f} GB. Give `path`, a file to write them to, "
        "or ask for fewer `draws`. loo() and waic() hold no such table.",
    )


class TableAnswers:
    """Log-likelihoods of all items."""

    def __init__(self, places: Places, table: Table) -> None:
        self._places, self.table = places, table

    def take(self, shard: int, piece: int, found: Arrays) -> None:
        if len(found[ITEMS]):
            self.table.put(self._places(shard, found[ITEMS]), found[VALUES])


class ResponseAnswers:
    """Responses of all rows by name, and what was observed."""

    def __init__(self, places: Places, n_rows: int, new: Callable[[str], Table]) -> None:
        self._places, self._n_rows, self._new = places, n_rows, new
        self.tables: dict[str, Table] = {}
        self.observed: dict[str, NDArray[Any]] = {}

    def take(self, shard: int, piece: int, found: Arrays) -> None:
        if not len(found[ITEMS]):
            return
        places = self._places(shard, found[ITEMS])
        for name, draws in part(found, DRAWS).items():
            if name not in self.tables:
                self.tables[name] = self._new(name)
            self.tables[name].put(places, draws)
        for name, values in part(found, OBSERVED).items():
            if name not in self.observed:
                shape = (self._n_rows, *values.shape[1:])
                self.observed[name] = np.empty(shape, values.dtype)
            self.observed[name][places] = values
