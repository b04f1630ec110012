"""Logs of worker processes: one file each, of limited size."""

import os
from contextlib import suppress
from pathlib import Path

_MOST = 8 * 2**20  # bytes of a log; beyond them only the end is kept
_KEPT = 2**20  # bytes
_DROPPED = b"[quorate dropped what came before: a log holds at most 8 MB]\n"


class Logs:
    """Files for what worker processes print.

    Parameters
    ----------
    folder
        Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: list[Path] = []
        folder.mkdir(parents=True, exist_ok=True)

    def new(self) -> Path:
        """The log of one more process. Processes append to their logs."""
        self._paths.append(self._folder / f"process-{len(self._paths)}.log")
        return self._paths[-1]

    def trim(self) -> None:
        """Cut logs that have become too long, also while processes write to them."""
        for path in self._paths:
            with suppress(OSError):  # somebody has removed it
                if path.stat().st_size > _MOST:
                    _keep_end(path)


def _keep_end(path: Path) -> None:
    """Keep the last lines of a log. What is written at this very moment may be lost."""
    with path.open("rb+") as file:
        file.seek(-_KEPT, os.SEEK_END)
        end = file.read(_KEPT).partition(b"\n")[2]
        file.truncate(0)
    with path.open("ab") as file:
        file.write(_DROPPED + end)
