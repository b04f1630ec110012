"""Rows into shards: dealt, checked and written as they stream past."""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import IntArray
from quorate.data.files import Columns
from quorate.data.partition import Owners, missing, owners_of
from quorate.data.store import (
    MANIFEST,
    ArraySpec,
    ShardSet,
    StoredShard,
    array_path,
    fingerprint,
    raw,
)
from quorate.data.tables import Table, open_table
from quorate.errors import BadInputError, require

__all__ = ["ShardSet", "StoredShard", "Transform", "write_shards"]

Transform = Callable[[Columns], Mapping[str, NDArray[Any]]]


def write_shards(
    data: object,
    n_shards: int,
    folder: str | Path,
    *,
    seed: int = 0,
    by: str = "shuffle",
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
) -> ShardSet:
    """Cut data into K shards of near-equal size and put them on disk.

    Consensus Monte Carlo takes every shard for a small copy of the whole. Data that are sorted (by
    date, by customer, by the outcome) break that when they are cut in order: a shard may hold no
    positive outcome at all, and what was variation between rows becomes disagreement between
    shards, which no weights can mend. So rows are shuffled unless `by` says otherwise.

    Parameters
    ----------
    data
        A dict of arrays, rows first; a pandas or polars DataFrame; a pyarrow Table; or Parquet or
        CSV files: a path, a folder, a glob pattern, or a list of them. Files are streamed, and the
        same rows give the same shards whatever they come in.
    n_shards
        K. Sizes are those of `np.array_split`; K need not divide the number of rows.
    folder
        To be made, and whole or absent whatever interrupts. If it holds these very shards already,
        they stay.
    seed
        Shard s owns the rows `np.array_split(default_rng(seed).permutation(N), K)[s]`, in the
        order of the data.
    by
        `"shuffle"`; `"stratify:COLUMN"`, such that each value of the column is as often in one
        shard as in another, give or take one row; or `"files"`, file s being shard s, for files
        that are each as good as random already.
    columns
        To be read; all by default.
    transform
        From a batch of rows, as a dict of arrays, to the arrays to store for these rows, such as a
        design matrix. It sees strings and missing values, and batches of any size: a row must come
        out the same whatever rows are beside it.
    """
    table = open_table(data)
    names = _names(table, columns)
    owners = owners_of(table, n_shards, by, seed)
    folder = Path(folder).resolve()
    _check_folder(folder, n_shards, len(owners))
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        writer = _Writer(partial, np.bincount(owners, minlength=int(n_shards)))
        _stream(table.batches(names), owners, transform, writer)
        shards = writer.finish(by, int(seed))
        return _put_in_place(shards, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _names(table: Table, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return table.names
    names = (columns,) if isinstance(columns, str) else tuple(dict.fromkeys(columns))
    require(bool(names), "columns", columns, "name at least one")
    for name in names:
        known = name in table.names
        require(known, "columns", name, f"the data have columns {', '.join(table.names)}")
    return names


def _check_folder(folder: Path, n_shards: int, n_rows: int) -> None:
    """Raise early if the folder is taken; whether it holds the same shards shows later."""
    if not folder.exists():
        return
    require(folder.is_dir(), "folder", str(folder), "is a file: give another name")
    if not (folder / MANIFEST).exists():
        way_out = "holds other things: give a new folder, or an empty one"
        require(not any(folder.iterdir()), "folder", str(folder), way_out)
        return
    there = ShardSet.open(folder)
    if (there.n_shards, sum(there.n_rows)) != (n_shards, n_rows):
        raise _taken(there)


def _taken(there: ShardSet) -> BadInputError:
    way_out = (
        f"holds another data set, of {sum(there.n_rows)} rows in {there.n_shards} shards: "
        "give a new folder, or use that set by `ShardSet.open`"
    )
    return BadInputError("folder", str(there.folder), way_out)


def _put_in_place(shards: ShardSet, folder: Path) -> ShardSet:
    if (folder / MANIFEST).exists():
        there = ShardSet.open(folder)
        if replace(there, folder=shards.folder) != shards:
            raise _taken(there)
        there.verify()
        return there
    shards.folder.replace(folder)
    return ShardSet.open(folder)


def _stream(
    batches: Iterator[Columns], owners: Owners, transform: Transform | None, writer: "_Writer"
) -> None:
    """Deal the rows out. Missing values are counted to the end, then raised."""
    start, n_missing = 0, dict[str, int]()
    for batch in batches:
        n_rows = len(next(iter(batch.values())))
        if not n_rows:
            continue
        stored = _stored(batch, transform, n_rows)
        for name, array in stored.items():
            count = int(missing(array).sum())
            if count:
                n_missing[name] = n_missing.get(name, 0) + count
        if not n_missing:
            writer.add(stored, owners[start : start + n_rows])
        start += n_rows
    way_out = "fill them in, drop their rows, or leave these columns out by `columns`"
    require(not n_missing, "number of missing values by column", n_missing, way_out)
    if start != len(owners):
        way_out = f"{len(owners)} were counted before: let no one write to the files meanwhile"
        raise BadInputError("data", f"{start} rows", way_out)


def _stored(batch: Columns, transform: Transform | None, n_rows: int) -> Columns:
    """What is to be stored of a batch."""
    arrays = transform(batch) if transform else batch
    named = isinstance(arrays, Mapping) and all(isinstance(name, str) for name in arrays)
    way_out = "it must return a dict of arrays, by name"
    require(named and len(arrays) > 0, "transform", type(arrays).__name__, way_out)
    return {name: _checked(name, array, n_rows) for name, array in arrays.items()}


def _checked(name: str, values: object, n_rows: int) -> NDArray[Any]:
    """Numbers, one row for each row of the batch, little-endian."""
    array, column = np.asarray(values), f"column {name!r}"
    if array.dtype.kind in "OUST":
        way_out = "encode such values as numbers, use a formula, or leave it out by `columns`"
        raise BadInputError(column, array.item(0), way_out)
    portable = array.dtype.kind in "biufc" and array.dtype.char not in "gG"
    require(portable, column, str(array.dtype), "turn it into float64 or whole numbers first")
    way_out = f"`transform` was given {n_rows} rows and must return one for each"
    require(array.shape[:1] == (n_rows,), column, array.shape, way_out)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


@dataclass
class _Writer:
    """Appends rows to the arrays of their shards, and takes fingerprints on the way.

    Files are opened for each batch, so that their number is no matter, and written to rather than
    mapped, so that pages that were written do not count as memory of this process.
    """

    folder: Path
    sizes: IntArray
    specs: tuple[ArraySpec, ...] = ()
    hashes: dict[tuple[int, int], Any] = field(default_factory=dict)

    def add(self, batch: Columns, owners: Owners) -> None:
        """Rows in the order of the data, and the shard of each."""
        if not self.specs:
            self._begin(batch)
        self._check_alike(batch)
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[order], np.arange(len(self.sizes) + 1))
        for position, spec in enumerate(self.specs):
            dealt = batch[spec.name].astype(spec.dtype, copy=False)[order]
            for shard in np.flatnonzero(np.diff(bounds)).tolist():
                rows = raw(dealt[bounds[shard] : bounds[shard + 1]])
                self.hashes[shard, position].update(rows)
                with array_path(self.folder, shard, position).open("ab") as file:
                    file.write(rows)

    def finish(self, by: str, seed: int) -> ShardSet:
        """The shards, with their manifest."""
        prints = [
            fingerprint(
                self.specs,
                int(n_rows),
                [self.hashes[shard, i].hexdigest() for i in range(len(self.specs))],
            )
            for shard, n_rows in enumerate(self.sizes)
        ]
        sizes = tuple(int(n_rows) for n_rows in self.sizes)
        shards = ShardSet(self.folder, by, seed, self.specs, sizes, tuple(prints))
        shards.save()
        return shards

    def _begin(self, batch: Columns) -> None:
        self.specs = tuple(ArraySpec(n, a.dtype.str, a.shape[1:]) for n, a in batch.items())
        for shard, n_rows in enumerate(self.sizes.tolist()):
            array_path(self.folder, shard, 0).parent.mkdir(parents=True)
            for position, spec in enumerate(self.specs):
                self.hashes[shard, position] = hashlib.sha256()
                header = {
                    "descr": spec.dtype,
                    "fortran_order": False,
                    "shape": (n_rows, *spec.row_shape),
                }
                with array_path(self.folder, shard, position).open("xb") as file:
                    np.lib.format.write_array_header_1_0(file, header)

    def _check_alike(self, batch: Columns) -> None:
        """Raise unless a batch is like the first one."""
        names = [spec.name for spec in self.specs]
        way_out = f"every batch must have {', '.join(names)}, as the first one had"
        require(set(batch) == set(names), "transform", list(batch), way_out)
        for spec in self.specs:
            array = batch[spec.name]
            alike = array.shape[1:] == spec.row_shape and np.can_cast(array.dtype, spec.dtype)
            received = (str(array.dtype), array.shape[1:])
            way_out = f"earlier rows were {spec.dtype} of shape {spec.row_shape}: make all alike"
            require(alike, f"column {spec.name!r}", received, way_out)
