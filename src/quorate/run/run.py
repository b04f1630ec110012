"""One run, from its first task to its result."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from quorate.data.placed import PlacedShards, Shards
from quorate.engines.drive import Engine, drive
from quorate.engines.workers.worker import Job
from quorate.errors import LostShardError, SingularCovarianceError, WorkerFailedError
from quorate.journal import (
    BlockRecord,
    Checked,
    Excluded,
    Finished,
    Journal,
    JournalReader,
    PriorRestored,
    Record,
)
from quorate.models.protocol import Model, compiles
from quorate.numerics.streams import Streams
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import Command, Keep, Start
from quorate.protocol.scheme import Scheme
from quorate.protocol.sums import AnyHolder, Sums
from quorate.protocol.supervisor import Supervisor
from quorate.protocol.timeline import Timeline
from quorate.results.result import Result
from quorate.run.check import evaluate, shard_chains
from quorate.run.draws_on_disk import on_disk
from quorate.run.fitting import Fitting
from quorate.run.in_place import forgotten, with_remarks
from quorate.run.local import LocalRun
from quorate.run.prior_of_lost_shards import restore_prior
from quorate.run.progress import Listener, Phase, Progress, Stages, silence
from quorate.run.row_work import RowRun
from quorate.run.rows import row_of
from quorate.run.settings import Settings
from quorate.run.stopping import DISK_LOST, DONE, INTERRUPTED, WORKERS_LOST, Stopping
from quorate.run.telling import HowFar, Sent, Telling
from quorate.run.view import View
from quorate.run.with_draws import with_draws
from quorate.samplers.protocol import Sampler
from quorate.trust.exact import ExactQuestion
from quorate.trust.verdict import Question, Verdict, not_checked

_LOOK_EVERY = 0.2  # seconds between two looks of a listener, at most
N_POINTS = 1000  # at which a merge is checked
_FEWEST_POINTS = 200
_CHECK_SECONDS, _CHECK_SHARE = 10.0, 0.25  # that a check may take, of the run's: the longer


class Run:
    """A run, started in this sitting or an earlier one.

    Parameters
    ----------
    folder
        Folder for logs and journal.
    n_points
        Number of points at which the merge is checked in the end; 0 for no check.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        shards: Shards,
        settings: Settings,
        folder: Path,
        journal: Journal,
        stopping: Stopping,
        n_points: int,
    ) -> None:
        self.model = model
        self.settings = settings
        self.folder = folder
        self.timeline = Timeline()
        self.verdict: Verdict | None = None
        self._n_points = n_points
        self._ended: str | None = None  # why, once it has
        self._saved: Result | None = None  # with all draws, before a check
        self._stages = Stages()
        self.stopping = stopping
        self._begin_with(self._make_scheme(settings))
        self._journal = journal
        self._attempts: Counter[int] = Counter()
        self._sent = Sent()
        self._told_excluded: tuple[int, ...] = ()
        self.seconds = 0.0  # that the run has taken, earlier sittings included
        self._job = Job(
            model,
            sampler,
            self.scheme.worker_side,
            str(shards.folder),
            settings.workers,
            settings.seed,
            shards if isinstance(shards, PlacedShards) else None,
        )

    def _make_scheme(self, settings: Settings) -> Scheme:
        return settings.make_scheme(self.model.dim)

    def _make_coordinator(self) -> Coordinator[Any]:
        may_exclude = self.settings.on_lost_shard == "exclude"
        return Coordinator(self.scheme, self.settings.draws, queue_depth=2, may_exclude=may_exclude)

    def _begin_with(self, scheme: Scheme) -> None:
        """Put `scheme` in charge, with nothing received yet."""
        self.scheme = scheme
        on_disk(scheme, self.folder)
        self.view = View(scheme, self.model.dim, self.settings.draws)
        self._coordinator = self._make_coordinator()
        self._supervisor = Supervisor(
            self._coordinator,
            scheme.worker_side,
            self.model.dim,
            shares_starts=scheme.shares_starts,
            limits=self.settings.limits(),
        )
        waits = compiles(self.model) or self.settings.engine_options.compiles
        self._telling = Telling(self.view, self._supervisor, self.settings, is_compiled=waits)

    def replay(self, reader: JournalReader) -> None:
        """Take in everything that earlier sittings have journaled."""
        Fitting(self.folder, self.scheme, self.model.dim).take(reader.records(), self._replay)
        for key, state in reader.states():
            if state is not None:
                self._supervisor.states[key] = state
        self._coordinator.take_all_back()
        self.stopping.began_at(self.seconds)

    def _replay(self, record: Record) -> None:
        self.seconds = max(self.seconds, record.time)
        if isinstance(record, BlockRecord):
            for command in self._supervisor.replay(record.block()):
                self._note(record.time, command)

    def steps(self, listen: Listener) -> Iterator[int]:
        """Run to the end; yields the number of global draws, a few times a second."""
        self._stages.listen = listen
        has_all = self.view.n_draws >= self.settings.draws
        self.timeline.finished = has_all
        if has_all:  # a sitting that has nothing to draw ends as it begins
            self._journal.append([Finished(self.seconds, self.why_stopped)])
        if has_all and not self._n_points:
            return
        with with_draws(self.result, DISK_LOST), self._engine() as engine:
            if not has_all:
                yield from self._draw(engine, listen)
            self._ended = self.why_stopped
            if self._n_points:
                self._check(engine)

    def _draw(self, engine: Engine, listen: Listener) -> Iterator[int]:
        next_look = 0.0
        for now in drive(self._supervisor, engine, self._record, self._stop_asked):
            self.seconds = now
            if self.seconds >= next_look:
                next_look = self.seconds + min(_LOOK_EVERY, self.settings.every)
                self._tell(engine, listen)
            yield self.view.n_draws
        self._stages.last = self._progress(engine)
        listen(self._stages.last)
        self._journal.append([Finished(self.seconds, self.why_stopped)])

    def _tell(self, engine: Engine, listen: Listener) -> None:
        if listen is not silence:
            listen(self._progress(engine))

    # ------------------------------------------------------------ the check

    def check(self, max_time: float | None) -> Verdict:
        """Check the draws so far in a pass of its own, and return the verdict."""
        self._ended = DONE
        with with_draws(self.result, DONE), self._engine() as engine:
            self._check(engine, np.inf if max_time is None else max_time)
        assert self.verdict is not None
        with with_draws(self.result, DONE):
            self._final()
        return self.verdict

    def _check(self, engine: Engine, seconds: float | None = None) -> None:
        """Check the merge. Whatever happens here, the draws are already saved."""
        with self.stopping.at_once():
            result = self._saved = self._merged()
        if result.stopped in (INTERRUPTED, WORKERS_LOST):
            self.verdict = not_checked(f"the run ended early: {result.stopped}")
            return
        if seconds is None:
            seconds = max(_CHECK_SECONDS, _CHECK_SHARE * self.seconds)
        verdict = self._judged(engine, result, seconds)
        self.verdict = with_remarks(verdict, self._job.placed)
        self._journal.append([Checked(engine.now(), self.verdict.verdict)])

    def _merged(self) -> Result:
        """The result of the draws so far, saved."""
        self._stages.tell(Phase.GATHERING)
        result = self.result(self.why_stopped)
        self._stages.tell(Phase.SUMMARISING)
        result.summary_rows()
        self._stages.tell(Phase.SAVING)
        result.save()
        return result

    def _judged(self, engine: Engine, result: Result, seconds: float) -> Verdict:
        try:
            with self.stopping.at_once():
                self._stages.tell(Phase.CHECKING)
                question = self._question(result)
                proposal = question.proposal()
                points = proposal.points(Streams(self.settings.seed), self._n_points)
        except SingularCovarianceError:
            return not_checked(f"{result.n_draws} draws are too few for a check. Draw more")
        deadline = engine.now() + seconds  # for workers: making the points is not theirs

        def stop_asked(now: float) -> bool:
            return now > deadline or self.stopping.reason == INTERRUPTED

        limits, attempts = self.settings.limits(), dict(self._attempts)
        values, why = evaluate(engine, self._sums(), points, limits, attempts, stop_asked)
        n_done, n_needed = len(values), min(_FEWEST_POINTS, len(points))
        if n_done < n_needed:
            return not_checked(f"{n_done} points were evaluated, {n_needed} are needed: {why}")
        with self.stopping.at_once():
            return question.answer(points, values)

    def _question(self, result: Result) -> Question | ExactQuestion:
        shards = shard_chains(self.folder, self.scheme.allocation)
        return Question(self.model, result.unconstrained, shards, self.settings.workers)

    def _sums(self) -> Sums:
        """How checks sum over shards: any holder answers."""
        return AnyHolder.by_shard(self.scheme.allocation)

    def _stop_asked(self, now: float) -> bool:
        return self.stopping.asked(now, self.view.least_ess)

    @contextmanager
    def _engine(self) -> Iterator[Engine]:
        job, held, settings = self._job, self.scheme.allocation, self.settings
        faults, start = settings.chosen_faults, settings.engine_options.start
        handicaps, logs = faults.handicaps(settings.workers), self.folder / "logs"
        with forgotten(job.placed), start(job, held, logs, handicaps, self.seconds) as engine:
            yield engine

    def _record(self, now: float, commands: list[Command]) -> None:
        """Journal accepted blocks and events, then update counters."""
        records = [record for command in commands if (record := self._row(now, command))]
        records += self._newly_excluded(now)
        if records:
            self._journal.append(records)
        for command in commands:
            self._note(now, command)

    def _newly_excluded(self, now: float) -> list[Record]:
        excluded = self.scheme.received.excluded
        if excluded == self._told_excluded:
            return []
        self._told_excluded = excluded
        return [Excluded(now, excluded)]

    def _row(self, now: float, command: Command) -> Record | None:
        return row_of(now, command, self._attempts)

    def _note(self, now: float, command: Command) -> None:
        self.timeline.take(now, command)
        if isinstance(command, Keep):
            task = command.answer.task
            self._sent.blocks[task.worker] += 1
            self._sent.draws[task.worker] += command.answer.size * len(task.shards)
        elif isinstance(command, Start):
            self._attempts[command.worker] = command.attempt

    def _how_far(self) -> HowFar:
        """What the run does once workers have started, and how far that is."""
        if n_draws := self.view.n_draws:
            return Phase.DRAWING, n_draws, self.settings.draws
        return Phase.WARMING_UP, len(self._sent.blocks), self.settings.workers

    def _progress(self, engine: Engine) -> Progress:
        return self._telling.progress(
            engine, self.seconds, self._how_far(), self._sent, self.timeline
        )

    # ------------------------------------------------------------ results

    @property
    def why_stopped(self) -> str:
        """Why the run stopped, in words."""
        reason = DONE if self.timeline.finished else WORKERS_LOST
        return self._ended or self.stopping.reason or reason

    def result(self, stopped: str) -> Result:
        """The result of the draws so far."""
        settings, view = self.settings, self.view
        return Result(
            model=self.model,
            unconstrained=view.global_draws(),
            shard_draws=view.shard_draws(),
            weights=view.weights(),
            timeline=self.timeline,
            scheme=settings.scheme_options.name,
            workers=settings.workers,
            redundancy=settings.shards_per_worker,
            excluded=self.scheme.received.excluded,
            lost=self._supervisor.gone,
            stopped=stopped,
            run_dir=str(self.folder),
            verdict=self.verdict,
            local_work=LocalRun(self.folder, self.model, self.scheme.received.excluded),
            row_work=RowRun(self.folder, self.model, self.scheme.received.excluded),
        )

    def final_result(self) -> Result:
        """The final result, or an error if failing code or a lost shard ended the run."""
        with with_draws(self.result, self.why_stopped):
            self._restore_prior()
            with self.stopping.at_once():
                result = self._final()
        failure = self._supervisor.failure
        if result.stopped != WORKERS_LOST:
            return result
        if failure is not None:
            raise WorkerFailedError(*failure, str(self.folder))
        lost = self.scheme.allocation.shards_without_holder(self._coordinator.lost)
        raise LostShardError(lost, result)

    def _final(self) -> Result:
        """The result with its verdict, saved; merged again only if draws have come since."""
        saved = self._saved
        if saved is None or self.scheme.received.excluded:
            return self._merged()
        self._stages.tell(Phase.SAVING)
        result = saved.judged(self.verdict)
        result.save()
        return result

    def _restore_prior(self) -> None:
        """Put back the share of the prior of shards that were left out, as one more factor."""
        received = self.scheme.received
        if received.excluded and received.n_complete:
            settings = self.settings
            share, restored = restore_prior(received, self.model, settings.workers, settings.seed)
            self._journal.append([PriorRestored(self.seconds, share, restored)])
