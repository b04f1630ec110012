"""Further shards for rows that arrive later, beside those that are there.

The new set of shards has a folder of its own. The files of the old shards are linked into it, or
copied where the disk has no links, so either folder may be deleted.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._files import Saving, in_words, sync
from quorate._types import Progress
from quorate.data.codes import LEVELS, OWNERS, groups_of
from quorate.data.complete import rows_to_cut
from quorate.data.cut import Cut
from quorate.data.order import owners_of
from quorate.data.partition import group_columns
from quorate.data.place import check_folder, put_in_place
from quorate.data.store import (
    ArraySpec,
    ShardSet,
    StoredShard,
    array_path,
    content_digest,
    fingerprint,
    labels_path,
)
from quorate.data.tables import Table, open_table
from quorate.errors import BadInputError, require

_MOST_NAMED = 5  # groups in an error


def append_shards(
    old: ShardSet,
    data: object,
    n_new: int | None,
    folder: Path,
    cut: Cut,
    seed: int,
    progress: Progress | None = None,
) -> ShardSet:
    """Write a set of the shards in `old` and of further ones with the rows of `data`.

    Parameters
    ----------
    old
        Shards that are there. They keep their numbers.
    data
        New rows, as for `quorate.data.write.write_shards`.
    n_new
        Number of further shards; by default so many that they are about as large as the old ones.
    folder
        Created atomically.
    cut
        How the new rows are cut. Rows of a group that is in `old` are refused.
    seed
        That of the cut.
    progress
        A function to call with the rows that are dealt, and their number.
    """
    folder = folder.resolve()
    table = open_table(data)
    cut = _cut_of_new(old, table, cut)
    number = _number_of_new(old, table, cut) if n_new is None else n_new
    whole, part = (folder.with_name(f".{folder.name}.{name}") for name in ("partial", "new"))
    for made in (whole, part):
        shutil.rmtree(made, ignore_errors=True)
    try:
        new = cut.write(data, number, part, seed, progress)
        check_folder(folder, old.n_shards + number, sum(old.n_rows) + sum(new.n_rows))
        return put_in_place(_joined(old, new, whole), folder)
    finally:
        for made in (whole, part):
            shutil.rmtree(made, ignore_errors=True)


def _cut_of_new(old: ShardSet, table: Table, cut: Cut) -> Cut:
    """The cut with the columns that the old shards have; files are shards only if rows are files.

    A cut with a transform says itself which columns it reads.
    """
    if cut.chosen == "files" and not table.rows_per_file:
        cut = replace(cut, by="shuffle")
    if cut.transform is not None or cut.columns is not None:
        return cut
    stored = [name for name in old.names if name not in dict(old.label_digests)]
    lacking = [name for name in stored if name not in table.names]
    require(
        not lacking,
        f"The new rows have no {' and no '.join(f'`{name}`' for name in lacking)}. The run has "
        f"{', '.join(stored)}: give rows with these columns.",
    )
    way, _, written = cut.chosen.partition(":")
    groups = group_columns(table, written) if way in ("group", "files") and written else ()
    return replace(cut, columns=tuple(dict.fromkeys([*stored, *groups])))


def _number_of_new(old: ShardSet, table: Table, cut: Cut) -> int:
    """Number of new shards: about as large as the old ones, and no more than groups."""
    way, _, written = cut.chosen.partition(":")
    if way == "files":
        return len(table.rows_per_file)
    table = rows_to_cut(table, tuple(cut.columns or table.names), cut.chosen, cut.na)
    number = max(1, round(table.n_rows * old.n_shards / sum(old.n_rows)))
    if way != "group":
        return number
    return min(number, len(groups_of(table, group_columns(table, written))[LEVELS[0]].labels))


def _joined(old: ShardSet, new: ShardSet, folder: Path) -> ShardSet:
    """Both sets in one folder, which is not in its place yet."""
    labels = _labels(old, new)
    shifts = {name: len(old.labels(name)) for name in LEVELS if name in dict(old.label_digests)}
    with in_words(folder):
        for number in range(old.n_shards):
            _link(old.shard(number), folder)
    prints = [
        _put(new.shard(number), old.n_shards + number, folder, old.arrays, shifts)
        for number in range(new.n_shards)
    ]
    digests = tuple((name, _save(labels_path(folder, name), of)) for name, of in labels.items())
    shards = ShardSet(
        folder,
        old.by,
        old.seed,
        old.arrays,
        (*old.n_rows, *new.n_rows),
        (*old.fingerprints, *prints),
        digests,
    )
    shards.save()
    return shards


def _link(shard: StoredShard, folder: Path) -> None:
    """Link the files of a shard, or copy them where that cannot be."""
    for position in range(len(shard.arrays)):
        source = array_path(shard.folder, shard.number, position)
        target = array_path(folder, shard.number, position)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
            sync([target])


def _put(
    shard: StoredShard,
    number: int,
    folder: Path,
    specs: tuple[ArraySpec, ...],
    shifts: Mapping[str, int],
) -> str:
    """Write a new shard with the arrays of the old ones; returns its fingerprint."""
    digests = []
    for position, spec in enumerate(specs):
        array = _alike(shard, spec).astype(spec.dtype, order="C")
        if spec.name in shifts:
            array += shifts[spec.name]
        path = array_path(folder, number, position)
        path.parent.mkdir(parents=True, exist_ok=True)
        _save(path, array)
        digests.append(content_digest(array))
    return fingerprint(specs, shard.n_rows, digests)


def _alike(shard: StoredShard, spec: ArraySpec) -> NDArray[Any]:
    """An array of a new shard, if it fits those of the old ones."""
    require(
        spec.name in shard,
        f"The new rows have {', '.join(shard)}, but no `{spec.name}`. Give the arrays that the run "
        "was made with.",
    )
    array = shard[spec.name]
    require(
        array.shape[1:] == spec.row_shape and np.can_cast(array.dtype, spec.dtype),
        f"Rows of `{spec.name}` are {array.dtype.str} of shape {array.shape[1:]}. Those of the run "
        f"are {spec.dtype} of shape {spec.row_shape}: make the new ones alike.",
    )
    return array


def _labels(old: ShardSet, new: ShardSet) -> dict[str, NDArray[Any]]:
    """Labels of both sets: of the groups of each level, old ones first, and shards of all rows."""
    labels = {}
    for name in LEVELS:
        if name in dict(old.label_digests):
            labels[name] = _both(old.labels(name), new.labels(name), name)
    first, second = owners_of(old), owners_of(new)
    if first is not None and second is not None:
        kind = np.min_scalar_type(old.n_shards + new.n_shards - 1)
        both = [first.astype(kind), second.astype(kind) + kind.type(old.n_shards)]
        labels[OWNERS] = np.concatenate(both)
    return labels


def _both(old: NDArray[Any], new: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels of old and new groups, if none is in both."""
    try:
        labels = np.concatenate([old, new])
        alike = old.dtype.kind == new.dtype.kind
    except TypeError:
        alike = False
    if not alike:
        raise BadInputError(
            f"Groups of the run have labels like {old[0]!r}, and those of the new rows like "
            f"{new[0]!r}. Give them values of one kind."
        )
    again = np.intersect1d(old, new)
    if name == LEVELS[0] and len(again):
        named = ", ".join(repr(label) for label in again[:_MOST_NAMED].tolist())
        more = f" and {len(again) - _MOST_NAMED:,} more" if len(again) > _MOST_NAMED else ""
        raise BadInputError(
            f"The new rows have groups that the run has: {named}{more}. All rows of a group must "
            "be in one shard, because the group has parameters of its own. Leave these rows out, "
            "or sample all rows again."
        )
    return labels


def _save(path: Path, array: NDArray[Any]) -> str:
    """Write an array atomically; returns the SHA-256 of the file."""
    with Saving() as saving:
        return saving.write(path, lambda file: np.save(file, array, allow_pickle=False))
