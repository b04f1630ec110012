"""A live page beside a run that this process makes."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate._extras import load
from quorate.errors import BadInputError


def require_extra() -> None:
    """Miss what the server needs before anything is done."""
    load("starlette", "watch")
    load("uvicorn", "watch")


@contextmanager
def page_beside(folder: Path | None, tell: Callable[[str], object]) -> Iterator[Path]:
    """Have a process serve the page of a run in `folder`, or in a temporary one, while it is made.

    The process ends with the block, and with this process, however that ends. Ctrl-C does not
    reach it: the page is there to the last.
    """
    require_extra()
    made = None if folder is not None else Path(tempfile.mkdtemp(prefix="quorate-"))
    watched = folder or made
    assert watched is not None
    try:
        with _served(watched) as address:
            tell(address)
            yield watched
    except BaseException:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise


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
                "watch", str(folder), "its page cannot be served: see `quorate watch`"
            )
        yield address
