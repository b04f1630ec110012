"""The figure `scale`: what exact runs and merges cost, from one process to a hundred thousand.

A cost model, with constants that `benchmarks/idle_workers.py` and `benchmarks/scale_constants.py`
measure, and exact runs in virtual time beside it. `docs/explanation/scale.md` discusses it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from quorate._types import Array, BoolArray, IntArray, Progress
from quorate.engines.frames import packed_frame
from quorate.engines.latency import LatencyModel, Pareto, ShiftedExponential
from quorate.engines.virtual.passes import VirtualPasses
from quorate.engines.workers.service import answer_frame, task_frame
from quorate.errors import require
from quorate.lab.specs import TAIL_INDEX
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry
from quorate.protocol.allocation import cyclic
from quorate.protocol.columns import IN_MEMORY
from quorate.protocol.exact import ExactScheme
from quorate.protocol.messages import Answer, Evaluate, Question, Survey, Surveyed, Values
from quorate.protocol.pass_blocks import BLOCK
from quorate.protocol.passes import PassCoordinator
from quorate.protocol.sums import AnyHolder, values_on_grid

SCALE = "scale"  # name of the figure
MOST_WORKERS = 1563 * 64  # in virtual time: a little more than 100,000
PROCESSES = tuple(int(n) for n in 10 ** (np.arange(21) / 4))  # of the model: 1 to 100,000
_SURVEYED = 16  # shards that tell of a fit: more of them would tell the same
_MOST_KNOWN = 64  # blocks of points whose answers are remembered
_SHIFT = 0.8  # share of a computing time that is the same for all, if times are mild


@dataclass(frozen=True)
class Constants:
    """What was measured, in CPU seconds of one core and bytes.

    Parameters
    ----------
    block, block_and_process, block_and_worker
        Of the coordinator for each block of 64 points of a question: once, for each process, and
        for each worker.
    row, row_alone
        Of a worker for a row at a point: in a block of 64 points, and alone as samplers ask.
    shard_draw
        Of the coordinator of a merge for a draw of a shard.
    """

    block: float = 0.52e-3
    block_and_process: float = 0.115e-3
    block_and_worker: float = 1.4e-6
    row: float = 5.9e-9
    row_alone: float = 190e-9
    shard_draw: float = 6.5e-6


@dataclass(frozen=True)
class ScaleExperiment:
    """What is to be drawn, and the machines.

    Parameters
    ----------
    rows, dim, draws
        Of a logistic regression.
    simulated
        Numbers of processes and of workers in each that are run in virtual time.
    link
        Bytes a second that the coordinator can send.
    evaluations
        That a draw of a shard takes in a merge.
    redundancy, seed
        Of the runs in virtual time.
    constants
        What the model is made of.
    """

    rows: float = 1e9
    dim: int = 10
    draws: int = 1000
    simulated: tuple[tuple[int, int], ...] = (
        (1, 1), (4, 1), (16, 1), (64, 1), (256, 1), (1024, 1), (1563, 64)
    )  # fmt: skip
    link: float = 1.25e9
    evaluations: int = 2
    redundancy: int = 2
    seed: int = 0
    constants: Constants = Constants()

    def __post_init__(self) -> None:
        require(self.seed >= 0, f"seed must be 0 or more, not {self.seed}.")
        require(bool(self.simulated), "Nothing is simulated. Allow at least one worker.")

    def up_to(self, n_workers: int) -> "ScaleExperiment":
        """The experiment with at most `n_workers` workers in virtual time."""
        sizes = [size for size in self.simulated if size[0] * size[1] <= n_workers]
        return replace(self, simulated=tuple(sizes))

    @property
    def latencies(self) -> dict[str, LatencyModel]:
        """Computing times of a shard and a block, relative to their mean, by name."""
        return {
            "mild": ShiftedExponential(_SHIFT, 1 - _SHIFT),
            "heavy": Pareto(1.0, TAIL_INDEX),
        }


class Questions(NamedTuple):
    """What an exact run asks for: blocks of points, and points in them."""

    n_blocks: int
    n_points: int


@dataclass(frozen=True, eq=False)
class Costs:
    """What runs of one method cost, for each of some numbers of processes.

    `compute` and `coordinator` are seconds, `network` seconds that the coordinator's link is busy,
    `n_bytes` what travels, `memory` bytes that the coordinator keeps, without the draws of the
    posterior.
    """

    compute: Array
    coordinator: Array
    network: Array
    n_bytes: Array
    memory: Array

    @property
    def seconds(self) -> Array:
        """Time of a run: the slowest of the three, because they go on side by side."""
        return np.maximum(np.maximum(self.compute, self.coordinator), self.network)


class Simulated(NamedTuple):
    """One exact run in virtual time: `seconds` without the coordinator's own time."""

    processes: int
    workers: int
    times: str
    seconds: float
    n_messages: int

    def with_coordinator(self, experiment: ScaleExperiment, asked: Questions) -> float:
        """Seconds of the run, or of its coordinator if that takes longer."""
        of, processes = experiment.constants, self.processes
        each = of.block + of.block_and_process * processes + of.block_and_worker * self.workers
        return max(self.seconds, asked.n_blocks * each)


# ---------------------------------------------------------------- the model


def exact_costs(experiment: ScaleExperiment, asked: Questions, processes: IntArray) -> Costs:
    """Costs of exact runs with one worker in each process."""
    of, n = experiment.constants, processes.astype(np.float64)
    n_bytes = asked.n_blocks * _block_bytes(experiment.dim) * n
    each = of.block + (of.block_and_process + of.block_and_worker) * n
    return Costs(
        compute=experiment.rows / n * asked.n_points * of.row,
        coordinator=asked.n_blocks * each,
        network=n_bytes / experiment.link,
        n_bytes=n_bytes,
        memory=8.0 * BLOCK * 2 * n,
    )


def merge_costs(experiment: ScaleExperiment, processes: IntArray) -> Costs:
    """Costs of merges with one worker and shard in each process, without warm-up."""
    of, n = experiment.constants, processes.astype(np.float64)
    n_draws = experiment.draws * n
    evaluations = experiment.evaluations * experiment.draws
    n_bytes = 8.0 * experiment.dim * n_draws
    return Costs(
        compute=experiment.rows / n * evaluations * of.row_alone,
        coordinator=of.shard_draw * n_draws,
        network=n_bytes / experiment.link,
        n_bytes=n_bytes,
        memory=np.minimum(n_bytes, 8.0 * IN_MEMORY),
    )


def _block_bytes(dim: int) -> int:
    """Bytes that travel for a block of points and its answer, as the engines write them."""
    task = Evaluate(0, (0,), 0, 0, 0, np.zeros((BLOCK, dim)))
    answer = Values(task._replace(points=task.points[:0]), np.zeros(BLOCK))
    return len(packed_frame(task_frame(task))) + len(packed_frame(answer_frame(answer)))


# ---------------------------------------------------------------- the simulation


class Pooled:
    """Answers as workers would whose shards are all alike: N(0, I) to the power of 1/K each."""

    def __init__(self, n_shards: int, dim: int) -> None:
        self._n_shards, self._dim = n_shards, dim
        self._known: dict[tuple[int, int, int], Array] = {}

    def answers(self, task: Question) -> Iterator[Answer]:
        """The answer to a survey or to a block of points."""
        if isinstance(task, Survey):
            yield self._surveyed(task)
        elif isinstance(task, Evaluate):
            share = len(task.shards) / self._n_shards
            values = values_on_grid(share * self._log_posterior(task))
            yield Values(task._replace(points=task.points[:0]), values)

    def _surveyed(self, task: Survey) -> Surveyed:
        (shard,) = task.shards
        if shard >= _SURVEYED:
            return Surveyed(task, {})
        lower = np.sqrt(self._n_shards) * np.eye(self._dim)
        return Surveyed(task, {f"{shard}/mode": np.zeros(self._dim), f"{shard}/lower": lower})

    def _log_posterior(self, task: Evaluate) -> Array:
        key = task.lane, task.question, task.first_point
        if key not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known[key] = -0.5 * np.sum(task.points**2, axis=1)
        return self._known[key]


def simulated(
    experiment: ScaleExperiment, processes: int, per_process: int, times: str
) -> tuple[Simulated, Questions]:
    """An exact run in virtual time, and what it asked for."""
    n_workers, dim = processes * per_process, experiment.dim
    names = tuple(f"x{i}" for i in range(dim))
    inquiry = Inquiry(np.zeros(dim), names, experiment.draws, experiment.seed, has_gradient=False)
    sums = AnyHolder.by_shard(cyclic(n_workers, min(experiment.redundancy, n_workers)))
    scheme = ExactScheme(sums, inquiry)
    coordinator = PassCoordinator(scheme, experiment.draws)
    nodes = [f"process {k % processes}" for k in range(n_workers)] if per_process > 1 else ()
    latency, streams = experiment.latencies[times], Streams(experiment.seed)
    passes = VirtualPasses(coordinator, Pooled(n_workers, dim), latency, streams, nodes)
    timeline = passes.run()
    n_sums = len(timeline.block_times) - n_workers  # all but surveys, a few of which are doubled
    found = Questions(round(n_sums / processes), scheme.n_points_used // n_workers)
    points = found.n_points / found.n_blocks
    each = experiment.rows / n_workers * points * experiment.constants.row  # of a shard and a block
    seconds = each * timeline.release_times[-1]
    return Simulated(processes, n_workers, times, seconds, len(timeline.block_times)), found


def scaled(
    experiment: ScaleExperiment, progress: Progress = lambda done, total: None
) -> tuple[Questions, list[Simulated]]:
    """What an exact run asks for, and all runs in virtual time."""
    runs = [(times, *size) for times in experiment.latencies for size in experiment.simulated]
    asked, found = Questions(0, 0), []
    for i, (times, processes, per_process) in enumerate(runs):
        run, questions = simulated(experiment, processes, per_process, times)
        asked = asked if i else questions
        found.append(run)
        progress(i + 1, len(runs))
    return asked, found


def ends(experiment: ScaleExperiment, asked: Questions) -> dict[str, int]:
    """Processes beyond which each method gains nothing, and what ends it there.

    They end where the coordinator, or its link, takes as long as the processes.
    """
    counts = np.arange(1, PROCESSES[-1] + 1)
    exact, merge = exact_costs(experiment, asked, counts), merge_costs(experiment, counts)
    return {
        "exact, coordinator": _first(counts, exact.coordinator > exact.compute),
        "exact, network": _first(counts, exact.network > exact.compute),
        "merge, coordinator": _first(counts, merge.coordinator > merge.compute),
        "merge, network": _first(counts, merge.network > merge.compute),
    }


def _first(counts: IntArray, is_beyond: BoolArray) -> int:
    """The first count for which `is_beyond` holds; 0 if it holds for no count."""
    found = np.flatnonzero(is_beyond)
    return int(counts[found[0]]) if len(found) else 0
