"""What a long exact run costs after its last draw: to open it for a report, and to resume it.

The run is a linear regression of a few rows on processes, so nearly all of its time is that of the
coordinator. Then it is opened in processes of their own, with the kept state of its chains and
without it, when all answers are replayed from the journal. CPU seconds are those of a process and
its children. Memory is the most that the process had, beyond that for a run of a thousand draws.

>>> python benchmarks/opening.py 1000000
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from quorate.run.snapshot import NAME

_ROWS, _COLUMNS = 400, 9
_DRAW = f"""
import numpy as np, quorate
from quorate.models import linear
rng = np.random.default_rng(1)
X = rng.normal(size=({_ROWS}, {_COLUMNS}))
data = dict(X=X, y=X.sum(axis=1) + rng.normal(size={_ROWS}))
quorate.sample(linear({_COLUMNS}), data, workers=2, method="exact", draws={{draws}}, seed=1,
               run_dir={{run!r}}, progress=False)
"""
_REPORT = """
from pathlib import Path
from quorate.report import report
report(Path({run!r}))
"""
_REPLAY = """
import quorate
from quorate.run.run import Run
Run.steps = lambda run, listen: iter(())
Run.final_result = lambda run: None
quorate.resume({run!r}, progress=False)
"""
_RESUME = """
import quorate
quorate.resume({run!r}, progress=False)
"""
_WAYS = {"report": _REPORT, "open to resume": _REPLAY, "resume, summarise and check": _RESUME}
_FEW = 1000


def cost(program: str, **given: object) -> tuple[float, float]:
    """CPU seconds of a program and its children, and its own memory at most, in MB."""
    started = subprocess.Popen([sys.executable, "-c", program.format(**given)])  # noqa: S603
    _, status, used = os.wait4(started.pid, 0)
    if status:
        sys.exit(status)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def costs(draws: int) -> dict[str, tuple[float, float]]:
    """CPU seconds and memory of a run, and of all ways to open it."""
    folder = Path(tempfile.mkdtemp())
    run, kept = str(folder / "run"), folder / "run" / NAME
    try:
        found = {"draw, check and save": cost(_DRAW, draws=draws, run=run)}
        for way, program in _WAYS.items():
            found[way] = cost(program, run=run)
        for way, program in _WAYS.items():
            kept.unlink(missing_ok=True)
            found[f"{way}, all answers replayed"] = cost(program, run=run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def main(draws: int = 1_000_000) -> None:
    """One run, opened in all ways."""
    few, found = costs(_FEW), costs(draws)
    (drawing, _), *_ = found.values()
    megabytes = draws * (_COLUMNS + 1) * 8 / 1e6
    print(f"{draws:,} draws of {_COLUMNS + 1} parameters, {megabytes:.0f} MB")
    for way, (seconds, memory) in found.items():
        seconds_of_few, memory_of_few = few[way]
        print(
            f"{way}: {seconds:.1f} CPU s, {seconds / drawing:.2f} of drawing "
            f"({seconds_of_few:.1f} s with {_FEW:,} draws); "
            f"{(memory - memory_of_few) / megabytes:.1f} times the draws in memory"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
