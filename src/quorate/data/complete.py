"""A table without its rows that have missing values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from quorate._types import BoolArray
from quorate.data.codes import missing
from quorate.data.files import Columns
from quorate.data.partition import columns_of_cut
from quorate.data.tables import Table
from quorate.errors import require

NA = Literal["raise", "drop"]


@dataclass(frozen=True)
class CompleteRows:
    """The rows of a table that are kept.

    Parameters
    ----------
    table
        The whole table.
    kept
        Whether each row is kept, (n_rows,): one byte a row.
    """

    table: Table
    kept: BoolArray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.table.names

    @property
    def n_rows(self) -> int:
        """Number of rows that are kept."""
        return int(self.kept.sum())

    @property
    def rows_per_file(self) -> tuple[int, ...]:
        """Number of rows of each file that are kept."""
        ends = np.cumsum(self.table.rows_per_file, dtype=np.int64)
        return tuple(int(part.sum()) for part in np.split(self.kept, ends)[: len(ends)])

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in the order of reading; empty for data in memory."""
        return self.table.paths

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        start = 0
        for batch in self.table.batches(names):
            n_rows = len(next(iter(batch.values())))
            kept = self.kept[start : start + n_rows]
            yield {name: values[kept] for name, values in batch.items()}
            start += n_rows


def require_way(na: str) -> None:
    """Raise unless this is a way to treat missing values."""
    require(na in get_args(NA), f"na must be {' or '.join(get_args(NA))}, not {na!r}.")


def rows_to_cut(table: Table, columns: Sequence[str], by: str, na: str) -> Table:
    """The table, or its complete rows; see `quorate.data.write.write_shards`."""
    require_way(na)
    if na == "raise":
        return table
    return _complete_rows(table, [*columns, *columns_of_cut(table, by)])


def _complete_rows(table: Table, columns: Sequence[str]) -> CompleteRows:
    """The rows of a table that have a value in each of some columns. Reads these columns once."""
    parts = []
    for batch in table.batches(list(dict.fromkeys(columns))):
        lacking = [_is_missing(values) for values in batch.values()]
        parts.append(~np.any(lacking, axis=0))
    kept = CompleteRows(table, np.concatenate(parts))
    require(
        kept.n_rows > 0,
        f"No row has a value in each of {', '.join(columns)}. Leave out a column, or fill it.",
    )
    return kept


def _is_missing(values: object) -> BoolArray:
    lacking = missing(np.asarray(values))
    return np.asarray(lacking.reshape(len(lacking), -1).any(axis=1))
