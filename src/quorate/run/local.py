"""Local parameters after a run: opens the run again, and asks workers for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray, Progress
from quorate.data.codes import LEVELS
from quorate.data.write import ShardSet
from quorate.engines.drive import drive
from quorate.engines.options import ENGINES, EngineOptions
from quorate.engines.worker import Job
from quorate.errors import QuorateError, WorkerFailedError, named_shards, require
from quorate.journal import JournalReader, Resumed
from quorate.models.groups.levels import Level, Moments, levels_of
from quorate.models.protocol import Model
from quorate.protocol.allocation import Allocation
from quorate.protocol.coordinator import WakingCoordinator
from quorate.protocol.local import LevelDraws, LocalQuestion, LocalSchedule, allocation_for
from quorate.protocol.messages import Command
from quorate.protocol.patience import Limits
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.supervisor import Supervisor
from quorate.results.local import LocalParameters
from quorate.results.tree import chain_rows
from quorate.run import kept_model
from quorate.run.configuration import SHARDS, configuration_of, same_shards
from quorate.run.history import History
from quorate.run.settings import Settings
from quorate.samplers import make_sampler

_FEWEST_HOLDERS = 2  # of a shard: a slow worker then delays nothing


@dataclass(frozen=True, eq=False)
class LocalRun:
    """A run whose workers are asked for local parameters. Nothing of it is journaled.

    Parameters
    ----------
    folder
        Folder of the run.
    model
        The model of the run.
    excluded
        Shards whose rows have no part in the draws. Their groups are left out too.
    """

    folder: Path
    model: Model
    excluded: tuple[int, ...] = ()

    def labels(self) -> list[NDArray[Any]]:
        """Labels of the groups of each level; the place of a label is the code of its group."""
        return [_labels(self._shards, name) for name, _ in zip(LEVELS, self._levels, strict=False)]

    def moments(self, points: Array, numbers: IntArray, **options: Any) -> list[Moments]:
        """Moments of the parameters of all groups of each level, summed over the points."""
        question = LocalQuestion(points, numbers, self._widths, self._included)
        return self._asked(question, **options).moments()

    def draws(
        self, points: Array, numbers: IntArray, groups: IntArray, **options: Any
    ) -> list[LevelDraws]:
        """Codes of groups and draws of their parameters, level by level, one for each point."""
        held = self._held(groups)
        question = LocalQuestion(points, numbers, self._widths, tuple(held), held)
        return self._asked(question, **options).draws()

    def _asked(
        self,
        question: LocalQuestion,
        engine: str | EngineOptions | None = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> LocalSchedule:
        """The schedule when all that was asked for is there.

        It survives what a run survives: workers that are slow, die or lie.
        """
        options = self._settings.engine_options if engine is None else ENGINES.chosen(engine)
        options.check()
        allocation = self._allocation(question, workers)
        schedule = LocalSchedule(allocation, question)
        coordinator = WakingCoordinator(schedule, question.n_pieces)
        supervisor = Supervisor(coordinator, limits=Limits(restarts=options.restarts))
        with options.start(self._job, allocation, self.folder / "logs", {}, 0.0) as started:
            for _ in drive(supervisor, started, _forget, _never):
                if progress is not None:
                    progress(schedule.n_complete, question.n_pieces)
        if schedule.n_complete < question.n_pieces:
            raise _incomplete(supervisor)
        return schedule

    def _allocation(self, question: LocalQuestion, workers: int | None) -> Allocation:
        """Shards of each worker. By default, no worker is started without a shard."""
        require(workers is None or workers >= 1, f"workers must be at least 1, not {workers}.")
        n_shards, settings = len(question.shards), self._settings
        redundancy = max(settings.shards_per_worker, _FEWEST_HOLDERS)
        default = min(settings.workers, n_shards + redundancy - 1)
        n_workers = min(workers or default, question.n_pieces)
        copies = max(redundancy, n_workers - n_shards + 1)
        return allocation_for(n_workers, question.shards, copies)

    @property
    def _levels(self) -> tuple[Level, ...]:
        return levels_of(self.model)

    @property
    def _widths(self) -> tuple[int, ...]:
        return tuple(len(level.names) for level in self._levels)

    @property
    def _included(self) -> tuple[int, ...]:
        return tuple(s for s in range(self._shards.n_shards) if s not in self.excluded)

    @cached_property
    def _opened(self) -> tuple[Settings, ShardSet]:
        """Settings of the last sitting, and the shards, which must be those of the run."""
        require(
            (self.folder / SHARDS).is_dir(),
            f"The folder of the run, {self.folder}, is gone, and with it the rows of the groups. "
            "Sample with a run_dir of your own, and keep it.",
        )
        with JournalReader(self.folder) as reader:
            kept = configuration_of(reader)
            told = [record.settings for record in reader.records() if isinstance(record, Resumed)]
        settings = Settings.from_json([kept["settings"], *told][-1])
        return settings.without_faults(), same_shards(self.folder, kept)

    @property
    def _settings(self) -> Settings:
        return self._opened[0]

    @property
    def _shards(self) -> ShardSet:
        return self._opened[1]

    @property
    def _job(self) -> Job:
        shards, seed = self._shards, self._settings.seed
        sampler = make_sampler("auto")  # of no use: nothing is drawn from shards
        return Job(self.model, sampler, SendDraws(), str(shards.folder), shards.n_shards, seed)

    def _held(self, groups: IntArray) -> Mapping[int, IntArray]:
        """Which of the groups each shard holds; shards with none are left out."""
        held, missing = {}, groups
        for shard in self._included:
            there = np.isin(groups, self._shards.shard(shard)[LEVELS[0]], kind="table")
            if there.any():
                held[shard] = groups[there]
                missing = np.setdiff1d(missing, groups[there])
        require(
            not missing.size,
            f"No rows of groups with codes {', '.join(map(str, missing[:5]))} have a part in the "
            "draws. Ask for other groups.",
        )
        return held


def opened(folder: Path) -> LocalParameters:
    """Local parameters of the run in `folder`.

    The model that is stored with the run is loaded, which executes its code.
    """
    with History(folder) as history:
        history.read()
        model, _ = kept_model.opened(folder, history.configuration, None)
        draws, view = history.global_draws(), history.view
        of_shards = view.weights(), view.shard_draws()
        rows = partial(chain_rows, draws, history.scheme.received.n_chains, *of_shards)
        run = LocalRun(folder, model, history.excluded)
        return LocalParameters.of(model, draws, rows, folder, run)


def _labels(shards: ShardSet, name: str) -> NDArray[Any]:
    """Labels by code. Pairs of values, of groups within groups, are text: `WA:King`."""
    labels = shards.labels(name)
    if labels.dtype.names is None:
        return labels
    return np.array([":".join(map(str, pair)) for pair in labels.tolist()])


def _incomplete(supervisor: Supervisor) -> QuorateError:
    """Why not all that was asked for is there."""
    failure, coordinator = supervisor.failure, supervisor.coordinator
    if failure is not None:
        return WorkerFailedError(*failure)
    lost = coordinator.scheme.allocation.shards_without_holder(coordinator.lost)
    return QuorateError(
        f"All workers that hold {named_shards(lost)} were lost. Call it again when the machines "
        "are back, or with another `engine` or more `workers`."
    )


def _forget(now: float, commands: list[Command]) -> None:
    """Keep nothing: the journal holds no local parameters."""


def _never(now: float) -> bool:
    """Whether to stop early: only Ctrl-C does, which raises."""
    return False
