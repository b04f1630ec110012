"""CPU time and memory of CMC in virtual time as the number of workers grows."""

import resource

from quorate import simulate
from timing import cpu_seconds


def main() -> None:
    """20 draws of 100 to 10,000 workers: time should grow as the number of events does."""
    print("CMC, 20 draws, Pareto times, virtual time")
    print("  workers    events   CPU s   µs per event   peak memory MB")
    for workers in (100, 1_000, 10_000):
        seconds = cpu_seconds(lambda k=workers: simulate("cmc", k, draws=20, realisations=1))
        events = 20 * workers
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        each = seconds / events * 1e6
        print(f"  {workers:7,}  {events:8,}  {seconds:6.2f}  {each:13.1f}  {peak:14.0f}")


if __name__ == "__main__":
    main()
