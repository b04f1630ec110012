"""What `quorate.planner` predicts from one run, beside what other runs on processes then take.

A likelihood that sleeps, so that workers do not fight for cores, with Pareto delays and one slow
worker put in. Times are from the moment at which workers begin: starting Python is not planned for.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import quorate
from quorate._types import Array
from quorate.planner.measured import measured
from quorate.run.history import Story

WORKERS, DRAWS, TAIL, SLOW = 4, 1200, 1.5, "1x3"
SCHEMES = ("cmc", "grouped", "adaptive")
RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 6
FIRST_SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
SEEDS = range(FIRST_SEED, FIRST_SEED + RUNS)
AT_ONCE = 4
SLEEP = 0.002


class SleepyModel:
    """z ~ N(θ, 1) in two dimensions; a look at the rows takes two milliseconds of sleep."""

    dim = 2
    names = ("a", "b")

    def initial(self) -> Array:
        """Where to begin."""
        return np.zeros(2)

    def log_prior(self, x: Array) -> float:
        """θ ~ N(0, 100)."""
        return float(-0.5 * np.sum(x**2) / 100)

    def log_likelihood(self, x: Array, shard: dict[str, Array]) -> float:
        """Of the rows of one shard."""
        time.sleep(SLEEP)
        return float(-0.5 * np.sum((shard["z"] - x) ** 2))

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Nothing to do."""
        return {"theta": draws}


def run(scheme: str, seed: int, folder: Path) -> float:
    """Seconds that a run took since its workers began."""
    rows = {"z": np.random.default_rng(1).normal(size=(400, 2))}
    quorate.sample(
        SleepyModel(),
        rows,
        workers=WORKERS,
        redundancy=2,
        scheme=scheme,
        draws=DRAWS,
        seed=seed,
        sampler="ellipse",
        straggle=TAIL,
        slow=SLOW,
        run_dir=folder,
        progress=False,
    )
    with Story(folder) as story:
        story.read()
    blocks = story.blocks()
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
    """Of every scheme, since workers begin, by the times of one run."""
    found = quorate.plan(run=folder, workers=[WORKERS], redundancies=[2], schemes=SCHEMES)
    start = measured(folder)[0].start
    return [option.median - start for option in found.options]


if __name__ == "__main__":
    main()
