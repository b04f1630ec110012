"""A live page beside a run of this process."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from quorate._extras import require_installed
from quorate.errors import BadInputError

NEEDED = MappingProxyType({"starlette": "watch", "uvicorn": "watch"})


def require_extra() -> None:
    """Raise an error if a library that the server needs is not installed."""
    require_installed(NEEDED)


@contextmanager
def page_beside(folder: Path, tell: Callable[[str], object]) -> Iterator[None]:
    """Serve the page of a run in `folder` from a process of its own.

    The process ends with the `with` block, and if this process dies. Ctrl-C does not reach it, so
    the page shows how the run ends.
    """
    require_extra()
    with _served(folder) as address:
        tell(address)
        yield


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    with subprocess.Popen(  # noqa: S603 (this Python, and no shell)
        [sys.executable, "-P", "-m", "quorate.live", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        text=True,
    ) as process:  # leaving it closes the input, and waits
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise BadInputError(
                f"The live page of {folder} cannot be served. Run `quorate watch` to see why."
            )
        yield address
