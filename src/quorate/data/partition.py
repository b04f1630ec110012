"""Which shard each row goes to.

Consensus Monte Carlo takes every shard for a small copy of the whole: each subposterior is to lie
about where the posterior lies, only wider. Data that are sorted (by date, by customer, by the
outcome) break that when they are cut in order. A shard without a single positive outcome pulls its
logistic regression to infinity, a shard of one month cannot tell the months apart, and what was
variation between rows becomes disagreement between shards, which no weights can mend. So rows are
dealt at random unless the user says otherwise.
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
_WAYS = "use 'shuffle', 'files' or 'stratify:COLUMN'"


def owners_of(table: Table, n_shards: int, by: str, seed: int) -> Owners:
    """The shard of every row, shape (n_rows,): see `quorate.data.write.write_shards` for `by`."""
    whole = isinstance(n_shards, int | np.integer) and n_shards >= 1
    require(whole, "n_shards", n_shards, "there must be a whole number of shards, at least one")
    whole = isinstance(seed, int | np.integer) and seed >= 0
    require(whole, "seed", seed, "use a whole number from 0 up")
    way, _, column = str(by).partition(":")
    if way == "files" and not column:
        return _by_files(table.rows_per_file, n_shards)
    require(
        table.n_rows >= n_shards,
        "n_shards",
        n_shards,
        f"a shard needs at least one row: use at most {table.n_rows} shards",
    )
    if way == "shuffle" and not column:
        return shuffled(table.n_rows, n_shards, seed)
    require(way == "stratify" and bool(column), "by", by, _WAYS)
    return stratified(_strata(table, column), n_shards, seed)


def shuffled(n_rows: int, n_shards: int, seed: int) -> Owners:
    """Shard s owns the s-th part of `np.array_split` of a random order of all rows.

    The order takes 8 bytes a row while this runs, the result 1 for up to 256 shards.
    """
    order = np.random.default_rng(seed).permutation(n_rows)
    owners = np.empty(n_rows, dtype=np.min_scalar_type(n_shards - 1))
    for shard, rows in enumerate(np.array_split(order, n_shards)):
        owners[rows] = shard
    return owners


def stratified(strata: IntArray, n_shards: int, seed: int) -> Owners:
    """Deal rows in turn, stratum by stratum, in random order within each.

    The rows of a stratum in any two shards differ in number by at most one, and so do those of
    the shards.
    """
    order = np.random.default_rng(seed).permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    owners = np.empty(len(strata), dtype=np.min_scalar_type(n_shards - 1))
    for shard in range(n_shards):
        owners[order[shard::n_shards]] = shard
    return owners


def _by_files(rows_per_file: Sequence[int], n_shards: int) -> Owners:
    """File s is shard s."""
    n_files = len(rows_per_file)
    require(n_files > 0, "by", "files", f"the data are in memory and not in files: {_WAYS}")
    if n_files != n_shards:
        way_out = f"there are {n_files} files, each a shard: use {n_files}, or by='shuffle'"
        raise BadInputError("n_shards", n_shards, way_out)
    empty = [file for file, n_rows in enumerate(rows_per_file) if not n_rows]
    if empty:
        way_out = f"file {empty[0]}, the first being 0, has no rows: leave it out"
        raise BadInputError("by", "files", way_out)
    return np.repeat(np.arange(n_shards, dtype=np.min_scalar_type(n_shards - 1)), rows_per_file)


def _strata(table: Table, column: str) -> IntArray:
    """Number the values of a column 0, 1, …, in the order of their size."""
    known = column in table.names
    require(known, "by", f"stratify:{column}", f"the data have columns {', '.join(table.names)}")
    codes: dict[Any, int] = {}
    parts, n_missing = [], 0
    for batch in table.batches([column]):
        values = batch[column]
        require(values.ndim == 1, "by", f"stratify:{column}", "its rows must be single values")
        gone = missing(values)
        n_missing += int(gone.sum())
        parts.append(_coded(values[~gone], codes))
        way_out = f"it takes more than {_MAX_STRATA:,} values: cut it into intervals first"
        require(len(codes) <= _MAX_STRATA, "by", f"stratify:{column}", way_out)
    way_out = f"{n_missing} values are missing: fill them in, or give them a stratum of their own"
    require(not n_missing, "by", f"stratify:{column}", way_out)
    rank = np.empty(len(codes), dtype=np.int64)
    try:
        rank[[codes[value] for value in sorted(codes)]] = np.arange(len(codes))
    except TypeError as error:
        way_out = "its values are of kinds that cannot be compared: make them all strings"
        raise BadInputError("by", f"stratify:{column}", way_out) from error
    return np.asarray(rank[np.concatenate(parts)])


def _coded(values: NDArray[Any], codes: dict[Any, int]) -> NDArray[np.int32]:
    """The numbers of values, given out as they come; sorting is for what sorts fast."""
    if values.dtype.kind == "O":
        numbers = [codes.setdefault(value, len(codes)) for value in values.tolist()]
        return np.array(numbers, dtype=np.int32)
    found, inverse = np.unique(values, return_inverse=True)
    numbers = [codes.setdefault(value, len(codes)) for value in found.tolist()]
    return np.asarray(np.array(numbers, dtype=np.int32)[inverse])


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
