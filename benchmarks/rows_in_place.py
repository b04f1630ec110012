"""Exact draws from rows that stay in Parquet files: memory of all processes, and time for a pass.

    python benchmarks/rows_in_place.py --rows 200_000_000 --folder /tmp/lake

It writes the files first, by another process, and removes them at the end. The first column has
another mean in each file, so that no shard is a random sample of the rows. A limit on private
memory holds for every process: one that wants more fails. Copies of columns are mapped from files,
and do not count.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import quorate
from quorate.models import linear, logistic
from quorate.run.progress import Phase, Progress

COLUMNS = 10
TRUTH = np.linspace(-0.5, 0.5, COLUMNS)
ROW_GROUP = 1 << 20
MODELS = {"linear": linear, "logistic": logistic}
MEBIBYTE = 1 << 20


def write_files(folder: Path, n_rows: int, n_files: int, family: str) -> None:
    """Files of random rows, in single precision, each of a population of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for number, size in enumerate(np.diff(np.linspace(0, n_rows, n_files + 1).astype(int))):
        rng = np.random.default_rng([7, number])
        path, plain = folder / f"{number:03d}.parquet", {"compression": "none"}
        with pq.ParquetWriter(path, schema(), use_dictionary=False, **plain) as file:
            for start in range(0, size, ROW_GROUP):
                rows = rng.standard_normal((COLUMNS, min(ROW_GROUP, size - start)), np.float32)
                rows[0] += number / n_files
                eta = TRUTH.astype(np.float32) @ rows
                if family == "linear":
                    y = eta + rng.standard_normal(rows.shape[1], np.float32)
                else:
                    y = (rng.random(rows.shape[1], np.float32) < 1 / (1 + np.exp(-eta))).astype(
                        "f4"
                    )
                columns = {f"x{i}": rows[i] for i in range(COLUMNS)}
                file.write_table(pa.table({**columns, "y": y}, schema=schema()))


def schema() -> Any:
    """Columns of the files."""
    import pyarrow as pa

    return pa.schema([(f"x{i}", pa.float32()) for i in range(COLUMNS)] + [("y", pa.float32())])


def stacked(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of a batch as X and y."""
    design = np.empty((len(rows["y"]), COLUMNS))
    for i in range(COLUMNS):
        design[:, i] = rows[f"x{i}"]
    return {"X": design, "y": rows["y"].astype(np.float64)}


class Watch:
    """Takes progress, and notes the time of phases; meanwhile, the memory of all workers."""

    def __init__(self) -> None:
        self.private = Counter[int]()  # bytes at most, by process
        self.began: dict[Phase, float] = {}
        self.passes: list[tuple[float, int]] = []
        threading.Thread(target=self._look, daemon=True).start()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        self.began.setdefault(progress.phase, now)
        if not self.passes or progress.passes > self.passes[-1][1]:
            self.passes.append((now, progress.passes))

    def _look(self) -> None:
        while True:
            for pid in below(os.getpid()):
                self.private[pid] = max(self.private[pid], private_memory(pid))
            time.sleep(0.3)


def below(root: int) -> list[int]:
    """Processes that a process has started, and those that these have."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
    found, before = {root}, 0
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return sorted(found - {root})


def private_memory(pid: int) -> int:
    """Bytes of anonymous memory of a process; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def main() -> None:
    """Measure, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--family", choices=MODELS, default="linear")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=2000, help="MiB of private memory")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--keep", action="store_true", help="keep the files")
    parser.add_argument("--only-write", action="store_true")
    options = parser.parse_args()
    if options.only_write:
        write_files(options.folder, options.rows, options.files, options.family)
        return
    try:
        measure(options)
    finally:
        if not options.keep:
            shutil.rmtree(options.folder)


def measure(options: argparse.Namespace) -> None:
    """Write files if there are none, sample, and print what was measured."""
    if not options.folder.exists():
        again = [sys.executable, *sys.argv, "--only-write"]
        subprocess.run(again, check=True)  # noqa: S603 - our own words
    limit = options.limit * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    watch, start = Watch(), time.monotonic()
    scratch = options.folder.with_name(f"{options.folder.name}-scratch")
    cut = quorate.Cut("in-place", transform=stacked, scratch=str(scratch))
    result = quorate.sample(
        MODELS[options.family](COLUMNS),
        str(options.folder / "*.parquet"),
        by=cut,
        workers=options.workers,
        engine=quorate.Processes(options.processes),
        draws=options.draws,
        progress=watch,
        every=0.1,
        run_dir=options.folder.with_name(
            f"{options.folder.name}-run-{options.family}-{options.rows}"
        ),
    )
    shutil.rmtree(scratch, ignore_errors=True)
    moments = {phase.value: round(began - start, 1) for phase, began in watch.began.items()}
    drawing = [at for at in watch.passes if at[0] >= watch.began.get(Phase.DRAWING, np.inf)]
    found = {
        "rows": options.rows,
        "family": options.family,
        "workers": options.workers,
        "processes": options.processes,
        "bytes of files": sum(f.stat().st_size for f in options.folder.glob("*.parquet")),
        "seconds": round(time.monotonic() - start, 1),
        "phases begin at": moments,
        "passes": result.n_passes,
        "seconds for each pass of drawing": seconds_each(drawing),
        "coordinator MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "private MiB of the largest worker": max(watch.private.values(), default=0) // MEBIBYTE,
        "verdict": str(result.verdict),
        "largest error in posterior sds": round(largest_error(result), 2),
    }
    print(json.dumps(found, indent=1))


def seconds_each(drawing: list[tuple[float, int]]) -> float | None:
    """Seconds for a pass, from the first look to the last."""
    if len(drawing) < 2 or drawing[-1][1] == drawing[0][1]:
        return None
    return round((drawing[-1][0] - drawing[0][0]) / (drawing[-1][1] - drawing[0][1]), 2)


def largest_error(result: quorate.Result) -> float:
    """Distance of posterior means from the truth: it has the size of a posterior sd, or a few."""
    draws = result.unconstrained[:, :COLUMNS]
    return float(np.abs((draws.mean(axis=0) - TRUTH) / draws.std(axis=0)).max())


if __name__ == "__main__":
    main()
