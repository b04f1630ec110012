"""The story of a run, as its journal tells it: who sent what when, and what became of whom.

Reading it executes nothing: the model that is kept with the run is not opened. Draws are therefore
those of the unconstrained space in which they are merged.

>>> with Story(folder) as story:
...     story.read()
...     blocks, seconds = story.blocks(), story.seconds
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, SingularCovarianceError
from quorate.journal import BlockRecord, ChainKey, EventRecord, JournalReader
from quorate.protocol.ledger import Ledger
from quorate.run.settings import Settings

FAULTS = ("lost", "failed", "silent", "refused", "retired")  # events that take a worker away
_RUN = ("started", "resumed", "finished")
_AFTERWARDS = ("checked", "prior")  # when the draws are there


class _Row(NamedTuple):
    """One block; see `Blocks`."""

    begin: float
    end: float
    worker: int
    attempt: int
    cell: int
    first_draw: int
    n_draws: int
    n_shards: int
    n_bytes: int
    n_floats: int
    n_global: int


class _Given(NamedTuple):
    """A task: its draws, and when it was given."""

    first: int
    end: int
    time: float


@dataclass(frozen=True, eq=False)
class Blocks:
    """All blocks in the order in which they came: one entry of every array for each.

    Parameters
    ----------
    cells
        Sets of shards that blocks are made of, in the order in which they were first seen.
    begins, ends
        When its worker could begin with it, and when it was there, in seconds.
    workers, attempts
        Who sent it, and how often that worker had been started again by then.
    cell
        `cells[cell[i]]` are the shards of block i.
    first_draws, n_draws, n_shards
        Draw of its chain that it begins with, draws in it, shards that each of them is of.
    n_bytes, n_floats
        Of what was sent for the draws; states of chains, which come along, are not counted.
    n_global
        L(t), the global draws that were there with it; those that came because shards were left out
        count with the block before.
    """

    cells: tuple[tuple[int, ...], ...]
    begins: Array
    ends: Array
    workers: IntArray
    attempts: IntArray
    cell: IntArray
    first_draws: IntArray
    n_draws: IntArray
    n_shards: IntArray
    n_bytes: IntArray
    n_floats: IntArray
    n_global: IntArray

    def __len__(self) -> int:
        return len(self.ends)

    def of(self, worker: int) -> "Blocks":
        """Those of one worker."""
        return self.chosen(self.workers == worker)

    def chosen(self, which: NDArray[np.bool_]) -> "Blocks":
        """Some of them."""
        arrays = {k: v[which] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return Blocks(self.cells, **arrays)

    @property
    def outages(self) -> Array:
        """Seconds for which the worker of a block had been away just before, being restarted."""
        away = np.zeros(len(self))
        for worker in np.unique(self.workers):
            mine = np.flatnonzero(self.workers == worker)
            before, after = mine[:-1], mine[1:]
            again = self.attempts[before] != self.attempts[after]
            away[after] = np.where(again, self.begins[after] - self.ends[before], 0.0)
        return away

    @cached_property
    def releases(self) -> tuple[Array, IntArray]:
        """The moments at which L(t) grew, and what it grew to; not what was lost again.

        L(t) falls when a run is resumed that had left shards out.
        """
        lasting = np.minimum.accumulate(self.n_global[::-1])[::-1]
        grew = np.diff(lasting, prepend=0) > 0
        return self.ends[grew], lasting[grew]

    @property
    def releasing_time(self) -> float:
        """When the last global draw was there; 0 if there is none."""
        times, _ = self.releases
        return float(times[-1]) if len(times) else 0.0


class Story:
    """What a journal says so far. `read` goes on from there: for a look at a run under way.

    Attributes
    ----------
    configuration
        What the run was started with.
    settings
        Those of its last sitting.
    events
        What happened to workers and to the run, in order; tasks given are not among them.
    seconds
        How long the run has taken; a check at its end is not counted.
    excluded
        Shards whose rows have no part in the draws: nobody was left who held them.
    prior_restored
        Whether their share of the prior was put back; None as long as that was not tried.
    """

    def __init__(self, folder: Path) -> None:
        self._reader = JournalReader(folder)
        try:
            self.configuration = self._reader.configuration()
            self.settings = _settings(self.configuration.get("settings"))
            self.dim = int(self.configuration["dim"])
            self._scheme = self.settings.make_scheme(self.dim)
        except BaseException:
            self._reader.close()
            raise
        self.events: list[EventRecord] = []
        self.seconds = 0.0
        self.excluded: tuple[int, ...] = ()
        self.prior_restored: bool | None = None
        self._rows: list[_Row] = []
        self._cells: dict[tuple[int, ...], int] = {}
        self._last_ends: dict[int, float] = {}
        self._given: dict[ChainKey, list[_Given]] = {}
        self._reached: dict[ChainKey, int] = {}
        self._shard_draws: dict[int, list[Array]] = {}
        self._n_global = 0

    def __enter__(self) -> "Story":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read(self) -> None:
        """Take in what is new."""
        for record in self._reader.records():
            if isinstance(record, BlockRecord):
                self._take_block(record)
            elif isinstance(record, EventRecord):
                self._take_event(record)
                if record.what in _AFTERWARDS:
                    continue
            self.seconds = max(self.seconds, record.time)

    # ------------------------------------------------------------ what is there

    @property
    def names(self) -> list[str]:
        """One for each unconstrained coordinate."""
        return list(map(str, self.configuration["names"]))

    @property
    def n_workers(self) -> int:
        """K, which is the number of shards too."""
        return self.settings.workers

    @property
    def n_dropped(self) -> int:
        """Rows of the journal that are damaged and were left out."""
        return len(self._reader.dropped) + self._reader.n_lacking

    @property
    def sends_draws(self) -> bool:
        """Whether blocks hold draws of single shards, and not sums of them, as coded ones do."""
        return bool(self._shard_draws) or not self._rows

    @property
    def n_global(self) -> int:
        """Global draws that are there, up to those that were asked for."""
        return min(self._n_global, self.settings.draws)

    @property
    def stopped(self) -> str | None:
        """Why the last sitting ended; None if it goes on, or was killed."""
        told = [event for event in self.events if event.what in _RUN]
        if not told or told[-1].what != "finished":
            return None
        return str(told[-1].details.get("reason", "finished"))

    def blocks(self) -> Blocks:
        """All blocks so far."""
        columns = np.array(self._rows, dtype=float).reshape(-1, len(_Row._fields)).T
        begins, ends, *counts = columns
        return Blocks(tuple(self._cells), begins, ends, *(c.astype(np.int64) for c in counts))

    def shard_draws(self) -> list[Array]:
        """Draws received of each shard, unconstrained, shape (n_received, dim) each."""
        nothing = [np.empty((0, self.dim))]
        return [
            np.concatenate(self._shard_draws.get(shard, nothing)) for shard in range(self.n_workers)
        ]

    def global_draws(self) -> Array:
        """Unconstrained, shape (n, dim): what the scheme makes of all blocks so far.

        None where there are too few for weights. Where shards were left out, their share of the
        prior is, too.
        """
        try:
            draws = self._scheme.global_draws()
        except SingularCovarianceError:
            draws = np.empty((0, self.dim))
        return draws[: min(self.n_global, self.settings.draws)].reshape(-1, self.dim)

    def gone(self) -> dict[int, float]:
        """Workers that had not come back when the story ends, and when they were lost."""
        lost: dict[int, float] = {}
        for event in self.events:
            worker = event.worker
            if worker is None or event.what not in FAULTS:
                continue
            if event.time >= self._last_ends.get(worker, 0.0):
                lost.setdefault(worker, event.time)
        return lost

    def under_way(self) -> dict[int, float]:
        """Workers at work on a block when the story ends, and since how many seconds.

        Not those that warm up a chain.
        """
        oldest: dict[int, tuple[float, bool]] = {}
        for key, tasks in self._given.items():
            reached = self._reached.get(key, 0)
            since = min((task.time for task in tasks if task.end > reached), default=np.inf)
            found = since, reached > 0
            oldest[key.worker] = min(found, oldest.get(key.worker, found))
        return {
            worker: self.seconds - max(since, self._last_ends[worker])
            for worker, (since, is_warm) in oldest.items()
            if is_warm and np.isfinite(since)
        }

    # ------------------------------------------------------------ reading

    def _take_block(self, record: BlockRecord) -> None:
        self._n_global = self._scheme.receive(record.block())
        payload, worker = record.payload, record.worker
        if payload.ndim == 3:
            for i, shard in enumerate(record.shards):
                self._shard_draws.setdefault(shard, []).append(payload[:, i])
        arrays = [payload, *record.extras.values()]
        self._rows.append(
            _Row(
                begin=min(
                    max(self._last_ends.get(worker, 0.0), self._task_given(record)), record.time
                ),
                end=record.time,
                worker=worker,
                attempt=record.attempt,
                cell=self._cells.setdefault(record.shards, len(self._cells)),
                first_draw=record.first_draw,
                n_draws=len(payload),
                n_shards=len(record.shards),
                n_bytes=sum(array.nbytes for array in arrays),
                n_floats=sum(array.size * (1 + (array.dtype.kind == "c")) for array in arrays),
                n_global=self.n_global,
            )
        )
        self._last_ends[worker] = record.time
        self._reached[record.key] = record.first_draw + len(payload)

    def _take_event(self, event: EventRecord) -> None:
        if event.what == "task" and event.worker is not None:
            details = event.details
            key = ChainKey(event.worker, tuple(details["shards"]), details["chain"])
            first = details["first"]
            given = _Given(first, first + details["n"], event.time)
            self._given.setdefault(key, []).append(given)
            return
        if event.what in (*FAULTS, "resumed"):
            self._take_back(event.worker)
        if event.what == "resumed":
            self.settings = _settings(event.details.get("settings"))
            self._leave_out(())
        elif event.what == "excluded":
            self._leave_out(event.details["shards"])
        elif event.what == "prior":
            self.prior_restored = bool(event.details["restored"])
        self.events.append(event)

    def _leave_out(self, shards: Collection[int]) -> None:
        """Merge without the draws of `shards`, and of no others."""
        ledger = getattr(self._scheme, "ledger", None)
        if not isinstance(ledger, Ledger) or set(shards) == set(self.excluded):
            return
        self.excluded, self.prior_restored = tuple(shards), None
        ledger.include_all()
        cells = [i for i, cell in enumerate(ledger.cells) if set(cell) & set(shards)]
        self._n_global = ledger.exclude(cells)
        if self._rows:
            self._rows[-1] = self._rows[-1]._replace(n_global=self.n_global)

    def _take_back(self, worker: int | None) -> None:
        """Nobody is at the tasks of a worker any more; of all workers if it is None."""
        for key in [key for key in self._given if worker in (None, key.worker)]:
            del self._given[key]

    def _task_given(self, block: BlockRecord) -> float:
        """When the task that a block belongs to was given; 0 if that is not known."""
        given = self._given.get(block.key, [])
        for i in range(len(given) - 1, -1, -1):
            if given[i].first <= block.first_draw:
                del given[:i]
                return given[0].time
        return 0.0


def _settings(kept: object) -> Settings:
    try:
        return Settings(**kept)  # type: ignore[arg-type]
    except TypeError:
        way_out = "read the run with the quorate that made it, or a later one"
        raise BadInputError("settings", kept, way_out) from None
