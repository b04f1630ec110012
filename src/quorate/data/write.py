"""Writing shards: rows are dealt, checked and written as they stream past."""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._files import Saving, in_words, sync
from quorate._types import IntArray, Progress
from quorate.data.codes import Groups, missing, stored_labels
from quorate.data.complete import NA, rows_to_cut
from quorate.data.files import Columns
from quorate.data.order import owners_to_keep
from quorate.data.partition import Owners, Partition, partition_of, require_columns, require_words
from quorate.data.place import check_folder, put_in_place
from quorate.data.store import (
    ArraySpec,
    ShardSet,
    StoredShard,
    array_path,
    fingerprint,
    labels_path,
    raw,
)
from quorate.data.tables import Table, counted, open_table
from quorate.errors import BadInputError, require

__all__ = ["ShardSet", "StoredShard", "Transform", "write_shards"]

Transform = Callable[[Columns], Mapping[str, NDArray[Any]]]
_NOT_STORED = "OUSTmM"  # kinds of arrays that are no numbers: text, dates and objects


def write_shards(
    data: object,
    n_shards: int,
    folder: str | Path,
    *,
    seed: int = 0,
    by: str = "shuffle",
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
    na: NA = "raise",
    progress: Progress | None = None,
) -> ShardSet:
    """Cut data into K shards of near-equal size and write them to disk.

    Consensus Monte Carlo treats every shard as a small copy of the data. Sorted data (by date, by
    customer, by the outcome) break this if they are cut in order: a shard may hold no positive
    outcome, and variation between rows becomes disagreement between shards, which no weights can
    repair. So rows are shuffled unless `by` says otherwise.

    Parameters
    ----------
    data
        A dict of arrays, rows first; a pandas or polars DataFrame; a pyarrow Table; or Parquet or
        CSV files: a path, a folder, a glob pattern, or a list of them. Files are streamed. The same
        rows give the same shards, whatever kind of data holds them.
    n_shards
        K. Sizes are those of `np.array_split`; K need not divide the number of rows.
    folder
        Created atomically: after an interruption it is complete or absent. If it already holds
        exactly these shards, they stay.
    seed
        Shard s holds the rows `np.array_split(default_rng(seed).permutation(N), K)[s]`, in the
        order of the data.
    by
        `"shuffle"`; `"stratify:COLUMN"`, so that each value of the column occurs equally often in
        all shards, give or take one row; `"group:COLUMN"`, so that all rows with the same value are
        in one shard, with groups and rows balanced; or `"files"`, where file s is shard s, for
        files that are random samples of the data already. With `"files:COLUMN"` a group that has
        rows in two files is an error.

        A cut by groups adds an array `group` of whole numbers to every shard, the code of each
        row's group; `ShardSet.labels("group")` says which value each code stands for. With
        `"group:OUTER/INNER"`, for groups within groups, the array `inner` has the code of the pair
        of values. A group column of text or dates is not stored itself.
    columns
        Names of the columns to read; all by default.
    transform
        Function of a batch of rows, a dict of arrays, that returns the arrays to store, such as a
        design matrix. It sees strings, missing values and batches of any size. Its result for a row
        must not depend on the other rows.
    na
        `"raise"` if values are missing, or `"drop"` rows that lack one in `columns` or in `by`.
    progress
        A function to call with the rows that are dealt, and their number.
    """
    table = open_table(data)
    require_words(by)
    names = _names(table, columns)
    table = rows_to_cut(table, names, by, na)
    partition = partition_of(table, n_shards, by, seed)
    if transform is None:
        _require_free(names, partition.groups)
    folder = Path(folder).resolve()
    check_folder(folder, n_shards, len(partition.owners))
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        writer = _Writer(partial, np.bincount(partition.owners, minlength=int(n_shards)))
        batches = counted(table.batches(names), len(partition.owners), progress)
        _stream(batches, partition, transform, writer)
        labels = {**stored_labels(partition.groups), **owners_to_keep(partition, by)}
        shards = writer.finish(by, int(seed), labels)
        return put_in_place(shards, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _names(table: Table, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return table.names
    names = (columns,) if isinstance(columns, str) else tuple(dict.fromkeys(columns))
    require(bool(names), "columns is empty. Name at least one.")
    require_columns(table, names)
    return names


def _require_free(names: Sequence[str], groups: Mapping[str, Groups]) -> None:
    """Raise if a column of the data has the name of an array of codes that is not its own."""
    for name, level in groups.items():
        require(
            name not in names or level.column == name,
            f"The data have a column `{name}`, and shards need this name for the codes of the "
            f"groups of `{level.column}`. Rename the column, or leave it out by `columns`.",
        )


def _stream(
    batches: Iterator[Columns],
    partition: Partition,
    transform: Transform | None,
    writer: "_Writer",
) -> None:
    """Deal the rows to their shards. Missing values are counted to the end before this raises."""
    start, n_missing, n_all = 0, dict[str, int](), len(partition.owners)
    for batch in batches:
        n_rows = len(next(iter(batch.values())))
        if not n_rows:
            continue
        rows = slice(start, start + n_rows)
        stored = _stored(_without_groups(batch, partition.groups, transform), transform, n_rows)
        for name, array in stored.items():
            count = int(missing(array).sum())
            if count:
                n_missing[name] = n_missing.get(name, 0) + count
        if not n_missing and rows.stop <= n_all:
            writer.add(_with_codes(stored, partition.groups, rows), partition.owners[rows])
        start += n_rows
    require(
        not n_missing,
        f"Columns have missing values: {n_missing}. Fill them in, drop their rows, or leave these "
        "columns out by `columns`.",
    )
    require(
        start == n_all,
        f"The data have {start} rows, and had {n_all} a moment ago. Do not write to the files "
        "meanwhile.",
    )


def _without_groups(
    batch: Columns, groups: Mapping[str, Groups], transform: Transform | None
) -> Columns:
    """The columns of a batch but those whose values are in the codes. Transforms see all."""
    if transform is not None:
        return batch
    coded = {level.column for level in groups.values()}
    return {
        name: values
        for name, values in batch.items()
        if name not in groups and not (name in coded and values.dtype.kind in _NOT_STORED)
    }


def _with_codes(stored: Columns, groups: Mapping[str, Groups], rows: slice) -> Columns:
    for name, level in groups.items():
        require(
            name not in stored,
            f"transform returned an array `{name}`, and shards need this name for the codes of the "
            f"groups of `{level.column}`. Give it another name.",
        )
    codes = {name: level.codes[rows].astype("<i8") for name, level in groups.items()}
    return {**stored, **codes}


def _stored(batch: Columns, transform: Transform | None, n_rows: int) -> Columns:
    """The arrays to store for a batch."""
    if transform is None:
        return {name: _checked(name, array, n_rows) for name, array in batch.items()}
    arrays = transform(batch)
    named = isinstance(arrays, Mapping) and all(isinstance(name, str) for name in arrays)
    require(
        named and len(arrays) > 0,
        f"transform returned a {type(arrays).__name__}. It must return a dict with at least one "
        "array, by name.",
    )
    return {name: _checked(name, array, n_rows) for name, array in arrays.items()}


def _checked(name: str, values: object, n_rows: int) -> NDArray[Any]:
    """An array of numbers, little-endian, with one row for each row of the batch."""
    array = np.asarray(values)
    if array.dtype.kind in "OUST":
        raise BadInputError(
            f"Column `{name}` holds {array.item(0)!r}. Encode such values as numbers, use a "
            "formula, or leave the column out by `columns`."
        )
    require(
        array.dtype.kind != "c",
        f"Column `{name}` holds complex numbers. Give real and imaginary parts as two columns.",
    )
    portable = array.dtype.kind in "biuf" and array.dtype.char != "g"
    require(
        portable,
        f"Column `{name}` has type {array.dtype}. Convert it to float64 or whole numbers first.",
    )
    require(
        array.shape[:1] == (n_rows,),
        f"Column `{name}` has shape {array.shape}. `transform` was given {n_rows} rows and must "
        "return one for each.",
    )
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


@dataclass
class _Writer:
    """Appends rows to the arrays of their shards, and computes fingerprints on the way.

    It opens files anew for each batch, so their number is not limited. It writes to them and does
    not map them, so written pages do not count as memory of this process.
    """

    folder: Path
    sizes: IntArray
    specs: tuple[ArraySpec, ...] = ()
    hashes: dict[tuple[int, int], Any] = field(default_factory=dict)

    def add(self, batch: Columns, owners: Owners) -> None:
        """Append rows, in the order of the data, to the shard that owns each."""
        if not self.specs:
            with in_words(self.folder):
                self._begin(batch)
        self._check_alike(batch)
        with in_words(self.folder):
            self._deal(batch, owners)

    def _deal(self, batch: Columns, owners: Owners) -> None:
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[order], np.arange(len(self.sizes) + 1))
        for position, spec in enumerate(self.specs):
            dealt = batch[spec.name].astype(spec.dtype, copy=False)[order]
            for shard in np.flatnonzero(np.diff(bounds)).tolist():
                rows = raw(dealt[bounds[shard] : bounds[shard + 1]])
                self.hashes[shard, position].update(rows)
                with array_path(self.folder, shard, position).open("ab") as file:
                    file.write(rows)

    def finish(self, by: str, seed: int, labels: Columns) -> ShardSet:
        """Write labels and the manifest, wait until all is on disk, and return the shards."""
        prints = [
            fingerprint(
                self.specs,
                int(n_rows),
                [self.hashes[shard, i].hexdigest() for i in range(len(self.specs))],
            )
            for shard, n_rows in enumerate(self.sizes)
        ]
        sizes = tuple(int(n_rows) for n_rows in self.sizes)
        digests = tuple(self._put(name, array) for name, array in labels.items())
        shards = ShardSet(self.folder, by, seed, self.specs, sizes, tuple(prints), digests)
        with in_words(self.folder):
            shards.save()
            sync([array_path(self.folder, s, i) for s, i in self.hashes])
        return shards

    def _put(self, name: str, labels: NDArray[Any]) -> tuple[str, str]:
        """Write the labels of the codes in an array, and return its name with their SHA-256."""
        with Saving() as saving:
            path = labels_path(self.folder, name)
            digest = saving.write(path, lambda file: np.save(file, labels, allow_pickle=False))
        return name, digest

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
        """Raise unless a batch has the arrays, types and shapes of the first one."""
        names = [spec.name for spec in self.specs]
        require(
            set(batch) == set(names),
            f"transform returned {', '.join(batch)} for a batch. It must return "
            f"{', '.join(names)}, as for the first one.",
        )
        for spec in self.specs:
            array = batch[spec.name]
            alike = array.shape[1:] == spec.row_shape and np.can_cast(array.dtype, spec.dtype)
            require(
                alike,
                f"Rows of column `{spec.name}` are {array.dtype.str} of shape {array.shape[1:]}. "
                f"Earlier rows were {spec.dtype} of shape {spec.row_shape}: make all alike.",
            )
