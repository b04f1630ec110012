"""Memory of the coordinator of a long merge: draws of a shard that it receives, merges and saves.

The run is a real one, on processes, of a model that takes no time. Every fiftieth of a second a
thread notes how much memory of its own the process has (RssAnon), and how much in all, with the
pages of files that are mapped (VmRSS). The kernel takes the latter back when memory is short.

>>> python benchmarks/merge_memory.py 200000 10 20 adaptive
"""

import shutil
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

import quorate
from idle_workers import cpu


class Flat:
    """A standard normal prior of so many parameters, and rows that say nothing."""

    def __init__(self, dim: int) -> None:
        self.dim, self.names = dim, tuple(f"x{i}" for i in range(dim))

    def initial(self):
        return np.zeros(self.dim)

    def log_prior(self, x):
        return float(-0.5 * x @ x)

    def log_likelihood(self, x, shard):
        return 0.0

    def constrain(self, draws):
        return {"x": draws}


class Peak:
    """The most memory that this process had while it ran: its own, and all, in MB."""

    def __init__(self) -> None:
        self.own = self.all = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            found = dict(line.split(":", 1) for line in lines)
            self.own, self.all = (
                max(before, int(found[name].split()[0]) / 1024)
                for before, name in ((self.own, "RssAnon"), (self.all, "VmRSS"))
            )


def main(n_draws: int = 200_000, n_workers: int = 10, dim: int = 20, scheme: str = "cmc") -> None:
    """One run, measured."""
    folder, start = tempfile.mkdtemp(), cpu()
    try:
        with Peak() as peak:
            result = quorate.sample(
                Flat(dim),
                {"y": np.zeros(n_workers)},
                workers=n_workers,
                draws=n_draws,
                method="merge",
                scheme=scheme,
                sampler="ellipse",
                engine=quorate.Processes(2),
                run_dir=f"{folder}/run",
                progress=False,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{n_workers} workers, {n_draws:,} draws of {dim} parameters, {scheme}: "
        f"{n_workers * n_draws * dim * 8 / 1e6:.0f} MB of draws; "
        f"{peak.own:.0f} MB of its own at most, {peak.all:.0f} MB in all, {cpu() - start:.0f} CPU s"
    )
    print(f"mean of squares {float((result.unconstrained**2).mean()):.15g}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*map(int, given[:3]), *given[3:])
