"""CPU time and memory of virtual time as the number of workers grows, for merges and exact runs."""

import resource

from quorate import simulate
from quorate.lab.scale import ScaleExperiment, simulated
from timing import cpu_seconds

COUNTS = (1_000, 10_000, 100_000)
PER_PROCESS = 64


def merges() -> None:
    """20 draws of CMC: time should grow as the number of events does."""
    print("CMC, 20 draws, Pareto times")
    for workers in COUNTS:
        seconds = cpu_seconds(lambda k=workers: simulate("cmc", k, draws=20, realisations=1))
        _tell(workers, 20 * workers, seconds)


def exact_runs() -> None:
    """1,000 exact draws, 64 workers in a process."""
    print(f"Exact, 1,000 draws, {PER_PROCESS} workers in a process, Pareto times, r = 2")
    for workers in COUNTS:
        processes = -(-workers // PER_PROCESS)
        found = []

        def run(n=processes, found=found):
            found.append(simulated(ScaleExperiment(), n, PER_PROCESS, "heavy")[0])

        seconds = cpu_seconds(run)
        _tell(processes * PER_PROCESS, found[0].n_messages, seconds)


def _tell(workers: int, events: int, seconds: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each = seconds / events * 1e6
    print(f"  {workers:7,}  {events:9,}  {seconds:6.2f}  {each:13.1f}  {peak:14.0f}", flush=True)


def main() -> None:
    """Both."""
    print("  workers     events   CPU s   µs per event   peak memory MB")
    exact_runs()
    merges()


if __name__ == "__main__":
    main()
