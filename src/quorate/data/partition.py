"""The partition: which shard each row goes to.

Consensus Monte Carlo treats every shard as a small copy of the data: each subposterior should lie
about where the posterior lies, only wider. Data that are sorted (by date, by customer, by the
outcome) break this if they are cut in order. A shard without a positive outcome pulls its logistic
regression to infinity. A shard of one month cannot tell the months apart. Variation between rows
becomes disagreement between shards, which no weights can repair. So rows are dealt at random unless
the user chooses otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import IntArray
from quorate._words import do_not_fill
from quorate.data.codes import LEVELS, Codes, Groups, groups_of, strata_of
from quorate.data.tables import Table
from quorate.errors import BadInputError, require

Owners = NDArray[Any]  # the shard of every row, in the smallest of numpy's unsigned integers
_MAX_STRATA = 10_000
_WAYS = "Use 'shuffle', 'files', 'stratify:COLUMN' or 'group:COLUMN'."


@dataclass(frozen=True)
class Partition:
    """Where each row goes.

    Parameters
    ----------
    owners
        The shard of every row, shape (n_rows,).
    groups
        For cuts that keep groups whole: the groups of each level, by the name of their array.
    """

    owners: Owners
    groups: Mapping[str, Groups] = field(default_factory=dict)


def require_words(by: object) -> None:
    """Refuse a way to cut rows that is no text."""
    require(
        not hasattr(by, "write"),
        "by cannot be a Cut, which writes shards itself: cut.write(data, n_shards, folder, seed).",
    )
    require(isinstance(by, str), f"by cannot be {shortened(by)}. {_WAYS}")


def partition_of(table: Table, n_shards: int, by: str, seed: int) -> Partition:
    """Deal the rows of a table: see `quorate.data.write.write_shards` for `by`."""
    whole = isinstance(n_shards, int | np.integer) and n_shards >= 1
    require(whole, f"n_shards must be a whole number, at least 1, not {n_shards!r}.")
    whole = isinstance(seed, int | np.integer) and seed >= 0
    require(whole, f"seed must be a whole number, at least 0, not {seed!r}.")
    way, _, column = str(by).partition(":")
    if way == "files":
        owners = _by_files(table.rows_per_file, n_shards)
        return _proven(table, owners, column) if column else Partition(owners)
    require(table.n_rows >= n_shards, do_not_fill(table.n_rows, "row", n_shards))
    if way == "shuffle" and not column:
        return Partition(shuffled(table.n_rows, n_shards, seed))
    require(way in ("stratify", "group") and bool(column), f"by cannot be {by!r}. {_WAYS}")
    if way == "stratify":
        require_columns(table, [column])
        return Partition(stratified(strata_of(table, column, _MAX_STRATA), n_shards, seed))
    groups = groups_of(table, group_columns(table, column))
    return Partition(grouped(groups[LEVELS[0]].codes, n_shards, seed), groups)


def columns_of_cut(table: Table, by: str) -> tuple[str, ...]:
    """The columns that a cut reads: those of groups or strata."""
    way, _, column = str(by).partition(":")
    if not column:
        return ()
    return (column,) if way == "stratify" else group_columns(table, column)


def group_columns(table: Table, written: str) -> tuple[str, ...]:
    """The columns of `COLUMN`, or of `OUTER/INNER`, where groups lie within groups."""
    columns = (written,) if written in table.names else tuple(written.split("/"))
    require(
        len(columns) <= len(LEVELS),
        f"Groups may nest in two levels, not {len(columns)} as in {written!r}. Leave one out, or "
        "combine two columns into one.",
    )
    require_columns(table, columns)
    twice = len(set(columns)) < len(columns)
    require(not twice, f"{written!r} names one column twice. Name it once.")
    return columns


def shuffled(n_rows: int, n_shards: int, seed: int) -> Owners:
    """Shard s owns the s-th part of `np.array_split` of a random order of all rows.

    The order takes 8 bytes a row while this runs. The result takes 1 for up to 256 shards.
    """
    order = np.random.default_rng(seed).permutation(n_rows)
    owners = np.empty(n_rows, dtype=np.min_scalar_type(n_shards - 1))
    for shard, rows in enumerate(np.array_split(order, n_shards)):
        owners[rows] = shard
    return owners


def stratified(strata: IntArray | Codes, n_shards: int, seed: int) -> Owners:
    """Deal rows in turn, stratum by stratum, in random order within each.

    In any two shards, the numbers of rows of a stratum differ by at most one. So do the numbers of
    all rows.
    """
    order = np.random.default_rng(seed).permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    owners = np.empty(len(strata), dtype=np.min_scalar_type(n_shards - 1))
    for shard in range(n_shards):
        owners[order[shard::n_shards]] = shard
    return owners


def grouped(groups: IntArray | Codes, n_shards: int, seed: int) -> Owners:
    """All rows of a group go to one shard, which hierarchical models need.

    Groups are dealt by size, the largest first and ties at random. In each lap every shard gets
    one, and the shard with the fewest rows the largest. In any two shards, the numbers of groups
    differ by at most one, and the numbers of rows by at most the size of the largest group.
    """
    sizes = np.bincount(groups)
    n_groups = len(sizes)
    require(n_groups >= n_shards, do_not_fill(n_groups, "group", n_shards))
    order = np.random.default_rng(seed).permutation(n_groups)
    order = order[np.argsort(-sizes[order], kind="stable")]
    owners = np.empty(n_groups, dtype=np.min_scalar_type(n_shards - 1))
    n_rows, falling, first = np.zeros(n_shards, dtype=np.int64), -sizes[order], 0
    while first < n_groups:
        alike = int(np.searchsorted(falling, falling[first], side="right")) - first
        n_laps = max(
            1, alike // n_shards
        )  # equal groups in a lap leave the order of shards as it is
        dealt = order[first : first + n_laps * n_shards]
        shards = np.resize(np.argsort(n_rows, kind="stable"), len(dealt))
        owners[dealt] = shards
        n_rows += np.bincount(shards, weights=sizes[dealt], minlength=n_shards).astype(np.int64)
        first += len(dealt)
    return np.asarray(owners[groups])


def _by_files(rows_per_file: Sequence[int], n_shards: int) -> Owners:
    """File s is shard s."""
    n_files = len(rows_per_file)
    require(n_files > 0, "by='files' needs data in files, not in memory. Leave out `by`.")
    require(
        n_files == n_shards,
        f"by='files' makes {n_files} files into {n_files} shards, not {n_shards}. Use "
        f"n_shards={n_files}, or leave out `by`.",
    )
    for file, n_rows in enumerate(rows_per_file):
        require(n_rows > 0, f"File {file}, counted from 0, has no rows. Leave it out.")
    return np.repeat(np.arange(n_shards, dtype=np.min_scalar_type(n_shards - 1)), rows_per_file)


def _proven(table: Table, owners: Owners, written: str) -> Partition:
    """Files as shards, once it is seen that no group has rows in two of them."""
    groups = groups_of(table, group_columns(table, written))
    outer = groups[LEVELS[0]]
    holders = np.empty(len(outer.labels), dtype=owners.dtype)
    holders[outer.codes] = owners
    torn = np.flatnonzero(holders[outer.codes] != owners)
    if len(torn):
        group = outer.codes[torn[0]]
        one, other = table.paths[owners[torn[0]]], table.paths[holders[group]]
        raise BadInputError(
            f"Group {outer.labels[group].item()!r} of column `{outer.column}` has rows in {one} "
            f"and in {other}. All rows of a group must be in one shard: use by='group:{written}'."
        )
    return Partition(owners, groups)


def require_columns(table: Table, names: Sequence[str]) -> None:
    """Raise unless the table has all these columns."""
    for name in names:
        listed = ", ".join(table.names)
        require(name in table.names, f"No column named `{name}`. The columns are {listed}.")
