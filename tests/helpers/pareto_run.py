"""The journal of a run that never was, with Pareto times of blocks."""

import numpy as np

from helpers import journals
from helpers.journals import block, happened, task


def pareto_run(folder, rng, index=1.3, n_blocks=80, slow=1.0, dead=False):
    """Four workers, blocks of 4 draws of 2 shards with Pareto times; the first is slower."""
    records = []
    for worker in range(4):
        shards = (0, 1) if worker < 2 else (2, 3)
        times = 0.1 * rng.uniform(size=n_blocks) ** (-1 / index) * (slow if worker == 0 else 1)
        ends = 3.0 + np.cumsum(times)
        records.append(task(1.0, worker, 0, 4 * n_blocks, shards))
        n = n_blocks // 2 if dead and worker == 3 else n_blocks
        records += [block(ends[i], worker, first=4 * i, shards=shards) for i in range(n)]
        if n < n_blocks:
            records.append(happened(ends[n - 1] + 0.1, "lost", worker))
    records.sort(key=lambda record: record.time)
    return journals.write(folder, records, workers=4, draws=200)
