"""One lane for each worker: its blocks over time, and what happened to it."""

from typing import Any

import numpy as np

from quorate.journal import WorkerEvent
from quorate.protocol.messages import Status
from quorate.run.blocks import Blocks
from quorate.run.history import History

_MOST_SPANS = 8_000  # of all lanes together
_COLUMNS = (40, 400)  # of the picture of one lane: fewest and most


def lanes(history: History, blocks: Blocks, seconds: float) -> list[dict[str, Any]]:
    """The lane of each worker; `spans` are [begin, end, cell]."""
    held = history.scheme.allocation.held
    columns = int(np.clip(_MOST_SPANS // history.n_workers, *_COLUMNS))
    return [
        _lane(history, blocks.of(k), k, held[k], columns / max(seconds, 1e-9))
        for k in range(history.n_workers)
    ]


def _lane(
    history: History, mine: Blocks, worker: int, shards: tuple[int, ...], columns_per_second: float
) -> dict[str, Any]:
    events = [e for e in history.events if isinstance(e, WorkerEvent) and e.worker == worker]
    return {
        "shards": shards,
        "status": _status(history, mine, worker, events),
        "blocks": len(mine),
        "draws": int(np.sum(mine.n_draws * mine.n_shards)),
        "spans": _spans(mine, columns_per_second),
        "marks": [[event.time, event.word] for event in events[-_COLUMNS[1] :]],
    }


def _spans(mine: Blocks, columns_per_second: float) -> list[list[float]]:
    """Blocks; those that end in the same column of the picture are joined."""
    column = np.floor(mine.ends * columns_per_second)
    last = np.flatnonzero(np.diff(column, append=np.inf))
    first = np.concatenate([[0], last + 1])[:-1].astype(int)
    spans = zip(mine.begins[first], mine.ends[last], mine.cell[last], strict=True)
    return [[round(float(begin), 3), round(float(end), 3), int(cell)] for begin, end, cell in spans]


def _status(history: History, mine: Blocks, worker: int, events: list[WorkerEvent]) -> str:
    """Starting, working or ended; of a worker that is gone, what happened to it last.

    A worker that was restarted is gone until it sends a block.
    """
    if worker in history.gone():
        return [e.word for e in events if e.takes_away or history.stopped is None][-1]
    if history.stopped is not None:
        return "ended"
    return Status.WORKING if len(mine) and mine.ends[-1] >= history.sitting else Status.STARTING
