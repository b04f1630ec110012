"""The partition: which shard each row goes to.

Consensus Monte Carlo treats every shard as a small copy of the data: each subposterior should lie
about where the posterior lies, only wider. Data that are sorted (by date, by customer, by the
outcome) break this if they are cut in order. A shard without a positive outcome pulls its logistic
regression to infinity. A shard of one month cannot tell the months apart. Variation between rows
becomes disagreement between shards, which no weights can repair. So rows are dealt at random unless
the user chooses otherwise.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import IntArray
from quorate.data.tables import Table
from quorate.errors import BadInputError, require

Owners = NDArray[Any]  # the shard of every row, in the smallest of numpy's unsigned integers
_MAX_STRATA = 10_000
_WAYS = "Use 'shuffle', 'files', 'stratify:COLUMN' or 'group:COLUMN'."


def owners_of(table: Table, n_shards: int, by: str, seed: int) -> Owners:
    """The shard of every row, shape (n_rows,): see `quorate.data.write.write_shards` for `by`."""
    whole = isinstance(n_shards, int | np.integer) and n_shards >= 1
    require(whole, f"n_shards must be a whole number, at least 1, not {n_shards!r}.")
    whole = isinstance(seed, int | np.integer) and seed >= 0
    require(whole, f"seed must be a whole number, at least 0, not {seed!r}.")
    way, _, column = str(by).partition(":")
    if way == "files" and not column:
        return _by_files(table.rows_per_file, n_shards)
    require(
        table.n_rows >= n_shards,
        f"{table.n_rows} rows do not fill {n_shards} shards. Use at most {table.n_rows} shards.",
    )
    if way == "shuffle" and not column:
        return shuffled(table.n_rows, n_shards, seed)
    require(way in ("stratify", "group") and bool(column), f"by cannot be {by!r}. {_WAYS}")
    if way == "group":
        return grouped(_codes(table, column, "groups"), n_shards, seed)
    return stratified(_codes(table, column, "strata", _MAX_STRATA), n_shards, seed)


def shuffled(n_rows: int, n_shards: int, seed: int) -> Owners:
    """Shard s owns the s-th part of `np.array_split` of a random order of all rows.

    The order takes 8 bytes a row while this runs. The result takes 1 for up to 256 shards.
    """
    order = np.random.default_rng(seed).permutation(n_rows)
    owners = np.empty(n_rows, dtype=np.min_scalar_type(n_shards - 1))
    for shard, rows in enumerate(np.array_split(order, n_shards)):
        owners[rows] = shard
    return owners


def stratified(strata: IntArray, n_shards: int, seed: int) -> Owners:
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


def grouped(groups: IntArray, n_shards: int, seed: int) -> Owners:
    """All rows of a group go to one shard, which hierarchical models need.

    Groups are dealt by size, the largest first and ties at random. In each lap every shard gets
    one, and the shard with the fewest rows the largest. In any two shards, the numbers of groups
    differ by at most one, and the numbers of rows by at most the size of the largest group.
    """
    sizes = np.bincount(groups)
    n_groups = len(sizes)
    require(
        n_groups >= n_shards,
        f"{n_groups} groups do not fill {n_shards} shards. Use at most {n_groups} shards.",
    )
    order = np.random.default_rng(seed).permutation(n_groups)
    order = order[np.argsort(-sizes[order], kind="stable")]
    owners = np.empty(n_groups, dtype=np.min_scalar_type(n_shards - 1))
    n_rows = np.zeros(n_shards, dtype=np.int64)
    for first in range(0, n_groups, n_shards):
        lap = order[first : first + n_shards]
        shards = np.argsort(n_rows, kind="stable")[: len(lap)]
        owners[lap] = shards
        n_rows[shards] += sizes[lap]
    return np.asarray(owners[groups])


def _by_files(rows_per_file: Sequence[int], n_shards: int) -> Owners:
    """File s is shard s."""
    n_files = len(rows_per_file)
    require(n_files > 0, "by='files' needs data in files, not in memory. Use by='shuffle'.")
    require(
        n_files == n_shards,
        f"by='files' makes {n_files} files into {n_files} shards, not {n_shards}. Use "
        f"n_shards={n_files}, or by='shuffle'.",
    )
    for file, n_rows in enumerate(rows_per_file):
        require(n_rows > 0, f"File {file}, counted from 0, has no rows. Leave it out.")
    return np.repeat(np.arange(n_shards, dtype=np.min_scalar_type(n_shards - 1)), rows_per_file)


def _codes(table: Table, column: str, kind: str, most: int | None = None) -> IntArray:
    """The values of a column, which defines strata or groups, as codes 0, 1, … in sorted order."""
    require_columns(table, [column])
    codes: dict[Any, int] = {}
    parts, n_missing, what = [], 0, f"Column `{column}`, which defines {kind},"
    for batch in table.batches([column]):
        values = batch[column]
        require(values.ndim == 1, f"{what} must hold single values, not arrays.")
        gone = missing(values)
        n_missing += int(gone.sum())
        parts.append(_coded(values[~gone], codes))
        require(
            most is None or len(codes) <= most,
            f"{what} takes more than {most or 0:,} values. Cut it into intervals first.",
        )
    require(
        not n_missing,
        f"{what} is missing in {n_missing} rows. Fill them in, or give them a value of their own.",
    )
    rank = np.empty(len(codes), dtype=np.int64)
    try:
        rank[[codes[value] for value in sorted(codes)]] = np.arange(len(codes))
    except TypeError as error:
        message = f"{what} holds kinds of values that cannot be compared. Make them all strings."
        raise BadInputError(message) from error
    return np.asarray(rank[np.concatenate(parts)])


def _coded(values: NDArray[Any], codes: dict[Any, int]) -> NDArray[np.int32]:
    """The code of each value; new values get the next free codes. Only fast types are sorted."""
    if values.dtype.kind == "O":
        numbers = [codes.setdefault(value, len(codes)) for value in values.tolist()]
        return np.array(numbers, dtype=np.int32)
    found, inverse = np.unique(values, return_inverse=True)
    numbers = [codes.setdefault(value, len(codes)) for value in found.tolist()]
    return np.asarray(np.array(numbers, dtype=np.int32)[inverse])


def require_columns(table: Table, names: Sequence[str]) -> None:
    """Raise unless the table has all these columns."""
    for name in names:
        listed = ", ".join(table.names)
        require(name in table.names, f"No column named `{name}`. The columns are {listed}.")


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where an array has NaN, NaT or None."""
    if values.dtype.kind in "fc":
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    if values.dtype.kind == "O":
        gone = [_is_missing(value) for value in values.flat]
        return np.array(gone, dtype=np.bool_).reshape(values.shape)
    return np.zeros(values.shape, dtype=np.bool_)


def _is_missing(value: object) -> bool:
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")
