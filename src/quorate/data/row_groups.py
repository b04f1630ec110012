"""Row groups of Parquet files, dealt to shards by what the files say of themselves.

A Parquet file ends with a footer, which has its columns and the number of rows of each row group.
To deal rows to shards, footers are all that is read.
"""

import heapq
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

from quorate.data.addresses import opened
from quorate.data.files import Columns, columns_of, common_schema, rows_at_once
from quorate.errors import BadInputError, require

_AT_A_TIME = 16  # footers: those of a distant store take long to come


class RowGroup(NamedTuple):
    """One row group of a Parquet file. `first_row` is the number of its first row in the data."""

    address: str
    number: int
    n_rows: int
    first_row: int = 0


class Footer(NamedTuple):
    """What a Parquet file says of itself: pyarrow's schema, and its row groups with rows."""

    schema: Any
    row_groups: tuple[RowGroup, ...]


def footers_of(addresses: Sequence[str]) -> list[Footer]:
    """Footers of files. No row is read."""
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        return list(threads.map(_footer, addresses))


def _footer(address: str) -> Footer:
    with opened(address) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        groups = (RowGroup(address, i, n_rows) for i, n_rows in enumerate(sizes) if n_rows)
        return Footer(file.schema_arrow, tuple(groups))


def row_groups_of(addresses: Sequence[str]) -> list[RowGroup]:
    """All row groups of files, in order."""
    found = [group for footer in footers_of(addresses) for group in footer.row_groups]
    require(bool(found), f"The files have no rows: {', '.join(addresses[:3])}. Give others.")
    ends = accumulate(group.n_rows for group in found)
    return [
        group._replace(first_row=end - group.n_rows) for group, end in zip(found, ends, strict=True)
    ]


def dealt(
    row_groups: Sequence[RowGroup], n_shards: int, *, whole_files: bool = False
) -> list[tuple[RowGroup, ...]]:
    """The row groups of each shard, in order, with numbers of rows that differ little.

    The largest go first, each to the shard with the fewest rows. With `whole_files`, all row groups
    of a file go together.
    """
    files = [tuple(groups) for _, groups in groupby(row_groups, key=lambda each: each.address)]
    units = files if whole_files else [(group,) for group in row_groups]
    there_are = f"{len(files)} files"
    if not whole_files:
        there_are += f" with {len(row_groups)} row groups"
    rewrite = "more files" if whole_files else "the files with smaller row groups"
    require(
        len(units) >= n_shards,
        f"There are {there_are}, too few for {n_shards} shards. Use at most {len(units)} workers, "
        f"write {rewrite}, or leave out by='in-place', so that rows are cut here.",
    )
    sizes = [sum(group.n_rows for group in unit) for unit in units]
    shards: list[list[int]] = [[] for _ in range(n_shards)]
    lightest = [(0, shard) for shard in range(n_shards)]
    for i in sorted(range(len(units)), key=lambda i: (-sizes[i], i)):
        n_rows, shard = heapq.heappop(lightest)
        shards[shard].append(i)
        heapq.heappush(lightest, (n_rows + sizes[i], shard))
    return [tuple(group for i in sorted(dealt) for group in units[i]) for dealt in shards]


@dataclass(frozen=True)
class RowGroups:
    """Row groups as one table, in the order given. It is a `quorate.data.tables.Table`."""

    row_groups: tuple[RowGroup, ...]

    @property
    def n_rows(self) -> int:
        """N."""
        return sum(group.n_rows for group in self.row_groups)

    @property
    def rows_per_file(self) -> tuple[int, ...]:
        """Number of rows: all count as one file."""
        return (self.n_rows,)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Always empty: files need not be on this machine."""
        return ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that any file has."""
        return tuple(dict.fromkeys(n for schema in self._schemas.values() for n in schema.names))

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        """All rows of the named columns, in order; no other columns are read."""
        schema = common_schema(list(self._schemas), list(self._schemas.values()), names)
        for address, groups in groupby(self.row_groups, key=lambda group: group.address):
            with opened(address) as file:
                numbers = [_same(group, file.metadata) for group in groups]
                options = {"row_groups": numbers, "columns": schema.names}
                for batch in file.iter_batches(rows_at_once(schema), **options):
                    yield columns_of(batch, schema)

    @cached_property
    def _schemas(self) -> dict[str, Any]:
        addresses = list(dict.fromkeys(group.address for group in self.row_groups))
        return {
            address: footer.schema
            for address, footer in zip(addresses, footers_of(addresses), strict=True)
        }


def _same(group: RowGroup, metadata: Any) -> int:
    """The number of a row group, if its file still has it."""
    there = group.number < metadata.num_row_groups
    if not there or metadata.row_group(group.number).num_rows != group.n_rows:
        raise changed(group.address)
    return group.number


def changed(address: str) -> BadInputError:
    """The error for a file whose rows are not those that a run began with."""
    return BadInputError(
        f"{address} has changed since the run began. Put the file back as it was, or begin a new "
        "run."
    )
