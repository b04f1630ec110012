"""Whether the records of a journal fit its run: a stranger may have written them."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np

from quorate.errors import JournalError, QuorateError
from quorate.journal import BlockRecord, PassRecord, Record, TaskGiven
from quorate.journal import file as journal_file
from quorate.journal.events import Excluded, PartAnswered, WorkerEvent
from quorate.protocol.scheme import Scheme

_LARGEST = 2**53  # whole numbers beyond it are not exact as floats; as seconds, 10⁸ years

# Tuples are faster to look through than unions, and there may be a hundred thousand records
_OF_WORKERS = (BlockRecord, TaskGiven, PartAnswered, WorkerEvent)
_OF_SHARDS = (BlockRecord, TaskGiven, PartAnswered, Excluded)


class Fitting:
    """Checks records against the scheme of their run, and against what may be in any journal."""

    def __init__(self, folder: Path, scheme: Scheme, dim: int, *, is_exact: bool = False) -> None:
        self._path = str(folder / journal_file.NAME)
        self._scheme, self._dim, self._is_exact = scheme, dim, is_exact

    def take(self, records: Iterable[Record], take: Callable[[Record], None]) -> None:
        """Let `take` have all records; refuse one that does not fit, or cannot be taken in."""
        for record in records:
            if wrong := self._what_is_wrong(record):
                raise self._refused(wrong)
            try:
                take(record)
            except QuorateError:
                raise
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
                raise self._refused(f"{type(error).__name__}: {error}") from error

    def _refused(self, why: str) -> JournalError:
        what = f"holds a record that does not fit its run ({why})"
        return JournalError(self._path, what, "read the journal of another run")

    def _what_is_wrong(self, record: Record) -> str:
        if not (isinstance(record.time, int | float) and abs(record.time) < _LARGEST):
            return f"its time is {record.time!r}"
        if isinstance(record, PassRecord):
            return self._wrong_pass(record)
        n_shards, n_workers = self._scheme.allocation.n_shards, self._scheme.allocation.n_workers
        if isinstance(record, _OF_WORKERS):
            if not 0 <= record.worker < n_workers:
                return f"there is no worker {record.worker}"
            if not 0 <= record.attempt < _LARGEST:
                return f"its attempt is {record.attempt}"
        if isinstance(record, _OF_SHARDS):
            outside = [shard for shard in record.shards if not 0 <= shard < n_shards]
            if outside or len(set(record.shards)) < len(record.shards):
                return f"its shards are {record.shards[:8]}"
        if isinstance(record, BlockRecord):
            return self._wrong_block(record)
        return _wrong_counts(record)

    def _wrong_block(self, block: BlockRecord) -> str:
        payload = block.payload
        shapes = self._scheme.worker_side.payload_shapes(len(block.shards), self._dim)
        if self._is_exact:
            return "an exact run has no blocks of draws"
        held = self._scheme.allocation.shards_of(block.worker)
        if not block.shards or not set(block.shards) <= set(held):
            return f"worker {block.worker} does not hold shards {block.shards[:8]}"
        if payload.shape[1:] not in shapes or not len(payload):
            return f"draws have shape {payload.shape}"
        arrays = (payload, *block.extras.values())
        if not all(array.dtype.kind in "biufc" and np.isfinite(array).all() for array in arrays):
            return "its draws are not numbers"
        return ""

    def _wrong_pass(self, record: PassRecord) -> str:
        if not self._is_exact:
            return "a merge asks no questions"
        surveyed = range(self._scheme.allocation.n_shards)
        if record.lane < 0 and record.number not in surveyed:
            return f"there is no shard {record.number}"
        return ""


@cache
def _counts_of(kind: type) -> list[str]:
    """Fields of a kind of record that are counted from 0."""
    counts = ("first_draw", "n_draws", "chain", "question", "n_points", "n_floats")
    return [name for name in counts if name in kind.__annotations__]


def _wrong_counts(record: Record) -> str:
    """Whether numbers of an event are beyond all that a run counts."""
    kind: type = type(record)
    for name in _counts_of(kind):
        if not 0 <= getattr(record, name) < _LARGEST:
            return f"its {name} is {getattr(record, name)}"
    began = getattr(record, "began", 0.0)
    return "" if abs(began) < _LARGEST else f"it began at {began}"
