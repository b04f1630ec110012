"""Files that are written atomically: beside their place, synced, and then renamed into it.

After a full disk, a crash or a power cut, the old file or the new one is there, never a part. A
symbolic link in the place of a file is replaced, not followed.
"""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from quorate.errors import SaveError

Write = Callable[[BinaryIO], object]
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def save(path: Path, content: bytes) -> None:
    """Write a file, or raise `SaveError` and leave what was there before."""
    save_together({path: lambda file: file.write(content)})


def save_together(files: Mapping[Path, Write]) -> None:
    """Write several files. If one of them cannot be written, all stay as they were before."""
    ready: dict[Path, Path] = {}
    try:
        for path, write in files.items():
            with in_words(path):
                ready[path] = beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
                with os.fdopen(os.open(beside, _NEW, 0o666), "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
        for path, beside in ready.items():
            with in_words(path):
                beside.replace(path)
    finally:
        for beside in ready.values():
            beside.unlink(missing_ok=True)
    for folder in {path.parent for path in files}:
        sync(folder)


def sync(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
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
