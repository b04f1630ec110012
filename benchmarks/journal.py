"""CPU time of the journal for a block of 100 x 20 float64, beside a bare write of its bytes."""

import tempfile
import time
from pathlib import Path

import numpy as np

from quorate.journal import BlockRecord, Journal, JournalReader

N_BLOCKS, N_WORKERS = 5000, 40


def blocks(state: dict[str, np.ndarray]) -> list[BlockRecord]:
    """Blocks of all workers in turn."""
    payload = np.random.default_rng(0).standard_normal((100, 1, 20))
    return [
        BlockRecord(
            0.01 * i,
            i % N_WORKERS,
            0,
            (i % N_WORKERS,),
            0,
            100 * (i // N_WORKERS),
            payload,
            {},
            state,
        )
        for i in range(N_BLOCKS)
    ]


def journal_cost(records: list[BlockRecord], batch: int) -> tuple[float, float, float]:
    """CPU ms and wall ms a block, and the longest append, ms, checkpoints and syncs included."""
    with tempfile.TemporaryDirectory() as folder:
        longest = 0.0
        with Journal.create(Path(folder), {}) as journal:
            cpu, wall = time.process_time(), time.perf_counter()
            for i in range(0, len(records), batch):
                start = time.perf_counter()
                journal.append(records[i : i + batch])
                longest = max(longest, time.perf_counter() - start)
        each = 1e3 / len(records)
        return (
            (time.process_time() - cpu) * each,
            (time.perf_counter() - wall) * each,
            longest * 1e3,
        )


def write_cost(records: list[BlockRecord]) -> float:
    """CPU ms a block of nothing but writing the bytes to a file."""
    with tempfile.TemporaryFile() as file:
        cpu = time.process_time()
        for record in records:
            file.write(record.payload.tobytes())
        file.flush()
        return (time.process_time() - cpu) * 1e3 / len(records)


def read_cost(records: list[BlockRecord]) -> tuple[float, float]:
    """CPU ms a block of reading, and of opening the run to go on with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Journal.create(folder, {}) as journal:
            journal.append(records)
        cpu = time.process_time()
        with JournalReader(folder) as reader:
            n_read = sum(1 for _ in reader.records())
        read = time.process_time() - cpu
        cpu = time.process_time()
        Journal.open(folder).close()
        return read * 1e3 / n_read, (time.process_time() - cpu) * 1e3 / n_read


def main() -> None:
    """Least of three, with no state, a small one, and one of which a part changes with a block."""
    position, matrix = np.zeros(20), np.zeros((20, 20))
    states = {
        "no state": {},
        "position (20)": {"position": position},
        "position and scale (20 x 20)": {"position": position, "scale": matrix},
    }
    print(f"journal: {N_BLOCKS:,} blocks of 100 x 20 float64 of {N_WORKERS} workers; ms a block")
    print(f"  bare write to a file: CPU {min(write_cost(blocks({})) for _ in range(3)):.4f}")
    print("  state with each block           batch     CPU    wall   longest append")
    for name, state in states.items():
        records = blocks(state)
        for batch in (1, 10, 50):
            cpu, wall, longest = min(journal_cost(records, batch) for _ in range(3))
            print(f"  {name:30}  {batch:5}  {cpu:6.4f}  {wall:6.4f}  {longest:10.1f} ms")
    read, opened = read_cost(blocks(states["position (20)"]))
    print(f"  reading: CPU {read:.4f}; opening to resume, everything checked: CPU {opened:.4f}")


if __name__ == "__main__":
    main()
