"""Folders that quorate chooses for runs, where nobody names one."""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from quorate.errors import RESUMABLE

RUNS = Path("runs")  # in the current directory
_LONGEST = 40  # characters of a name


@contextmanager
def chosen_folder(folder: Path) -> Iterator[Path]:
    """A folder that nobody asked for: removed if the run fails with nothing to resume."""
    try:
        yield folder
    except (*RESUMABLE, KeyboardInterrupt):
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def dated_folder(name: str) -> Path:
    """A folder `runs/DATE-TIME-NAME` that does not exist yet."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_LONGEST] or "run"
    first = RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{plain}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return first if not first.exists() else next(each for each in others if not each.exists())
