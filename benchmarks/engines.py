"""What a block of 100 × 20 costs the coordinator, and how many it can take, on either engine.

The workers draw whole numbers, which costs them next to nothing: all time is that of the way to the
coordinator and of what it does there, the journal included.
"""

import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np

from quorate.data.write import write_shards
from quorate.journal import Journal
from quorate.run.run import Run
from quorate.run.settings import Settings
from quorate.run.stopping import Stopping, Until

DIM, BLOCK = 20, 100


class Flat:
    """A model of which nothing is asked but its size."""

    dim = DIM
    names = tuple(f"x[{i}]" for i in range(DIM))


class Counts:
    """Draws at no cost; workers are made to believe that each takes a millisecond.

    They fill a tenth of a second with each block, so that makes blocks of 100. The draws differ: a
    chain that does not move is an error.
    """

    name = "counts"
    determinism = "exact"

    def warm_up(self, target, stream):
        import quorate.engines.workers.worker

        self.clock = 0.0
        clock = types.SimpleNamespace(perf_counter=self.read_clock, sleep=time.sleep)
        quorate.engines.workers.worker.time = clock
        return {"index": np.array(0), "position": np.zeros(DIM)}

    def draw(self, target, state, stream, n):
        self.clock = n / 1000
        drawn = np.tile(np.arange(n, dtype=float)[:, None], DIM)
        return drawn, {"index": state["index"] + n, "position": drawn[-1]}

    def read_clock(self):
        """What was spent, once."""
        spent, self.clock = self.clock, 0.0
        return spent


def flood(engine: str, workers: int, n_blocks: int) -> None:
    """Let workers send as fast as they can; the first tenth, with all starts, does not count."""
    settings = Settings(
        workers=workers, scheme="cmc", engine=engine, draws=n_blocks * BLOCK // workers
    )
    rows = {"row": np.arange(float(workers))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = write_shards(rows, workers, folder / "shards")
        with Journal.create(folder, {}) as journal:
            run = Run(Flat(), Counts(), shards, settings, folder, journal, Stopping(Until()))
            begun = None
            for n_draws in run.steps(lambda _: None):
                if begun is None and n_draws >= settings.draws // 10:
                    begun = time.process_time(), len(run.timeline.block_times)
            cpu, n_before = begun
            n = len(run.timeline.block_times) - n_before
            per_block = 1e3 * (time.process_time() - cpu) / n
            rate = n / (run.timeline.block_times[-1] - run.timeline.block_times[n_before])
    print(f"  {engine:8} {workers:7} {n:8,} {per_block:12.3f} {rate:10,.0f}", flush=True)


def main() -> None:
    """Both engines with 8 workers, and 40 processes."""
    print("Blocks of 100 × 20, journal on")
    print("  engine   workers   blocks   CPU ms each   blocks/s", flush=True)
    flood("process", 8, 8_000)
    flood("process", 40, 20_000)
    if "--without-ray" not in sys.argv:
        flood("ray", 8, 4_000)


if __name__ == "__main__":
    main()
