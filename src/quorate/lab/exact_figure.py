"""The figure `exact`: error against time of merges, which have a floor, and of exact draws.

A draw of a shard, which takes two evaluations, takes one computing time. A block of 64 points on
one shard takes 32 times one such time: one factor for the whole block. That is harsher for exact
runs than separate times would be, because long and short ones do not average out. What merges need
before their first draw, a warm-up of every chain, takes no time here. The surveys and the fit of
exact runs do.
"""

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from quorate._types import Array, Progress
from quorate.engines import virtual
from quorate.engines.latency import LatencyModel, Pareto, Scaled, Slowed
from quorate.engines.virtual_passes import VirtualPasses
from quorate.engines.worker import Job, Worker
from quorate.errors import SingularCovarianceError, require
from quorate.lab.exact_cases import N_SHARDS, Case
from quorate.lab.exact_draws import Remembering, ShardPools, draws_of
from quorate.lab.specs import MEAN_PER_SHARD, TAIL_INDEX
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.exact import ExactScheme
from quorate.protocol.passes import BLOCK, PassCoordinator
from quorate.protocol.scheme import Scheme, SchemeOptions, Setup
from quorate.protocol.schemes import CMC, Adaptive, Grouped
from quorate.protocol.schemes.cmc import SendDraws
from quorate.protocol.timeline import Timeline
from quorate.samplers.ellipse import EllipseSampler

EXACT = "exact"  # name of the figure
REALISATIONS = 8
MOMENTS = 10 ** (np.arange(25) / 6)  # when somebody looks, 1 to 10,000
_EVALUATIONS = 2  # that a draw of a shard takes
_POOL = 16_384  # draws of each shard from which merges take theirs


@dataclass(frozen=True)
class Line:
    """One curve: a scheme, and what workers do with it."""

    method: Literal["merge", "exact"]
    options: SchemeOptions

    @property
    def redundancy(self) -> int:
        """r."""
        return self.options.shards_per_worker(N_SHARDS)

    @property
    def label(self) -> str:
        """As the figure calls it."""
        name = self.options.label if self.method == "merge" else "exact"
        return name if self.redundancy == 1 else f"{name}, r = {self.redundancy}"


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
        Time at which a run of merges ends. By then they are at their floor.
    slowness
        Factor on the times of one worker, another in each realisation.
    """

    realisations: int = REALISATIONS
    seed: int = 0
    n_draws: int = 8192
    merged_until: float = 320.0
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

    An error is the largest over the coordinates of that of the mean, in posterior sds. It is NaN
    where no realisation has a draw, and from where the first of them has ended. `shares` are those
    of the realisations with a draw. `floor` is what infinitely many draws would leave.
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
    """All curves of a panel. `progress` is told of runs done, of how many."""
    targets = [case.target(shard) for shard in range(N_SHARDS)]
    pools = ShardPools(np.array([draws_of(t, _POOL, seed) for seed, t in enumerate(targets)]))
    found: list[list[Array]] = [[] for _ in LINES]
    for z in range(experiment.realisations):
        runs = _Runs(case, pools, experiment, z)
        for i, line in enumerate(LINES):
            found[i].append(runs.errors(line))
            progress(z * len(LINES) + i + 1, experiment.realisations * len(LINES))
    floor = float(case.error(pools.merged_mean()))
    return [
        averaged(line, np.array(errors), floor if line.method == "merge" else 0.0)
        for line, errors in zip(LINES, found, strict=True)
    ]


def averaged(line: Line, errors: Array, floor: float) -> ErrorCurve:
    """Average `errors` (n_realisations, n_moments): NaN before the first draw, inf after the end."""
    known = np.isfinite(errors)
    n_known = np.maximum(known.sum(axis=0), 1)
    squares = np.where(known, errors, 0.0) ** 2
    shown = known.any(axis=0) & ~np.isinf(errors).any(axis=0)
    means = np.where(shown, np.sqrt(squares.sum(axis=0) / n_known), np.nan)
    return ErrorCurve(line, means, np.where(shown, known.mean(axis=0), 0.0), floor)


class _Runs:
    """The runs of one realisation."""

    def __init__(
        self, case: Case, pools: ShardPools, experiment: ExactExperiment, realisation: int
    ) -> None:
        self._case, self._pools, self._experiment = case, pools, experiment
        self._streams = Streams(experiment.seed, realisation)
        # Exact runs draw anew in each realisation, so that errors are averages over draws too
        key = np.random.SeedSequence((experiment.seed, realisation))
        self._seed = int(key.generate_state(1)[0])
        job = Job(case.model, EllipseSampler(), SendDraws(), "", N_SHARDS, self._seed)
        self._worker = Remembering(Worker(job, {}, case))

    def errors(self, line: Line) -> Array:
        """Errors at `MOMENTS`: NaN before the first draw, infinity after the end of the run."""
        return self._of_merge(line) if line.method == "merge" else self._of_exact(line)

    def _of_merge(self, line: Line) -> Array:
        experiment = self._experiment
        setup = Setup(N_SHARDS, self._pools.dim, seed=experiment.seed)
        cluster = virtual.Cluster(experiment.latency, self._pools, self._streams)
        coordinator = Coordinator(line.options.start(setup), None)
        timeline = virtual.run(coordinator, cluster, experiment.merged_until, keep_blocks=True)
        seen = MOMENTS <= experiment.merged_until
        errors = np.full(len(MOMENTS), np.inf)
        means = _merged_means(line.options.start(setup), timeline, MOMENTS[seen], self._pools.dim)
        errors[seen] = self._case.error(means)
        return errors

    def _of_exact(self, line: Line) -> Array:
        inquiry, times = self._exact_run(line)
        counts = np.searchsorted(times, MOMENTS, side="right")
        last = np.maximum(counts, 1)
        errors = self._case.error(np.cumsum(inquiry.draws(), axis=0)[last - 1] / last[:, None])
        errors[counts == 0] = np.nan
        errors[times[-1] < MOMENTS] = np.inf
        return errors

    def _exact_run(self, line: Line) -> tuple[Inquiry, list[float]]:
        """A run with all its draws, and when each was there."""
        model, n_draws = self._case.model, self._experiment.n_draws
        inquiry = Inquiry(model.initial(), model.names, n_draws, self._seed, has_gradient=True)
        scheme = ExactScheme(line.options.sums(N_SHARDS, self._experiment.seed), inquiry)
        latency = Scaled(self._experiment.latency, BLOCK / _EVALUATIONS)
        coordinator = PassCoordinator(scheme, n_draws)
        timeline = VirtualPasses(coordinator, self._worker, latency, self._streams).run()
        return inquiry, timeline.release_times


def _merged_means(scheme: Scheme, timeline: Timeline, moments: Array, dim: int) -> Array:
    """Means of the global draws of a new `scheme`, given the blocks of each moment in turn.

    NaN as long as there are no draws or no weights: (n_moments, d).
    """
    means = np.full((len(moments), dim), np.nan)
    ends = np.searchsorted(timeline.block_times, moments, side="right").tolist()
    for i, (first, end) in enumerate(pairwise([0, *ends])):
        for block in timeline.blocks[first:end]:
            scheme.receive(block)
        with suppress(SingularCovarianceError):
            if scheme.received.n_complete:
                means[i] = scheme.received.global_draws().mean(axis=0)
    return means
