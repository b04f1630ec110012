"""Files that are written atomically: beside their place, synced, and then renamed into it.

After a full disk, a crash or a power cut, the old file or the new one is there, never a part. A
symbolic link in the place of a file is replaced, not followed.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from quorate.errors import SaveError

Write = Callable[[BinaryIO], object]
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MANY = 100  # files, from which on it is faster to sync everything


class Saving:
    """Files that are written together: if one of them fails, all stay as they were before.

    >>> with Saving() as saving:
    ...     checksum = saving.write(path, lambda file: file.write(content))
    """

    def __init__(self) -> None:
        self._ready: dict[Path, Path] = {}

    def __enter__(self) -> "Saving":
        return self

    def write(self, path: Path, write: Write) -> str:
        """Write a file beside its place; returns its SHA-256. Raises `SaveError`."""
        if path.is_dir():
            raise SaveError(str(path), "it is a folder")
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with in_words(path), os.fdopen(os.open(beside, _NEW, 0o666), "w+b") as file:
            self._ready[path] = beside
            write(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for path, beside in self._ready.items() if error is None else ():
                with in_words(path):
                    beside.replace(path)
            if error is None:
                sync({path.parent for path in self._ready})
        finally:
            for beside in self._ready.values():
                beside.unlink(missing_ok=True)


def save(path: Path, content: bytes) -> None:
    """Write a file, or raise `SaveError` and leave what was there before."""
    with Saving() as saving:
        saving.write(path, lambda file: file.write(content))


def sync(paths: Collection[Path]) -> None:
    """Wait until files or folders are on disk."""
    if len(paths) > _MANY:
        os.sync()
        return
    for path in paths:
        with in_words(path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Raise errors of the operating system as `SaveError`."""
    try:
        yield
    except OSError as error:
        raise SaveError(str(path), error.strerror or str(error)) from error
