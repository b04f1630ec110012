"""Copies of the columns that a worker reads, on the disk of its own node.

A worker reads the row groups of a shard once, batch by batch, and writes the arrays that the model
takes. They are mapped into memory at every pass, so a shard may be larger than memory, and workers
of one node share its pages. Copies last for one sitting of a run: the next one reads the files
again, and so finds out whether they have changed.
"""

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from quorate._types import Progress
from quorate.data.placed import PlacedShards
from quorate.data.row_groups import RowGroups, changed
from quorate.data.store import ShardSet
from quorate.data.write import Transform, write_shards

_PREFIX = "quorate-rows-"
_LOCK = "in-use"
_UNUSED = 3600.0  # seconds after which copies that no process uses are removed


class Copies:
    """Copies on this node of the shards of one sitting.

    Parameters
    ----------
    shards
        What to read.
    """

    def __init__(self, shards: PlacedShards) -> None:
        self._shards = shards
        self._folder = folder_of(shards)
        self._lock: int | None = None  # held as long as this process lives

    def shard(
        self, number: int, transform: Transform | None, progress: Progress | None = None
    ) -> ShardSet:
        """A shard by itself, copied now unless another process of this node has done it.

        Raises
        ------
        BadInputError
            Its rows are not those that the run began with.
        """
        self._begin()
        folder = self._folder / f"shard-{number:05d}"
        if not folder.exists():
            self._copy(number, folder, transform, progress)
        found, expected = ShardSet.open(folder), self._shards.fingerprints
        if expected and found.shard(0).fingerprint != expected[number]:
            shutil.rmtree(folder, ignore_errors=True)
            place = self._shards.places[number]
            names = dict.fromkeys(group.address for group in place.found())
            raise changed(f"One of {', '.join(names)}" if len(names) > 1 else next(iter(names)))
        return found

    def _copy(
        self, number: int, folder: Path, transform: Transform | None, progress: Progress | None
    ) -> None:
        """Write a copy beside its place: two processes may do it at once, and the first counts."""
        shards, own = self._shards, folder.with_name(f"{folder.name}-{secrets.token_hex(4)}")
        rows = RowGroups(shards.places[number].found())
        groups = f":{shards.group_columns}" if shards.group_columns else ""
        try:
            write_shards(
                rows,
                1,
                own,
                by=f"files{groups}",
                columns=shards.columns,
                transform=transform,
                na=shards.na,
                progress=progress,
            )
            with suppress(OSError):  # the other was first
                own.rename(folder)
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def _begin(self) -> None:
        """Lock our folder, and only then look for unused ones: ours may be an hour old too."""
        if self._lock is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.utime(self._folder)  # other runs look for old ones right now
            self._lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            _remove_unused(self._folder.parent)


def folder_of(shards: PlacedShards) -> Path:
    """Where a node has the copies of a sitting."""
    return Path(shards.scratch or tempfile.gettempdir()) / f"{_PREFIX}{shards.key}"


def forget(shards: PlacedShards) -> None:
    """Remove the copies of a sitting from this node."""
    shutil.rmtree(folder_of(shards), ignore_errors=True)


def _remove_unused(parent: Path) -> None:
    """Remove copies that runs which were killed have left behind."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            is_old = time.time() - folder.stat().st_mtime > _UNUSED
            if is_old and folder.stat().st_uid == os.getuid() and not _is_used(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_used(folder: Path) -> bool:
    """Whether a living process has these copies open."""
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
