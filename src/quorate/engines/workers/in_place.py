"""Rows in place at a worker: it reads what lies where it is, and tells about it.

Before a run, tasks ask for facts of a shard (its fingerprint, arrays and number of rows), or for
what a formula needs to know of it. Answers are JSON, in arrays of bytes.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from quorate._types import Progress
from quorate.data.codes import LEVELS
from quorate.data.placed import PlacedShards
from quorate.data.placed_groups import CountedOn, first_codes, packed_labels
from quorate.data.row_groups import RowGroups
from quorate.data.scratch import Copies, forget
from quorate.data.store import ShardSet, StoredShard
from quorate.data.write import Transform
from quorate.engines.packing import unpacked
from quorate.engines.workers.pulse import Pulse
from quorate.models.protocol import Shard
from quorate.protocol.before import LEARN, TOLD
from quorate.protocol.messages import Arrays, ShardTask

TRANSFORM, LEARNER = "transform", "learner"  # names of what is packed
_READ = "read rows"  # the step of reading one batch


class RowsInPlace:
    """The shards of a worker that reads them in place.

    Parameters
    ----------
    shards
        Where rows lie.
    pulse
        Told of every batch that is read: reading takes long, and is not stuck.
    """

    def __init__(self, shards: PlacedShards, pulse: Pulse) -> None:
        self._shards, self._pulse = shards, pulse
        self._copies = Copies(shards)

    def shard(self, number: int) -> Shard:
        """The rows of a shard, copied to this node's disk at first."""
        rows = self._copied(number).shard(0)
        first = first_codes(self._shards, number)
        return CountedOn(rows, first) if first else rows

    def _copied(self, number: int) -> ShardSet:
        with _steps(self._pulse) as next_step:
            transform = self._transformed if self._shards.transform else None
            return self._copies.shard(number, transform, next_step)

    def told(self, task: ShardTask) -> Arrays:
        """What a task before a run asks for."""
        (number,) = task.shards
        if task.what == LEARN:
            return _answer(self._learned(number, task))
        found = self._copied(number)
        names = [name for name in LEVELS if name in dict(found.label_digests)]
        labels = {name: packed_labels(found.labels(name)) for name in names}
        return {**_answer(_facts(found.shard(0))), **labels}

    def forget(self) -> None:
        """Remove all copies from this node."""
        forget(self._shards)

    def _learned(self, number: int, task: ShardTask) -> Any:
        """What a learner says of a shard, given its columns batch by batch."""
        learner = unpacked(task.given[LEARNER].tobytes())[LEARNER]
        table = RowGroups(self._shards.places[number].found())
        learner.begin(table.names)
        with _steps(self._pulse) as next_step:
            for batch in table.batches(learner.columns):
                learner.add(batch)
                next_step(0, 0)
        return learner.told()

    def _transformed(self, rows: Any) -> Any:
        """Rows as the model takes them. Where the copies are there, nothing has to be unpacked."""
        return self._transform(rows)

    @cached_property
    def _transform(self) -> Transform:
        function: Transform = unpacked(self._shards.transform)[TRANSFORM]
        return function


def _answer(told: Any) -> Arrays:
    return {TOLD: np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)}


def _facts(found: StoredShard) -> dict[str, Any]:
    arrays = [spec.as_json() for spec in found.arrays]
    return {"arrays": arrays, "n_rows": found.n_rows, "fingerprint": found.fingerprint}


@contextmanager
def _steps(pulse: Pulse) -> Iterator[Progress]:
    """A function to call after each batch: each is one step of the process."""
    begun = pulse.begin(_READ)

    def next_step(done: int, total: int) -> None:
        nonlocal begun
        pulse.end(begun)
        begun = pulse.begin(_READ)

    try:
        yield next_step
    finally:
        pulse.end(begun)
