"""Blocks for journals, in a module of its own so that other processes start quickly."""

import numpy as np

from quorate.journal import BlockRecord, TaskGiven


def block(draw, n=3, worker=0, **options):
    """A block that can be told from all others by what it holds."""
    payload = worker + np.arange(draw, draw + n, dtype=float)[:, None, None] * [[1.0, -1.0]]
    state = {"position": payload[-1, 0], "n": np.array(draw + n)}
    return BlockRecord(0.5 * draw, worker, 0, (worker,), 0, draw, payload, state=state, **options)


def task(time, worker=0):
    return TaskGiven(time, worker, 0, (worker,), 0, 0, 3, False)
