"""The folder of shards: free, or holding the same shards already."""

from dataclasses import replace
from pathlib import Path

from quorate._files import in_words, sync
from quorate.data.store import MANIFEST, ShardSet
from quorate.errors import BadInputError, require


def check_folder(folder: Path, n_shards: int, n_rows: int) -> None:
    """Raise early if the folder is in use. Its shards are compared later."""
    if not folder.exists():
        return
    require(folder.is_dir(), f"{folder} is a file. Give a folder.")
    if not (folder / MANIFEST).exists():
        is_empty = not any(folder.iterdir())
        require(is_empty, f"{folder} holds other files. Give a new folder, or an empty one.")
        return
    there = ShardSet.open(folder)
    if (there.n_shards, sum(there.n_rows)) != (n_shards, n_rows):
        raise _taken(there)


def _taken(there: ShardSet) -> BadInputError:
    return BadInputError(
        f"{there.folder} holds another data set, of {sum(there.n_rows)} rows in {there.n_shards} "
        "shards. Give a new folder, or use that data set by `ShardSet.open`."
    )


def put_in_place(shards: ShardSet, folder: Path) -> ShardSet:
    """Move complete shards into their folder, or keep the same ones that are there."""
    if (folder / MANIFEST).exists():
        there = ShardSet.open(folder)
        if replace(there, folder=shards.folder) != shards:
            raise _taken(there)
        there.verify()
        return there
    with in_words(folder):
        shards.folder.replace(folder)
        sync([folder.parent])
    return ShardSet.open(folder)
