"""An exact run: passes over the posterior itself, from its first survey to its result."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from quorate._types import Array
from quorate.engines.drive import Engine, is_end
from quorate.journal import JournalReader, PartAnswered, PassRecord, Record, Resumed
from quorate.models.subposterior import Target
from quorate.numerics.ess import ess_of_chains
from quorate.passes.first_fit import Before
from quorate.protocol.exact import ExactScheme
from quorate.protocol.inquirer import SURVEYS, Answered
from quorate.protocol.messages import Command, Evaluate, Keep, Survey, Surveyed, Values
from quorate.protocol.passes import PassCoordinator
from quorate.protocol.sums import Sums
from quorate.results.result import Result
from quorate.run.earlier_fit import before_of
from quorate.run.fitting import Fitting
from quorate.run.pass_log import PHASES
from quorate.run.progress import Phase, Progress
from quorate.run.run import Run
from quorate.run.settings import Settings
from quorate.run.snapshot import Shortcut, Snapshots
from quorate.run.telling import HowFar
from quorate.trust.exact import ExactQuestion

_SECONDS_BETWEEN_WRITES = 0.2


class ExactRun(Run):
    """A run with `method="exact"`."""

    scheme: ExactScheme
    _before: Before | None = None

    def _make_scheme(self, settings: Settings) -> ExactScheme:
        self._asked_at: dict[int, float] = {}  # by worker
        self._teams: dict[int, tuple[int, ...]] = {}  # as journaled, by the worker that answers
        self._waiting: list[Record] = []  # to be journaled
        self._next_write = 0.0
        model = self.model
        return settings.make_exact_scheme(
            np.asarray(model.initial()),
            model.names,
            has_gradient=Target(model, {}, 1).has_gradient,
            before=self._before,
        )

    @cached_property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self.folder, self.scheme, self._journal)

    def _make_coordinator(self) -> PassCoordinator:
        return PassCoordinator(self.scheme, self.settings.draws)

    def replay(self, reader: JournalReader) -> None:
        kept = reader.configuration()
        first, self._before = Settings.from_json(kept["settings"]), before_of(kept)
        self._begin_with(self._make_scheme(first))
        fitting = Fitting(self.folder, self.scheme, self.model.dim, is_exact=True)
        shortcut = Shortcut(self.folder, reader, self.scheme)
        fitting.take(shortcut.records(), self._replay)
        if not shortcut.is_taken:
            self._snapshots.keep(is_end=True)
        self.scheme.extend(self.settings.draws)
        self._coordinator.n_global = self.view.n_draws
        self.stopping.began_at(self.seconds)

    def _replay(self, record: Record) -> None:
        self.seconds = max(self.seconds, record.time)
        if isinstance(record, PassRecord):
            n_global = self.scheme.replay(Answered(*record[1:]))
            self.timeline.released(record.time, n_global)
        elif isinstance(record, Resumed):
            self.scheme.extend(int(record.settings["draws"]))
        elif isinstance(record, PartAnswered):
            self._count(record)

    def _count(self, part: PartAnswered) -> None:
        self.timeline.block_times.append(part.time)
        self.timeline.block_workers.append(part.worker)
        self.timeline.block_sizes.append(part.n_points)
        self._sent.blocks[part.worker] += 1
        self._sent.draws[part.worker] += part.n_points * len(part.shards)
        self.timeline.spoken_for.update(set(part.together) - {part.worker})

    def _record(self, now: float, commands: list[Command]) -> None:
        """Journal what happened, a few times a second.

        Answers that are lost on the way are asked for again, and are the same: nothing but the time
        for them is lost.
        """
        rows = [record for command in commands if (record := self._row(now, command))]
        self._waiting += rows
        if self.scheme.answered:
            self._waiting += [PassRecord(now, *each) for each in self.scheme.answered]
            self.scheme.answered = []
        is_news = any(not isinstance(row, PartAnswered) for row in rows)
        has_ended = is_end(commands)
        if self._waiting and (is_news or has_ended or now >= self._next_write):
            self._journal.append(self._waiting)
            self._waiting, self._next_write = [], now + _SECONDS_BETWEEN_WRITES
            self._snapshots.keep(is_end=has_ended)
        for command in commands:
            self._note(now, command)

    def _row(self, now: float, command: Command) -> Record | None:
        if isinstance(command, Evaluate | Survey):
            self._asked_at[command.worker] = now
            return None
        if isinstance(command, Keep) and isinstance(command.answer, Values | Surveyed):
            return self._part(now, command.answer)
        return super()._row(now, command)

    def _part(self, now: float, answer: Values | Surveyed) -> PartAnswered:
        worker, shards = answer.task[:2]
        lane, question = (
            (answer.task.lane, answer.task.question)
            if isinstance(answer, Values)
            else (SURVEYS, shards[0])
        )
        return PartAnswered(
            now,
            worker,
            self._attempts[worker],
            self._asked_at.get(worker, now),
            shards,
            lane,
            question,
            answer.size,
            answer.n_floats,
            self._new_team(answer),
        )

    def _new_team(self, answer: Values | Surveyed) -> tuple[int, ...]:
        """The workers that an answer is of, unless that is known. Surveys are of one worker.

        A worker of a team speaks for the others even if it holds all shards: they are not asked.
        """
        worker = answer.task.worker
        team = self.scheme.teams.of(worker) if isinstance(answer, Values) else ()
        if len(team) <= 1 or team == self._teams.get(worker):
            return ()
        self._teams[worker] = team
        self.timeline.spoken_for.update(set(team) - {worker})
        return team

    def _how_far(self) -> HowFar:
        inquiry = self.scheme.inquiry
        phase = PHASES[inquiry.phase]
        if phase is Phase.SURVEYING:
            return phase, self.scheme.n_surveyed, self.scheme.allocation.n_shards
        if phase is Phase.DRAWING:
            done, total = zip(*(ensemble.steps for ensemble in inquiry.ensembles), strict=True)
            return phase, sum(done), sum(total)
        return phase, 0, None

    def _progress(self, engine: Engine) -> Progress:
        return replace(super()._progress(engine), passes=self.scheme.inquiry.n_passes)

    def _question(self, result: Result) -> ExactQuestion:
        return ExactQuestion(
            self.model,
            result.unconstrained,
            self.scheme.received.n_chains,
            self.scheme.other_modes(),
            self.scheme.fits(),
            frozenset(self.scheme.disputes),
            result.variables,
            _ess_of_coordinates(result),
        )

    def _sums(self) -> Sums:
        return self.scheme.sums

    def result(self, stopped: str) -> Result:
        inquiry = self.scheme.inquiry
        return replace(
            super().result(stopped),
            method="exact",
            n_chains=self.scheme.received.n_chains,
            n_passes=inquiry.n_passes,
            log_evidence=inquiry.evidence,
        )


def _ess_of_coordinates(result: Result) -> Array:
    """ESS of each coordinate, (d,). The summary has that of coordinates which are scalars."""
    draws, rows = result.unconstrained, result.summary_rows()
    scalars = {values[0]: (name, values) for name, values in result.scalars()} if rows else {}
    found = np.full(draws.shape[1], np.nan)
    unknown = []
    for j, start in enumerate(draws[0] if len(draws) else ()):
        name, values = scalars.get(start, ("", None))
        if values is not None and np.array_equal(values, draws[:, j]):
            found[j] = rows[name]["ess"]
        else:
            unknown.append(j)
    if unknown:
        found[unknown] = ess_of_chains(draws[:, unknown], result.n_chains)
    return found
