"""The history of a run, read from its journal: blocks, events, and who is gone.

Reading it executes nothing: the model that is stored with the run is not opened. Draws are
therefore in the unconstrained space in which they are merged.

>>> with History(folder) as history:
...     history.read()
...     blocks, seconds = history.blocks(), history.seconds
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorate._types import Array
from quorate.errors import SingularCovarianceError
from quorate.journal import (
    BlockRecord,
    ChainKey,
    Checked,
    Event,
    Excluded,
    Finished,
    JournalReader,
    PartAnswered,
    PassRecord,
    PriorRestored,
    Record,
    Resumed,
    RunEvent,
    Started,
    TaskGiven,
    WorkerEvent,
)
from quorate.protocol.inquirer import SURVEYS
from quorate.protocol.scheme import Scheme
from quorate.run.blocks import BlockRow, Blocks
from quorate.run.configuration import configuration_of, settings_of
from quorate.run.draws_on_disk import on_disk
from quorate.run.earlier_fit import before_of
from quorate.run.fitting import Fitting
from quorate.run.pass_log import PassLog
from quorate.run.settings import Settings
from quorate.run.snapshot import Shortcut
from quorate.run.view import View

_AFTER_THE_DRAWS = (Checked, PriorRestored)


class _Given(NamedTuple):
    """The draws of a task, and when it was given."""

    first: int
    end: int
    time: float


class History:
    """What a journal tells so far. Call `read` again for news of a run that goes on.

    Attributes
    ----------
    configuration
        What the run was started with.
    settings
        Those of its last sitting.
    scheme, view
        The scheme, fed with all blocks so far, and the view of its draws.
    events
        What happened to workers and to the run, in order, without the tasks given.
    seconds
        How long the run has taken, without a check at its end.
    passes
        The passes of an exact run; None for a merge.
    prior_restored
        Whether the prior's share of excluded shards was put back; None if that was not tried.
    """

    def __init__(self, folder: Path) -> None:
        self._reader = JournalReader(folder)
        try:
            self.configuration = configuration_of(self._reader)
            self.settings = self._settings(self.configuration["settings"])
            self.dim = int(self.configuration["dim"])
            self.scheme, self.passes = self._make_scheme()
            on_disk(self.scheme, folder)
            self._fitting = Fitting(folder, self.scheme, self.dim, is_exact=bool(self.passes))
            self._shortcut = Shortcut(folder, self._reader, self.scheme)
        except BaseException:
            self._reader.close()
            raise
        self.events: list[RunEvent | WorkerEvent] = []
        self.seconds = 0.0
        self.prior_restored: bool | None = None
        self._rows: list[BlockRow] = []
        self._blocks: tuple[tuple[int, list[BlockRow]], Blocks] | None = None
        self._cells: dict[tuple[int, ...], int] = {}
        self._last_ends: dict[int, float] = {}
        self._given: dict[ChainKey, list[_Given]] = {}
        self._reached: dict[ChainKey, int] = {}
        self._gone: dict[int, float] = {}

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def _settings(self, kept: object) -> Settings:
        return settings_of(kept, len(self.configuration["shards"]))

    def _make_scheme(self) -> tuple[Scheme, PassLog | None]:
        """The scheme, and the passes over the posterior if the run is exact."""
        if self.settings.chosen_method == "merge":
            return self.settings.make_scheme(self.dim), None
        kept, make = self.configuration, self.settings.make_exact_scheme
        start, before = np.array(kept["start"], dtype=np.float64), before_of(kept)
        exact = make(start, self.names, has_gradient=bool(kept["has_gradient"]), before=before)
        return exact, PassLog(exact)

    def read(self) -> None:
        """Take in what is new."""
        self._fitting.take(self._shortcut.records(), self._take)

    # ------------------------------------------------------------ what it tells

    @property
    def view(self) -> View:
        """The draws so far, up to those that were asked for."""
        return View(self.scheme, self.dim, self.settings.draws)

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
        return self.passes is None and (not self._rows or bool(self.scheme.received.shard_draws()))

    @property
    def excluded(self) -> tuple[int, ...]:
        """Shards whose rows have no part in the draws: no worker that holds them was left."""
        return self.scheme.received.excluded

    @property
    def n_global(self) -> int:
        """Global draws that are complete, up to those that were asked for."""
        return min(self.scheme.received.n_complete, self.settings.draws)

    @property
    def sitting(self) -> float:
        """When the last sitting began."""
        return max((e.time for e in self.events if isinstance(e, Resumed)), default=0.0)

    @property
    def stopped(self) -> str | None:
        """Why the last sitting ended; None if it goes on, or was killed."""
        told = [e for e in self.events if isinstance(e, Started | Resumed | Finished)]
        return told[-1].reason if told and isinstance(told[-1], Finished) else None

    def blocks(self) -> Blocks:
        """All blocks so far."""
        now = len(self._rows), self._rows[-1:]  # only the last row ever changes
        if self._blocks is None or self._blocks[0] != now:
            self._blocks = now, Blocks.of_rows(tuple(self._cells), self._rows)
        return self._blocks[1]

    def shard_draws(self) -> Iterator[tuple[int, Array]]:
        """Draws received of each included shard, unconstrained, shape (n_received, dim)."""
        included = [shard for shard in range(self.n_workers) if shard not in self.excluded]
        return zip(included, self.view.shard_draws(), strict=False)

    def global_draws(self) -> Array:
        """Global draws so far, unconstrained, (n, dim); none where there are too few for weights.

        Where shards were left out, their share of the prior is missing.
        """
        try:
            return self.view.global_draws()
        except SingularCovarianceError:
            return np.empty((0, self.dim))

    @property
    def n_passes(self) -> int:
        """Passes over the posterior so far; 0 for a merge."""
        return 0 if self.passes is None else self.passes.inquiry.n_passes

    @property
    def phase(self) -> str:
        """What goes on: start, fit, weigh, draw or done; an empty string for a merge."""
        return "" if self.passes is None else self.passes.inquiry.phase

    def gone(self) -> dict[int, float]:
        """Workers that were lost in this sitting and sent nothing since, and when that was."""
        return dict(self._gone)

    def under_way(self) -> dict[int, float]:
        """Workers at work on a block when the history ends, and for how many seconds.

        Workers that warm up a chain are left out.
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

    def _take(self, record: Record) -> None:
        if isinstance(record, BlockRecord):
            self._take_block(record)
        elif isinstance(record, PassRecord):
            assert self.passes is not None
            self.passes.take(record)
            self._count_draws()
        else:
            self._take_event(record)
        if not isinstance(record, _AFTER_THE_DRAWS):
            self.seconds = max(self.seconds, record.time)

    def _take_block(self, record: BlockRecord) -> None:
        self.scheme.receive(record.block())
        payload, worker = record.payload, record.worker
        arrays = [payload, *record.extras.values()]
        self._rows.append(
            BlockRow(
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
                n_floats=record.block().n_floats,
                n_global=self.n_global,
            )
        )
        self._last_ends[worker] = record.time
        self._reached[record.key] = record.next_draw
        self._gone.pop(worker, None)

    def _take_part(self, part: PartAnswered) -> None:
        """An answer of a worker in an exact run counts as a block of points; a survey has none."""
        self._rows.append(
            BlockRow(
                begin=max(self._last_ends.get(part.worker, 0.0), part.began),
                end=part.time,
                worker=part.worker,
                attempt=part.attempt,
                cell=self._cells.setdefault(part.shards, len(self._cells)),
                first_draw=part.question,
                n_draws=0 if part.lane == SURVEYS else part.n_points,
                n_shards=len(part.shards),
                n_bytes=8 * part.n_floats,
                n_floats=part.n_floats,
                n_global=self.n_global,
            )
        )
        self._last_ends[part.worker] = part.time
        self._gone.pop(part.worker, None)
        if self.passes is not None:
            self.passes.heard(part)

    def _take_event(self, event: Event) -> None:
        if isinstance(event, PartAnswered):
            self._take_part(event)
            return
        if isinstance(event, TaskGiven):
            key = ChainKey(event.worker, event.shards, event.chain)
            given = _Given(event.first_draw, event.first_draw + event.n_draws, event.time)
            self._given.setdefault(key, []).append(given)
            return
        if isinstance(event, WorkerEvent) and event.what.ends_work:
            if event.takes_away:
                self._gone.setdefault(event.worker, event.time)
            self._take_back(event.worker)
        elif isinstance(event, Resumed):
            self._gone.clear()
            self._take_back(None)
            self.settings = self._settings(event.settings)
            if self.passes is not None:
                self.passes.extend(self.settings.draws)
            self._leave_out(())
        elif isinstance(event, Excluded):
            self._leave_out(event.shards)
        elif isinstance(event, PriorRestored):
            self.prior_restored = event.restored
        self.events.append(event)

    def _leave_out(self, shards: Collection[int]) -> None:
        """Merge without the draws of exactly these shards."""
        if set(shards) == set(self.excluded):
            return
        self.prior_restored = None
        self.scheme.leave_out(shards)
        self._count_draws()

    def _count_draws(self) -> None:
        """Count draws that became complete since the last block with that block."""
        if self._rows:
            self._rows[-1] = self._rows[-1]._replace(n_global=self.n_global)

    def _take_back(self, worker: int | None) -> None:
        """Drop the tasks of a worker, or of all workers if it is None."""
        for key in [key for key in self._given if worker in (None, key.worker)]:
            del self._given[key]

    def _task_given(self, block: BlockRecord) -> float:
        """When the task of a block was given; 0 if that is not known."""
        given = self._given.get(block.key, [])
        for i in range(len(given) - 1, -1, -1):
            if given[i].first <= block.first_draw:
                del given[:i]
                return given[0].time
        return 0.0
