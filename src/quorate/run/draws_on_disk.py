"""A file for the draws of a run that are too many for memory.

It lies in the folder of the run, has no name, and ends with the process. Nothing is lost with it:
all draws are in the journal.
"""

import errno
import mmap
import os
import tempfile
import weakref
from functools import partial
from pathlib import Path

import numpy as np

from quorate._types import Array
from quorate.protocol.scheme import CanShelve, Scheme

_BYTES = 8  # of a number
RESERVE = 2**28  # bytes of the disk that are left to the journal


class DrawFile:
    """Numbers in a file that is made when the first are written, and mapped when they are read.

    Parameters
    ----------
    folder
        Where the file lies.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None  # its descriptor
        self._size = 0  # bytes
        self._mapping: mmap.mmap | None = None

    def write(self, first: int, numbers: Array) -> None:
        if self._file is None:
            self._file = self._opened()
        content = np.ascontiguousarray(numbers, dtype=np.float64).view(np.uint8).data
        at = first * _BYTES
        self._make_room(self._file, at + len(content))
        while content:
            n_written = os.pwrite(self._file, content, at)
            content, at = content[n_written:], at + n_written

    def read(self, first: int, n: int) -> Array:
        if self._mapping is None or len(self._mapping) < (first + n) * _BYTES:
            assert self._file is not None
            self._mapping = mmap.mmap(self._file, self._size, access=mmap.ACCESS_READ)
        return np.frombuffer(self._mapping, np.float64, n, first * _BYTES)

    def _make_room(self, file: int, size: int) -> None:
        """Make the file long enough, and twice as long as before: so it is mapped a few times."""
        disk = os.fstatvfs(file)
        if disk.f_bavail * disk.f_frsize < RESERVE:
            raise OSError(errno.ENOSPC, "what is left of the disk is for the journal")
        if size > self._size:
            self._size = max(size, 2 * self._size)
            os.ftruncate(file, self._size)

    def _opened(self) -> int:
        file, name = tempfile.mkstemp(dir=self._folder)
        Path(name).unlink()
        weakref.finalize(self, os.close, file)
        return file


def on_disk(scheme: Scheme, folder: Path) -> None:
    """Have a scheme keep its draws in `folder` once they are many, if it can."""
    if isinstance(scheme.received, CanShelve):
        scheme.received.keep_on(partial(DrawFile, folder))
