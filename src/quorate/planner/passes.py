"""Finish times of exact runs, by running their passes in virtual time.

The coordinator, its schedule and the sums of the scheme are the real ones. Questions have as many
points as those of a run, but nothing is evaluated: all answers are zeros.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import ceil

import numpy as np

from quorate._types import Array
from quorate.engines.latency import LatencyModel
from quorate.engines.virtual.passes import VirtualPasses
from quorate.errors import require
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry, Pass, Phase
from quorate.planner.measured import Measured
from quorate.protocol.messages import Answer, Arrays, Evaluate, Question, Survey, Surveyed, Values
from quorate.protocol.pass_blocks import BLOCK
from quorate.protocol.passes import PassCoordinator, PassSchedule
from quorate.protocol.scheme import SchemeOptions
from quorate.protocol.times import Outcomes, Work
from quorate.run.history import History


@dataclass(frozen=True)
class ExactRun:
    """What an exact run asks for, and of how many machines.

    Parameters
    ----------
    before
        Points of each question before the first draw, in order.
    draws
        Points of each question for draws, for the two ensembles that draw in turn.
    survey
        How many points of a shard its survey is worth.
    floats
        Numbers that workers send for each point.
    unit
        Points of a shard that a computing time is for.
    n_machines
        Processes or nodes that workers live on; those of one take turns. None if each has its own.
    """

    before: tuple[int, ...]
    draws: tuple[tuple[int, ...], tuple[int, ...]]
    survey: float = float(BLOCK)
    floats: float = 1.0
    unit: int = 1
    n_machines: int | None = None

    @classmethod
    def of_gaussian(cls, dim: int, n_draws: int) -> "ExactRun":
        """Questions for a Gaussian posterior; times are those of blocks of points."""
        names = [f"x{i}" for i in range(dim)]
        inquiry = Inquiry(np.zeros(dim), names, n_draws, seed=0, has_gradient=True)
        inquiry.begin({0: {"mode": np.zeros(dim), "lower": np.eye(dim)}})
        before: list[int] = []
        draws: tuple[list[int], list[int]] = ([], [])
        while inquiry.open:
            lane, question = next(iter(inquiry.open.items()))
            sizes = draws[lane] if question.phase == "draw" else before
            sizes.append(len(question.points))
            inquiry.take(lane, -0.5 * np.sum(question.points**2, axis=1), -question.points)
        return cls(tuple(before), (tuple(draws[0]), tuple(draws[1])), unit=BLOCK)

    @classmethod
    def of_history(cls, history: History, times: Measured, n_draws: int) -> "ExactRun":
        """Questions for `n_draws` draws, each of as many points as in the run of `history`."""
        log, blocks = history.passes, history.blocks()
        assert log is not None
        inquiry, phases = log.inquiry, {told.name: told for told in log.phases()}
        require(
            inquiry.n_complete > 0, "The run has no draw to plan from yet. Let it run for longer."
        )
        told, n_chains = phases.pop("draw"), sum(inquiry.ensemble_sizes(n_draws))
        size = ceil(told.n_points / told.n_answers * n_chains / inquiry.n_chains)
        n_points = told.n_points * n_draws / inquiry.n_complete
        drawn = [size] * ceil(n_points / size)
        return cls(
            before=tuple(
                ceil(told.n_points / told.n_answers)
                for told in phases.values()
                if told.n_points
                for _ in range(told.n_answers)
            ),
            draws=(tuple(drawn[::2]), tuple(drawn[1::2])),
            survey=times.warm_up,
            floats=float(blocks.n_floats[blocks.n_draws > 0].sum() / blocks.n_draws.sum()),
            n_machines=times.n_workers,
        )

    def units(self, task: Question) -> float:
        """How many computing times a task takes for each of its shards."""
        n_points = len(task.points) if isinstance(task, Evaluate) else self.survey
        return n_points / self.unit


def passes_in_virtual_time(
    options: SchemeOptions, work: Work, asked: ExactRun, dim: int, realisations: int
) -> Outcomes:
    """When each realisation of an exact run finishes, and the vectors of d floats sent for it."""
    n_workers = work.n_workers
    n_machines = min(asked.n_machines or n_workers, n_workers)
    nodes = [f"{k % n_machines}" for k in range(n_workers)] if n_machines < n_workers else []
    latency = _OnMachines(work.latency, n_machines)
    sums = options.sums(n_workers, work.seed)
    found = []
    for realisation in range(realisations):
        script = _Script(asked, work.n_draws)
        coordinator = PassCoordinator(PassSchedule(sums, script, needs_surveys=True), work.n_draws)
        zeros, streams = _Zeros(), Streams(work.seed, realisation)
        run = VirtualPasses(coordinator, zeros, latency, streams, nodes, asked.units).run()
        ended = work.start + run.release_times[-1] if run.finished else np.inf
        found.append((ended, asked.floats * zeros.n_points / dim))
    return Outcomes(*np.array(found).T)


class _Script:
    """Asks questions of given sizes, one after the other; those for draws in two lanes."""

    def __init__(self, asked: ExactRun, n_draws: int) -> None:
        self.open: dict[int, Pass] = {}
        self._before = iter(asked.before)
        self._draws = [iter(sizes) for sizes in asked.draws]
        self._n_questions = sum(map(len, asked.draws))
        self._n_drawn, self._n_draws = 0, n_draws
        self._numbers = [count() for _ in asked.draws]

    @property
    def n_complete(self) -> int:
        """Draws that are there."""
        return self._n_draws * self._n_drawn // self._n_questions

    def begin(self, surveys: Mapping[int, Arrays]) -> None:
        """Ask the first question."""
        self._ask(0, "fit", self._before)

    def take(self, lane: int, values: Array, gradients: Array | None = None) -> None:
        """Take an answer, and ask what comes next."""
        if self.open.pop(lane).phase == "draw":
            self._n_drawn += 1
            self._ask(lane, "draw", self._draws[lane])
        elif not self._ask(0, "fit", self._before):
            for each, sizes in enumerate(self._draws):
                self._ask(each, "draw", sizes)

    def _ask(self, lane: int, phase: Phase, sizes: Iterator[int]) -> bool:
        """Ask a question of the next size; returns whether there is one."""
        n_points = next(sizes, None)
        if n_points is not None:
            self.open[lane] = Pass(lane, next(self._numbers[lane]), phase, np.zeros((n_points, 1)))
        return n_points is not None


class _Zeros:
    """Answers all questions with zeros, and counts their points."""

    def __init__(self) -> None:
        self.n_points = 0

    def answers(self, task: Question) -> Iterator[Answer]:
        """The answer to a survey or to a block of points."""
        if isinstance(task, Survey):
            yield Surveyed(task, {})
        elif isinstance(task, Evaluate):
            n = len(task.points)
            self.n_points += n
            yield Values(task._replace(points=task.points[:0]), np.zeros(n))


@dataclass(frozen=True)
class _OnMachines:
    """Times of workers that live on so many machines, in turn."""

    of_machines: LatencyModel
    n_machines: int

    def times(self, streams: Streams, n_workers: int, first: int, n: int) -> Array:
        times = self.of_machines.times(streams, self.n_machines, first, n)
        return times[np.arange(n_workers) % self.n_machines]

    def death_times(self, streams: Streams, n_workers: int) -> Array:
        deaths = self.of_machines.death_times(streams, self.n_machines)
        return deaths[np.arange(n_workers) % self.n_machines]
