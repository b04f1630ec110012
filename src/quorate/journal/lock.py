"""The lock of a journal: who writes it, and how many rows were acknowledged so far.

The count lies in a file of its own, because it must survive what damages the database or its
write-ahead log: SQLite takes the intact beginning of a damaged log for all of it. The file is one
line, with a checksum, written in place after each append. It is removed when a journal is closed
with all rows in the database, which has a count too.
"""

import fcntl
import os
import re
import zlib
from pathlib import Path

from quorate.errors import JournalError
from quorate.journal import file as journal_file

NAME = "journal.lock"
_LINE = re.compile(rb"( *\d+) ( *\d+) ([0-9a-f]{8})\n")
_OLDER = re.compile(rb"\d{0,20}")  # quorate wrote the process alone before it counted


class DamagedCountError(ValueError):
    """The count of rows is not as it was written."""


class Lock:
    """The right to write, held by one process at a time and freed by its death."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        with journal_file.told_clearly(self._path):
            self._file = self._opened()
            while not self._is_in_place():  # its last holder removed it a moment ago
                os.close(self._file)
                self._file = self._opened()

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            line = os.pread(descriptor, 100, 0)
            os.close(descriptor)
            raise self._taken(line) from None
        return descriptor

    def _taken(self, line: bytes) -> JournalError:
        try:
            who = f"process {holder(line)}"
        except ValueError:
            who = "another process"
        path = str(self._path.with_name(journal_file.NAME))
        return JournalError(path, f"is being written by {who}", "wait until it ends, or end it")

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def count(self, n_rows: int) -> None:
        """Note that so many rows of the log are acknowledged."""
        text = b"%10d %20d" % (os.getpid(), n_rows)
        os.pwrite(self._file, b"%s %08x\n" % (text, zlib.crc32(text)), 0)

    def close(self, *, remove: bool = False) -> None:
        """Release the lock; delete its file if no row count must be kept."""
        if (remove or not os.fstat(self._file).st_size) and self._is_in_place():
            self._path.unlink()
        os.close(self._file)


def holder(line: bytes) -> int:
    """The process that the line names; ValueError if it names none."""
    return int(line[:10])


def acknowledged(folder: Path) -> int | None:
    """How many rows of the log were acknowledged; None if that is not told.

    Raises `DamagedCountError` if the file is damaged.
    """
    before, line = None, _content(folder)
    while line != before:  # else it is being written just now
        if (found := _LINE.fullmatch(line)) and int(found[3], 16) == zlib.crc32(line[:31]):
            return int(found[2])
        if _OLDER.fullmatch(line):
            return None
        before, line = line, _content(folder)
    raise DamagedCountError


def known_count(folder: Path) -> int:
    """Number of acknowledged rows of the log; 0 if it is not recorded or its record is damaged."""
    try:
        return acknowledged(folder) or 0
    except DamagedCountError:
        return 0


def _content(folder: Path) -> bytes:
    try:
        return (folder / NAME).read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DamagedCountError from error
