"""Predict CMC from one short grouped run with `quorate.planner`, where the law of delays is known.

Runs are made up: four workers, blocks of 30 draws of a shard, a warm-up worth 300 draws, and a
factor on every block. A worker that is silent for more than 3 s is restarted, which takes 4 s. So
the true median is known, and many runs can be planned from. Workers of two groups share 1,200
batches.
"""

import sys
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from quorate.planner.measured import Measured, measured_times
from quorate.planner.options import Grid, compared
from quorate.protocol.times import Work
from quorate.run.history import Blocks

WORKERS, DRAWS, SECONDS_PER_DRAW, WARM_UP, BLOCK = 4, 1200, 0.0033, 1.0, 30
FIRST_BLOCK, SILENCE, START = 8, 3.0, 4.0
SOURCES = int(sys.argv[1]) if len(sys.argv) > 1 else 40
TRUE_RUNS = 2000


@dataclass(frozen=True)
class Law:
    """Pareto delays of this index, or log-normal ones if it is None; worker 0 is slower."""

    tail_index: float | None
    slow: float

    def seconds(
        self, rng: np.random.Generator, worker: int, n_draws: int, n_chains: int
    ) -> tuple[float, float]:
        """Seconds of a block with `n_chains` to warm up, and seconds lost to restarts before it."""
        spent, lost = n_draws * SECONDS_PER_DRAW + n_chains * WARM_UP, 0.0
        while True:
            took = spent * self._factor(rng, worker)
            if n_chains or took <= SILENCE:
                return took, lost
            lost += SILENCE + START

    def _factor(self, rng: np.random.Generator, worker: int) -> float:
        slow = self.slow if worker == 0 else 1.0
        if self.tail_index is None:
            return slow * float(np.exp(0.1 * rng.standard_normal()))
        scale = (self.tail_index - 1) / self.tail_index
        return max(1.0, slow * scale * rng.uniform() ** (-1 / self.tail_index))


LAWS = [Law(1.5, 3.0), Law(1.5, 1.0), Law(1.2, 3.0), Law(3.0, 3.0), Law(None, 3.0)]


def lane(law: Law, rng: np.random.Generator, worker: int, n_shards: int) -> list[list[float]]:
    """Blocks of a worker that makes all batches: begin, end, worker, attempt, first, n."""
    now, first, attempt, rows = 0.0, 0, 0, []
    while first < DRAWS:
        n = FIRST_BLOCK if not first else min(BLOCK // n_shards, DRAWS - first)
        took, lost = law.seconds(rng, worker, n * n_shards, 0 if first else n_shards)
        attempt += lost > 0
        rows.append([now + lost, now + lost + took, worker, attempt, first, n])
        now, first = now + lost + took, first + n
    return rows


def cmc_seconds(law: Law, rng: np.random.Generator) -> float:
    """Seconds until the last worker has all draws of its shard."""
    return max(lane(law, rng, worker, 1)[-1][1] for worker in range(WORKERS))


class MadeUp:
    """The history of a made-up grouped run, as far as `measured_times` reads it."""

    n_workers, passes = WORKERS, None

    def __init__(self, law: Law, rng: np.random.Generator) -> None:
        lanes = [lane(law, rng, worker, 2) for worker in range(WORKERS)]
        done = [_when_done(lanes[0] + lanes[1]), _when_done(lanes[2] + lanes[3])]
        self.seconds = max(done)
        self._rows = [r for rows in lanes for r in rows if r[1] <= done[int(r[2]) // 2]]
        self._late = [
            next(r for r in rows if r[1] > done[worker // 2])
            for worker, rows in enumerate(lanes)
            if rows[-1][1] > done[worker // 2]
        ]

    def blocks(self) -> Blocks:
        begins, ends, *numbers = np.array(sorted(self._rows, key=lambda r: r[1])).T
        workers, attempts, firsts, n_draws = (column.astype(np.int64) for column in numbers)
        nothing = np.zeros_like(workers)
        cells, cell, n_shards = ((0, 1), (2, 3)), workers // 2, np.full_like(workers, 2)
        rest = (nothing, nothing, nothing)
        return Blocks(
            cells, begins, ends, workers, attempts, cell, firsts, n_draws, n_shards, *rest
        )

    def under_way(self) -> dict[int, float]:
        late = [row for row in self._late if row[1] > self.seconds and row[4] > 0]
        return {int(row[2]): max(0.0, self.seconds - row[0]) for row in late}

    def gone(self) -> dict[int, float]:
        return {}


def _when_done(rows: list[list[float]]) -> float:
    rows = sorted(rows, key=lambda row: row[1])
    n_batches = np.cumsum([row[5] for row in rows])
    return rows[int(np.searchsorted(n_batches, DRAWS))][1]


def predicted(measured: Measured) -> float:
    """Median time of CMC by the plan."""
    work = Work(measured, WORKERS, DRAWS, measured.block, warm_up=measured.warm_up)
    grid = Grid((WORKERS,), (2,), ("cmc",))
    (option,) = compared(grid, work, WORKERS, 1.0, 2, 100, lambda done, total: None, None)
    return option.median


def main() -> None:
    """Print predicted over true medians."""
    for law in LAWS:
        rng = np.random.default_rng(0)
        true = np.median([cmc_seconds(law, rng) for _ in range(TRUE_RUNS)])
        ratios: list[float] = []
        for i in count():
            history: Any = MadeUp(law, np.random.default_rng([1, i]))
            measured = measured_times(history)
            if not measured.silent:
                ratios.append(predicted(measured) / float(true))
            if len(ratios) == SOURCES:
                break
        shares = ", ".join(f"{q:.2f}" for q in np.quantile(ratios, [0.05, 0.5, 0.95]))
        print(f"{law}: {true:.1f} s; predicted over true, 5 %, 50 %, 95 % of runs: {shares}")


if __name__ == "__main__":
    main()
