"""What a pass costs the coordinator: workers that answer zeros at once, and share a few processes.

The processes, the pipes, the schedule and the supervisor are the real ones. Only the model has
nothing to compute. A pass is a question of 64 points to each of two ensembles of chains.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from quorate.data.write import write_shards
from quorate.engines.drive import drive
from quorate.engines.process import ProcessEngine
from quorate.engines.worker import Job
from quorate.passes.inquiry import Pass
from quorate.protocol.allocation import cyclic
from quorate.protocol.passes import PassCoordinator, PassSchedule
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.sums import AnyHolder
from quorate.protocol.supervisor import Supervisor
from quorate.samplers.ellipse import EllipseSampler

DIM, POINTS, LANES = 10, 64, 2


class Idle:
    """A model without a likelihood or prior."""

    dim = DIM
    names = tuple(f"x{i}" for i in range(DIM))

    def initial(self):
        return np.zeros(DIM)

    def log_prior_many(self, points):
        return np.zeros(len(points))

    def log_likelihood_many(self, points, shard):
        return np.zeros(len(points))


class Questions:
    """Asks for two times 64 points, again and again."""

    def __init__(self, n_passes: int) -> None:
        self.open: dict[int, Pass] = {}
        self.n_complete = 0
        self._n_passes = n_passes
        self._points = np.random.default_rng(0).standard_normal((POINTS, DIM))

    def begin(self, surveys: object) -> None:
        """Ask the first question of each lane."""
        for lane in range(LANES):
            self.open[lane] = Pass(lane, 0, "draw", self._points)

    def take(self, lane: int, values: object, gradients: object = None) -> None:
        """Ask the next."""
        asked = self.open.pop(lane)
        self.n_complete += 1
        if asked.number + 1 < self._n_passes:
            self.open[lane] = asked._replace(number=asked.number + 1)


def cpu_of_this_process() -> float:
    """CPU seconds of the coordinator with all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def per_pass(n_workers: int, n_processes: int, n_passes: int, redundancy: int = 2) -> list[float]:
    """CPU ms of the coordinator and of each process, and seconds that pass, for each pass."""
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards({"y": np.zeros(n_workers)}, n_workers, Path(folder) / "shards")
        job = Job(Idle(), EllipseSampler(), SendDraws(), str(shards.folder), n_workers, 0)
        questions = Questions(n_passes)
        schedule = PassSchedule(
            AnyHolder.by_shard(cyclic(n_workers, redundancy)), questions, needs_surveys=False
        )
        supervisor = Supervisor(PassCoordinator(schedule, LANES * n_passes))
        first, last = (0, 0.0, 0.0), (0, 0.0, 0.0)
        with ProcessEngine(job, n_workers, Path(folder) / "logs", n_processes) as engine:
            for _ in drive(supervisor, engine, lambda *_: None, lambda _: False):
                last = questions.n_complete, cpu_of_this_process(), time.perf_counter()
                if not first[0] and questions.n_complete >= LANES * n_passes // 5:
                    first = last
    n = (last[0] - first[0]) / LANES
    return [(last[1] - first[1]) / n * 1000, (last[2] - first[2]) / n * 1000]


def main() -> None:
    """From a hundred to a thousand workers on few and many processes."""
    n_passes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"Idle workers, r = 2, passes of {LANES} x {POINTS} points, {DIM} parameters")
    print("  workers  processes   coordinator: CPU ms a pass   cores at 10 passes a second")
    for workers, processes in ((100, 4), (100, 16), (1000, 4), (1000, 16), (1000, 64)):
        cpu, _ = per_pass(workers, processes, n_passes)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  {workers:7,}  {processes:9,}  {cpu:27.2f}  {cpu / 100:28.2f}   {peak:.0f} MB")


if __name__ == "__main__":
    main()
