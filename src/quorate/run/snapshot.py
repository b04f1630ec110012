"""Saves the chains of an exact run in a file, so that opening the run does not replay all answers.

The journal alone is enough to open a run. The file is a short cut. It is used only if its checksum
is right, if this version of quorate wrote it, and if it was made from the rows with which the
journal begins. Otherwise all answers are replayed from the journal. The draws are the same, bit for
bit.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from quorate.errors import JournalError
from quorate.journal import Journal, JournalReader, Record
from quorate.numerics.named_arrays import AnyArray
from quorate.protocol.scheme import CanGoAhead, Scheme
from quorate.run.draws_on_disk import RESERVE

NAME = "ensemble.state"
LEAST = 2**20  # work that is worth a file; a replay of it takes about a second
_SHARE = 4  # a new file is due when there is 1/4 more work than in the last
_MOST = 2**28  # bytes that are written while workers wait; a larger file waits for the end
_MAGIC = b"quorate ensemble\n"
_DTYPES = ("<f8", "<i8")
_LONGEST_HEADER = 2**20
_SUM_BYTES = 32


class Snapshots:
    """Keeps the file of a run that is under way.

    It is written again whenever there is a quarter more to replay than it covers, and at the end.
    So all writing together is a few times the last file, and of a run that is killed, about a fifth
    is left to be replayed; more if the file is large.
    """

    def __init__(self, folder: Path, scheme: CanGoAhead, journal: Journal) -> None:
        self._path, self._scheme, self._journal = folder / NAME, scheme, journal
        self._covered = self._last_look = 0  # work in the file, and when it was last due

    def keep(self, *, is_end: bool) -> None:
        """Write the file if it is due. All answers so far must be in the journal."""
        work = self._scheme.replay_work()
        n_more = work - self._covered if is_end else work - self._last_look
        if n_more < max(LEAST, 0 if is_end else self._last_look // _SHARE):
            return
        self._last_look = work
        state = self._scheme.state()
        n_bytes = sum(array.nbytes for array in state.values())
        if not state or not (is_end or n_bytes <= _MOST) or not _has_room(self._path, n_bytes):
            return
        with suppress(OSError):  # the journal is enough, and tells what is wrong with the disk
            _write(self._path, *self._journal.fingerprint(), state)
            self._covered = work


class Shortcut:
    """Records of a journal for a scheme that takes the file instead of the answers, if it can.

    Attributes
    ----------
    is_taken
        Whether there is such a file; None before the first record.
    """

    def __init__(self, folder: Path, reader: JournalReader, scheme: Scheme) -> None:
        self._reader, self._path = reader, folder / NAME
        self._scheme = scheme if isinstance(scheme, CanGoAhead) else None
        self._n_rows = 0  # up to which answers need not be replayed
        self.is_taken: bool | None = None

    def records(self) -> Iterator[Record]:
        """Records of the journal, in order."""
        if self.is_taken is None:
            self.is_taken = self._look()
        for record in self._reader.records():
            if self._n_rows and self._reader.last_row > self._n_rows:
                self._arrive()
            yield record
        if self._n_rows:
            self._arrive()

    def _look(self) -> bool:
        found = None if self._scheme is None else _read(self._path, self._reader)
        if self._scheme is None or found is None:
            return False
        self._n_rows = found.n_rows
        self._scheme.go_ahead_to(found.arrays)
        return True

    def _arrive(self) -> None:
        self._n_rows = 0
        assert self._scheme is not None
        try:
            self._scheme.arrive()
        except (ValueError, LookupError, TypeError) as error:
            what = f"does not fit its journal ({error})"
            raise JournalError(str(self._path), what, "remove this file") from None


# ---------------------------------------------------------------- the file


class _Found(NamedTuple):
    n_rows: int
    arrays: dict[str, AnyArray]


def _has_room(path: Path, n_bytes: int) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free > n_bytes + RESERVE
    return False


def _write(path: Path, n_rows: int, fingerprint: str, state: dict[str, AnyArray]) -> None:
    """Write a file beside `path` and rename it, unsynced: damage is detected, and costs time."""
    arrays = {name: np.asarray(array, order="C") for name, array in state.items()}
    header = {
        "version": version("quorate"),
        "rows": n_rows,
        "journal": fingerprint,
        "arrays": [(name, array.dtype.str, array.shape) for name, array in arrays.items()],
    }
    text = json.dumps(header).encode()
    beside = path.with_name(f".{path.name}")
    beside.unlink(missing_ok=True)
    try:
        with beside.open("xb") as file:
            checksum = hashlib.sha256()
            contents: list[bytes | memoryview] = [_MAGIC, len(text).to_bytes(8, "little"), text]
            contents += [array.reshape(-1).view(np.uint8).data for array in arrays.values()]
            for content in contents:
                checksum.update(content)
                file.write(content)
            file.write(checksum.digest())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path, reader: JournalReader) -> _Found | None:
    """What the file holds, if it is whole and was made of the rows of this journal."""
    try:
        if path.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as file:
            checksum = hashlib.sha256()
            header = _header(file, checksum)
            n_rows, fingerprint = int(header["rows"]), header["journal"]
            if header["version"] != version("quorate") or n_rows < 1:
                return None
            if reader.fingerprint(n_rows) != fingerprint:
                return None
            arrays = _arrays(file, header["arrays"], checksum)
            is_whole = file.read(_SUM_BYTES) == checksum.digest() and not file.read(1)
    except (OSError, ValueError, TypeError, LookupError, RecursionError, MemoryError):
        return None
    return _Found(n_rows, arrays) if is_whole else None


def _header(file: BinaryIO, checksum: Any) -> dict[str, Any]:
    begin = file.read(len(_MAGIC) + 8)
    n_bytes = int.from_bytes(begin[len(_MAGIC) :], "little")
    if not begin.startswith(_MAGIC) or n_bytes > _LONGEST_HEADER:
        raise ValueError
    text = file.read(n_bytes)
    checksum.update(begin)
    checksum.update(text)
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError
    return header


def _arrays(file: BinaryIO, specs: list[Any], checksum: Any) -> dict[str, AnyArray]:
    n_left = os.fstat(file.fileno()).st_size - file.tell()
    arrays = {}
    for name, dtype, shape in specs:
        n_numbers = prod(shape)
        n_left -= 8 * n_numbers
        if dtype not in _DTYPES or min(shape, default=0) < 0 or n_left < 0:
            raise ValueError
        array = np.fromfile(file, dtype, n_numbers)
        checksum.update(array.view(np.uint8).data)
        arrays[str(name)] = array.reshape(shape)
    return arrays
