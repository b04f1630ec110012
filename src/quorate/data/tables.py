"""Tables of rows, from arrays, data frames, Arrow tables or files, read batch by batch.

A batch is a dict of numpy arrays, rows first. Data frames and Arrow tables are read through
narwhals, which imports none of the libraries that they come from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Progress
from quorate.data.files import (
    BATCH_BYTES,
    STRING_BYTES,
    Columns,
    Files,
    find_files,
    require_once,
    to_numpy,
)
from quorate.data.row_groups import RowGroups
from quorate.errors import BadInputError, require


class Table(Protocol):
    """Rows with named columns, which can be read more than once."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def n_rows(self) -> int:
        """N."""

    @property
    def rows_per_file(self) -> tuple[int, ...]:
        """Number of rows of each file, in the order of reading; empty for data in memory."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in the order of reading; empty for data in memory."""

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """All rows of the named columns, in order, some megabytes at a time."""


@dataclass(frozen=True)
class InMemory:
    """A table in memory.

    Parameters
    ----------
    part
        Function of (position of a column, first row, end) that returns the values, rows first.
    """

    names: tuple[str, ...]
    n_rows: int
    part: Callable[[int, int, int], NDArray[Any]]

    @property
    def rows_per_file(self) -> tuple[int, ...]:
        """Always empty."""
        return ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Always empty."""
        return ()

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        positions = {name: self.names.index(name) for name in names}
        rows = [self.part(position, 0, 1) for position in positions.values()]
        row_bytes = sum(STRING_BYTES if row.dtype.kind == "O" else row.nbytes for row in rows)
        step = max(1, BATCH_BYTES // max(1, row_bytes))
        for start in range(0, self.n_rows, step):
            end = min(start + step, self.n_rows)
            yield {name: self.part(position, start, end) for name, position in positions.items()}


def open_table(data: object) -> Table:
    """`data` as a table. `quorate.data.write.write_shards` lists the kinds of data."""
    table = _recognised(data)
    require(bool(table.names), f"The {_kind(data)} has no columns. Give at least one.")
    twice = sorted({name for name in table.names if table.names.count(name) > 1})
    require(not twice, f"Names of columns must differ. Rename {', '.join(twice)}.")
    require(table.n_rows > 0, f"The {_kind(data)} has no rows. Give at least one for each shard.")
    return table


def _recognised(data: object) -> Table:
    if isinstance(data, RowGroups):
        return data
    if isinstance(data, Mapping):
        return _from_arrays(data)
    if isinstance(data, str | Path):
        return Files.of(find_files(data))
    if isinstance(data, list | tuple) and all(isinstance(path, str | Path) for path in data):
        files = [file for path in data for file in find_files(path)]
        require_once([str(file.resolve()) for file in files])
        return Files.of(files)
    import narwhals  # takes long to import, and arrays and files do without it

    try:
        frame = narwhals.from_native(data, eager_only=True, pass_through=True)
    except narwhals.exceptions.DuplicateError as error:
        said = " ".join(str(error).split())
        raise BadInputError(f"Names of columns must differ. {said}. Rename these.") from None
    if isinstance(frame, narwhals.DataFrame):
        return _from_frame(frame)
    raise BadInputError(
        f"data cannot be a {_kind(data)}. Give a dict of arrays such as {{'x': x, 'y': y}}, a "
        "pandas or polars DataFrame, a pyarrow Table, or the path of Parquet or CSV files."
    )


def _kind(data: object) -> str:
    return f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")


def _from_arrays(data: Mapping[Any, Any]) -> InMemory:
    arrays = {str(name): _dense(str(name), value) for name, value in data.items()}
    for name, array in arrays.items():
        hint = " For files at sites, use by='in-place'." if array.dtype.kind == "U" else ""
        message = f"data[{name!r}] is {array}. Give an array with a value per row.{hint}"
        require(array.ndim > 0, message)
    lengths = {name: len(array) for name, array in arrays.items()}
    require(len(set(lengths.values())) <= 1, f"Arrays of data must have one length, not {lengths}.")
    columns = list(arrays.values())
    return InMemory(
        tuple(arrays),
        next(iter(lengths.values()), 0),
        lambda position, start, end: columns[position][start:end],
    )


def _dense(name: str, value: object) -> NDArray[Any]:
    """`value` as an array; masked entries are missing."""
    if np.ma.is_masked(value):
        return np.ma.filled(np.ma.asarray(value).astype(np.float64), np.nan)
    try:
        return np.asarray(value)
    except ValueError as error:
        message = f"Rows of data[{name!r}] differ in shape. Pad or cut them to one shape."
        raise BadInputError(message) from error


def _from_frame(frame: Any) -> InMemory:
    def part(position: int, start: int, end: int) -> NDArray[Any]:
        return to_numpy(frame[start:end, position])

    return InMemory(tuple(map(str, frame.columns)), len(frame), part)


def counted(batches: Iterator[Columns], n_all: int, progress: Progress | None) -> Iterator[Columns]:
    """The batches. `progress` is called after each, with the rows so far and those in all."""
    n_done = 0
    for batch in batches:
        yield batch
        n_done += len(next(iter(batch.values())))
        if progress is not None:
            progress(n_done, n_all)
