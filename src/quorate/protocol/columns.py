"""Arrays that grow at their ends: in memory at first, and on a shelf once they are large.

A shelf is a long row of numbers outside of memory: a file. A column lies there in one piece. A
column that outgrows its place moves to a new one with twice the room, so numbers are written about
twice. An array that was read before stays as it is.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol, overload

import numpy as np

from quorate._types import Array

IN_MEMORY = 2**22  # numbers that are kept in memory before they are moved to the shelf


class Shelf(Protocol):
    """Numbers that are kept outside of memory, by their positions."""

    def write(self, first: int, numbers: Array) -> None:
        """Write numbers to positions that have none yet. Raises `OSError` if that fails."""

    def read(self, first: int, n: int) -> Array:
        """Numbers that were written, (n,), without a copy of them in memory."""


@dataclass
class _Column:
    """Rows of one shape. The first `n_shelved` are on the shelf, the others are here."""

    shape: tuple[int, ...]
    rows: list[Array] = field(default_factory=list)
    first: int = 0
    n_shelved: int = 0
    n_room: int = 0


class Columns:
    """Columns of rows of float64, by key; `is_shelved` says whether some were moved to the shelf.

    >>> columns = Columns()
    >>> columns.append("a", np.zeros((5, 2)))
    >>> columns.rows("a").shape
    (5, 2)

    Parameters
    ----------
    shelf
        Where rows go that are too many for memory; None to keep all in memory.
    """

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf
        self._columns: dict[Hashable, _Column] = {}
        self._n_in_memory = 0  # numbers
        self._end = 0  # of the shelf
        self._has_failed = False
        self.is_shelved = False

    def __contains__(self, key: Hashable) -> bool:
        return key in self._columns

    def keep_on(self, shelf: Shelf) -> None:
        """Use this shelf from now on. There must be none yet."""
        assert self._shelf is None
        self._shelf = shelf

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row of the first column; (0,) if there is no column."""
        return next((column.shape for column in self._columns.values()), (0,))

    def append(self, key: Hashable, rows: Array) -> None:
        """Add rows, (n, ...), to the end of a column."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Column(rows.shape[1:])
        column.rows.append(rows)
        self._n_in_memory += rows.size
        if self._n_in_memory > IN_MEMORY:
            self._shelve(self._columns.values())

    def rows(self, key: Hashable) -> Array:
        """All rows of a column. If they are on the shelf they take no memory of their own."""
        column = self._columns[key]
        if column.n_shelved:
            self._shelve([column])
            return concatenated([self._shelved(column), *column.rows])
        column.rows = [concatenated(column.rows)]  # so that rows are held once
        return column.rows[0]

    def _shelved(self, column: _Column) -> Array:
        assert self._shelf is not None
        n_numbers = column.n_shelved * prod(column.shape)
        return self._shelf.read(column.first, n_numbers).reshape(-1, *column.shape)

    def _shelve(self, columns: Iterable[_Column]) -> None:
        """Move rows to the shelf. Once it fails, as on a full disk, rows stay in memory."""
        if self._shelf is None or self._has_failed:
            return
        try:
            for column in columns:
                if column.rows:
                    self._move(self._shelf, column)
        except OSError:
            self._has_failed = True

    def _move(self, shelf: Shelf, column: _Column) -> None:
        size, rows = prod(column.shape), concatenated(column.rows)
        n_rows = column.n_shelved + len(rows)
        if n_rows > column.n_room:
            first, self._end = self._end, self._end + 2 * n_rows * size
            if column.n_shelved:
                shelf.write(first, self._shelved(column).reshape(-1))
            column.first, column.n_room = first, 2 * n_rows
        shelf.write(column.first + column.n_shelved * size, rows.reshape(-1))
        column.n_shelved, column.rows, self.is_shelved = n_rows, [], True
        self._n_in_memory -= rows.size


class OnDemand(Sequence[Array]):
    """Arrays that are put together when they are asked for, and not kept.

    Parameters
    ----------
    make
        One function for each array.
    """

    def __init__(self, make: Sequence[Callable[[], Array]]) -> None:
        self._make = tuple(make)

    def __len__(self) -> int:
        return len(self._make)

    @overload
    def __getitem__(self, index: int) -> Array: ...

    @overload
    def __getitem__(self, index: slice) -> "OnDemand": ...

    def __getitem__(self, index: int | slice) -> "Array | OnDemand":
        if isinstance(index, slice):
            return OnDemand(self._make[index])
        return self._make[index]()


def concatenated(arrays: Sequence[Array]) -> Array:
    """`np.concatenate`, without a copy of a single array."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
