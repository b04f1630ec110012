"""CPU time of a small run, all processes included: most of it is spent on the start of workers."""

import resource
import sys
import time
from pathlib import Path

import numpy as np

import quorate

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.processes import MeanModel

REPEAT = 5
ROWS = {"z": np.random.default_rng(0).normal(size=(800, 2))}


def cpu_seconds() -> float:
    """Of this process and of all that have ended below it."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def spent(workers: int) -> tuple[float, float]:
    """CPU seconds and seconds of one run."""
    cpu, clock = cpu_seconds(), time.perf_counter()
    quorate.sample(
        MeanModel(),
        ROWS,
        workers=workers,
        draws=100,
        sampler="ellipse",
        progress=False,
        check=False,
    )
    return cpu_seconds() - cpu, time.perf_counter() - clock


def main() -> None:
    """The least of a few runs, for one worker to 32."""
    print(f"100 draws of a mean, least of {REPEAT} runs")
    print("  workers   CPU s   seconds")
    for workers in (1, 8, 32):
        cpu, clock = np.min([spent(workers) for _ in range(REPEAT)], axis=0)
        print(f"  {workers:7}  {cpu:6.2f}  {clock:8.2f}")


if __name__ == "__main__":
    main()
