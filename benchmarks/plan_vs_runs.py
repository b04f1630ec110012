"""Compare the times that `quorate.planner` predicts from one run with those of runs on processes.

The likelihood sleeps, so that workers do not compete for cores. Pareto delays and one slow worker
are put in. Times count from the moment at which workers begin, without the start of Python.

Arguments: runs of each scheme, the first seed, and the method, merge or exact.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from quorate._types import Array
from quorate.api import sample
from quorate.engines.faults import Faults
from quorate.engines.options import Processes
from quorate.planner import plan
from quorate.planner.measured import measured
from quorate.run.history import History
from quorate.run.settings import Method

WORKERS, DRAWS = 4, 1200
FAULTS = Faults(slow="1x3", straggle=1.5)
SCHEMES = ("cmc", "grouped", "adaptive")
RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 6
FIRST_SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
METHOD: Method = "exact" if sys.argv[3:] == ["exact"] else "merge"
SEEDS = range(FIRST_SEED, FIRST_SEED + RUNS)
AT_ONCE = 4
SLEEP = 0.002


class SleepyModel:
    """z ~ N(θ, 1) in two dimensions; each likelihood sleeps for two milliseconds."""

    dim = 2
    names = ("a", "b")

    def initial(self) -> Array:
        """Starting point."""
        return np.zeros(2)

    def log_prior(self, x: Array) -> float:
        """Log density of θ ~ N(0, 100)."""
        return float(-0.5 * np.sum(x**2) / 100)

    def log_likelihood(self, x: Array, shard: dict[str, Array]) -> float:
        """Log likelihood of the rows of one shard."""
        time.sleep(SLEEP)
        return float(-0.5 * np.sum((shard["z"] - x) ** 2))

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Parameters by name."""
        return {"theta": draws}


def run(scheme: str, seed: int, folder: Path) -> float:
    """Seconds that a run takes from when its workers begin."""
    rows = {"z": np.random.default_rng(1).normal(size=(400, 2))}
    sample(
        SleepyModel(),
        rows,
        method=METHOD,
        engine=Processes(WORKERS),
        workers=WORKERS,
        redundancy=2,
        scheme=scheme,
        draws=DRAWS,
        seed=seed,
        sampler="ellipse" if METHOD == "merge" else "auto",
        faults=FAULTS,
        run_dir=folder,
        progress=False,
        check=False,
    )
    with History(folder) as history:
        history.read()
    blocks = history.blocks()
    begins = [blocks.of(k).begins[0] for k in set(blocks.workers.tolist())]
    return blocks.releasing_time - float(np.median(begins))


def main() -> None:
    """Print predicted and measured medians."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(scheme, seed) for seed in SEEDS for scheme in SCHEMES]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            taken = pool.map(lambda job: run(*job, Path(folder) / f"{job[0]}-{job[1]}"), jobs)
            seconds = dict(zip(jobs, taken, strict=True))
        print(f"{RUNS} runs of each scheme, {time.perf_counter() - began:.0f} s in all")
        print("planned from   scheme     predicted  measured   ratio")
        for source in ("grouped", "adaptive"):
            folders = [Path(folder) / f"{source}-{seed}" for seed in SEEDS]
            rows = np.transpose([predicted_medians(each) for each in folders])
            for scheme, row in zip(SCHEMES, rows, strict=True):
                took = np.median([seconds[scheme, s] for s in SEEDS])
                spread = f"({row.min() / took:.2f} to {row.max() / took:.2f})"
                predicted = np.median(row)
                print(
                    f"{source:13}  {scheme:9} {predicted:8.2f} s {took:8.2f} s  "
                    f"{predicted / took:5.2f} {spread}"
                )


def predicted_medians(folder: Path) -> list[float]:
    """Median time of every scheme, since workers begin, by the times of one run."""
    found = plan(run=folder, workers=[WORKERS], redundancies=[2], schemes=SCHEMES)
    start = measured(folder)[0].start
    return [option.median - start for option in found.options]


if __name__ == "__main__":
    main()
