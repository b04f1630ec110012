"""The figure `exact`: error against time of merges, which have a floor, and of exact draws.

A draw of a shard, which takes two evaluations, takes one computing time. A block of 64 points on
one shard takes 32 times one such time: one factor for the whole block. With r = 2 that is harsher
for exact runs than separate times, because long and short ones do not average out. A survey of a
shard takes as long as a block. What merges need before their first draw, a warm-up of every chain,
takes no time here.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from quorate._types import Array, Progress
from quorate.engines.latency import LatencyModel, Pareto, Scaled, Slowed
from quorate.engines.virtual import engine as virtual
from quorate.engines.virtual.passes import VirtualPasses
from quorate.engines.workers.worker import Job, Worker
from quorate.errors import SingularCovarianceError, require
from quorate.lab.exact_cases import N_SHARDS, Case
from quorate.lab.exact_draws import Remembering, WeightedShards
from quorate.lab.reproduce import ENOUGH
from quorate.lab.specs import MEAN_PER_SHARD, TAIL_INDEX
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.exact import ExactScheme
from quorate.protocol.pass_blocks import BLOCK
from quorate.protocol.passes import PassCoordinator
from quorate.protocol.scheme import Scheme, SchemeOptions, Setup
from quorate.protocol.schemes import CMC, Adaptive, Grouped
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.timeline import Timeline
from quorate.samplers.ellipse import EllipseSampler

EXACT = "exact"  # name of the figure
REALISATIONS = 8
MOMENTS = 10 ** (np.arange(24) / 6)  # when somebody looks, 1 to 6,800
_EVALUATIONS = 2  # that a draw of a shard takes


@dataclass(frozen=True)
class Line:
    """One curve: a scheme, and what workers do with it."""

    method: Literal["merge", "exact"]
    options: SchemeOptions

    @property
    def redundancy(self) -> int:
        """Shards r of each worker."""
        return self.options.shards_per_worker(N_SHARDS)

    @property
    def label(self) -> str:
        """Name of the line in the figure."""
        name = self.options.label if self.method == "merge" else "exact"
        is_plain = self.method == "merge" and self.redundancy == 1
        return name if is_plain else f"{name}, r = {self.redundancy}"


LINES = (
    Line("merge", CMC(weights="draws")),
    Line("merge", Grouped(redundancy=2, weights="draws")),
    Line("merge", Adaptive(redundancy=2, weights="draws")),
    Line("exact", CMC()),
    Line("exact", Adaptive(redundancy=2)),
)


@dataclass(frozen=True)
class ExactExperiment:
    """What is run.

    Parameters
    ----------
    n_draws
        Draws after which an exact run ends.
    merged_until
        Time at which a run of merges ends.
    slowness
        Factor on the times of one worker, another in each realisation.
    """

    realisations: int = REALISATIONS
    seed: int = 0
    n_draws: int = 8192
    merged_until: float = 470.0
    slowness: float = 10.0

    def __post_init__(self) -> None:
        require(
            self.realisations >= 1, f"realisations must be at least 1, not {self.realisations}."
        )
        require(self.seed >= 0, f"seed must be 0 or more, not {self.seed}.")

    @property
    def latency(self) -> LatencyModel:
        """Times of a draw: the paper's, and one worker that is slower."""
        return Slowed(Pareto(MEAN_PER_SHARD, TAIL_INDEX), 1, self.slowness)


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """Errors of one line on one case at `MOMENTS`, root mean squares over realisations.

    An error is the largest over the coordinates of that of the mean, in posterior sds, of the
    realisations that have a draw: `shares` of all. It is NaN where they are fewer than half, and
    where more than half have ended. An exact run that has ended keeps its last error. `floor` is
    what infinitely many draws would leave.
    """

    line: Line
    errors: Array
    shares: Array
    floor: float

    def error_at(self, time: float) -> float:
        """Error at the moment next to `time`."""
        return float(self.errors[np.argmin(np.abs(np.log(MOMENTS / time)))])


def exact_curves(
    case: Case, experiment: ExactExperiment, progress: Progress = lambda done, total: None
) -> list[ErrorCurve]:
    """All curves of a panel. `progress` gets the runs done, and all."""
    shards = WeightedShards.of([case.target(shard) for shard in range(N_SHARDS)])
    job = Job(case.model, EllipseSampler(), SendDraws(), "", N_SHARDS, experiment.seed)
    worker = Remembering(Worker(job, {}, case))
    found: list[list[Path]] = [[] for _ in LINES]
    for z in range(experiment.realisations):
        worker.forget_values()
        runs = _Runs(case, shards, worker, experiment, z)
        for i, line in enumerate(LINES):
            found[i].append(runs.path(line))
            progress(z * len(LINES) + i + 1, experiment.realisations * len(LINES))
    floor = float(case.error(shards.merged_mean()))
    return [
        averaged(line, paths, floor if line.method == "merge" else 0.0)
        for line, paths in zip(LINES, found, strict=True)
    ]


class Path(NamedTuple):
    """Errors of one run at `MOMENTS`, NaN before its first draw, and when it ended."""

    errors: Array
    end: float


def averaged(line: Line, paths: Sequence[Path], floor: float) -> ErrorCurve:
    """Average over realisations, at each moment."""
    errors, ends = (np.array(each) for each in zip(*paths, strict=True))
    known = np.isfinite(errors)
    shares = known.mean(axis=0)
    shown = (shares >= ENOUGH) & (np.mean(ends[:, None] < MOMENTS, axis=0) <= ENOUGH)
    squares = np.where(known, errors, 0.0) ** 2
    means = np.sqrt(squares.sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return ErrorCurve(line, np.where(shown, means, np.nan), shares, floor)


class _Runs:
    """The runs of one realisation."""

    def __init__(
        self,
        case: Case,
        shards: WeightedShards,
        worker: Remembering,
        experiment: ExactExperiment,
        realisation: int,
    ) -> None:
        self._case, self._shards, self._worker = case, shards, worker
        self._experiment = experiment
        self._streams = Streams(experiment.seed, realisation)
        # Exact runs draw anew in each realisation, so that errors are averages over draws too
        key = np.random.SeedSequence((experiment.seed, realisation))
        self._seed = int(key.generate_state(1)[0])

    def path(self, line: Line) -> Path:
        """Run a line."""
        return self._of_merge(line) if line.method == "merge" else self._of_exact(line)

    def _of_merge(self, line: Line) -> Path:
        experiment, dim = self._experiment, self._shards.dim
        setup = Setup(N_SHARDS, dim, seed=experiment.seed)
        cluster = virtual.Cluster(experiment.latency, self._shards, self._streams)
        coordinator = Coordinator(line.options.start(setup), None)
        timeline = virtual.run(coordinator, cluster, experiment.merged_until, keep_blocks=True)
        means = _merged_means(line.options.start(setup), timeline, dim)
        return Path(self._case.error(means), experiment.merged_until)

    def _of_exact(self, line: Line) -> Path:
        inquiry, times = self._exact_run(line)
        counts = np.searchsorted(times, MOMENTS, side="right")
        last = np.maximum(counts, 1)
        errors = self._case.error(np.cumsum(inquiry.draws(), axis=0)[last - 1] / last[:, None])
        return Path(np.where(counts, errors, np.nan), times[-1])

    def _exact_run(self, line: Line) -> tuple[Inquiry, list[float]]:
        """A run with all its draws, and when each was there."""
        model, n_draws = self._case.model, self._experiment.n_draws
        inquiry = Inquiry(model.initial(), model.names, n_draws, self._seed, has_gradient=True)
        scheme = ExactScheme(line.options.sums(N_SHARDS, self._experiment.seed), inquiry)
        latency = Scaled(self._experiment.latency, BLOCK / _EVALUATIONS)
        coordinator = PassCoordinator(scheme, n_draws)
        timeline = VirtualPasses(coordinator, self._worker, latency, self._streams).run()
        return inquiry, timeline.release_times


def _merged_means(scheme: Scheme, timeline: Timeline, dim: int) -> Array:
    """Means of the global draws that a run could have made at each moment: (n_moments, d).

    `scheme` is a new run, which is given the blocks up to each moment. NaN as long as there are no
    draws or no weights.
    """
    ends = np.searchsorted(timeline.block_times, MOMENTS, side="right")
    means, first = np.full((len(MOMENTS), dim), np.nan), 0
    for i in np.flatnonzero(timeline.block_times[-1] >= MOMENTS):
        for block in timeline.blocks[first : ends[i]]:
            scheme.receive(block)
        first = ends[i]
        with suppress(SingularCovarianceError):
            if scheme.received.n_complete:
                means[i] = scheme.received.global_draws().mean(axis=0)
    return means
