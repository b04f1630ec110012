"""One lane for each worker: its blocks over time, and what happened to it."""

from typing import Any

import numpy as np

from quorate.run.history import FAULTS, Blocks, History

_MOST_SPANS, _FEWEST, _MOST = 8_000, 40, 400  # of all lanes, and of one
_MARKS = (*FAULTS, "restarted")


def lanes(history: History, blocks: Blocks, seconds: float) -> list[dict[str, Any]]:
    """What is drawn for each worker; `spans` are [begin, end, cell]."""
    held = history.settings.make_scheme(history.dim).allocation.held
    columns = int(np.clip(_MOST_SPANS // history.n_workers, _FEWEST, _MOST))
    return [
        _lane(history, blocks.of(k), k, held[k], columns / max(seconds, 1e-9))
        for k in range(history.n_workers)
    ]


def _lane(
    history: History, mine: Blocks, worker: int, shards: tuple[int, ...], columns_per_second: float
) -> dict[str, Any]:
    marks = [e for e in history.events if e.worker == worker and e.what in _MARKS]
    return {
        "shards": shards,
        "status": _status(history, mine, worker),
        "blocks": len(mine),
        "draws": int(np.sum(mine.n_draws * mine.n_shards)),
        "spans": _spans(mine, columns_per_second),
        "marks": [[mark.time, mark.what] for mark in marks[-_MOST:]],
    }


def _spans(mine: Blocks, columns_per_second: float) -> list[list[float]]:
    """Blocks, those that end in the same column of the picture as one."""
    column = np.floor(mine.ends * columns_per_second)
    last = np.flatnonzero(np.diff(column, append=np.inf))
    first = np.concatenate([[0], last + 1])[:-1].astype(int)
    spans = zip(mine.begins[first], mine.ends[last], mine.cell[last], strict=True)
    return [[round(float(begin), 3), round(float(end), 3), int(cell)] for begin, end, cell in spans]


def _status(history: History, mine: Blocks, worker: int) -> str:
    """How a worker does, by what was last heard of it in this sitting."""
    if history.stopped is not None:
        return "ended"
    sitting = max((e.time for e in history.events if e.what == "resumed"), default=0.0)
    last_block = float(mine.ends[-1]) if len(mine) else -1.0
    for event in reversed(history.events):
        if event.worker == worker and event.time >= max(sitting, last_block):
            return "starting" if event.what == "restarted" else event.what
    return "working" if last_block >= sitting else "starting"
