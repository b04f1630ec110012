"""Many runs of a scheme in virtual time: `simulate`."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from quorate._types import Array, Progress
from quorate.engines.latency import LatencyModel, parse_latency
from quorate.engines.virtual import engine as virtual
from quorate.engines.virtual.passes import VirtualPasses
from quorate.engines.workers.worker import Job, Worker
from quorate.errors import UnreachableError, require
from quorate.lab.error import relative_error, second_moment
from quorate.models.gaussian import ROWS, GaussianSubposteriors, paper_subposteriors
from quorate.models.protocol import Shard
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Inquiry
from quorate.protocol.allocation import check_sizes
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.exact import ExactScheme
from quorate.protocol.passes import PassCoordinator
from quorate.protocol.scheme import Scheme, SchemeOptions, Setup
from quorate.protocol.schemes import COV_RIDGE, as_published
from quorate.protocol.timeline import Timeline
from quorate.samplers.ellipse import EllipseSampler

_MOST_BLOCKS = 10**8
Method = Literal["merge", "exact"]


@dataclass(frozen=True)
class SimulationSummary:
    """Results of many simulated runs of one scheme.

    `median`, `p90` and `p99` are quantiles of the time to all the draws asked for; a run that never
    finishes counts as infinity. `error` is the mean error of eq. (3) at the end of the runs that
    finish, None if none does. `wasted_share` is the share of the workers' draws that no global draw
    uses; for exact runs that of the points that nobody needed. `floats_per_draw` is what workers
    send for each global draw that was asked for. `passes` is the number of passes of an exact run.
    """

    scheme: str
    workers: int
    redundancy: int
    draws: int
    median: float
    p90: float
    p99: float
    share_unfinished: float
    error: float | None
    wasted_share: float
    floats_per_draw: float
    method: str = "merge"
    passes: int | None = None

    def as_json(self) -> dict[str, object]:
        """The fields, with None for infinity, which JSON does not know."""
        return {key: None if value == np.inf else value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class _Outcome:
    time: float
    error: float
    received: int
    used: int
    lost: frozenset[int]
    n_floats: int
    n_passes: int | None = None


def simulate(
    scheme: str | SchemeOptions,
    workers: int,
    redundancy: int | None = None,
    draws: int = 100,
    latency: LatencyModel | str = "pareto:0.1,1.2",
    *,
    method: Method = "merge",
    subposteriors: GaussianSubposteriors | None = None,
    per_draw: bool = False,
    realisations: int = 100,
    seed: int = 0,
    copy_cost: float = 0.0,
    progress: Progress = lambda done, total: None,
    **options: Any,
) -> SimulationSummary:
    """Run a scheme many times in virtual time.

    Parameters
    ----------
    scheme
        Name of a scheme, run as in the paper's experiments: `cmc`, `grouped`, `coded`, `adaptive`,
        `genie` or one of your own. Or an object such as `Coded(redundancy=3)`, run as it is.
    workers, redundancy
        K and r. r is 1 unless given; it is always 1 for CMC, and K for the genie.
    draws
        Number of global draws to get. Workers are asked for none beyond those.
    latency
        A latency model, or its short form as `quorate.engines.latency.parse_latency` reads it.
    method
        `merge` for the paper's merges of draws; `exact` for passes over the posterior, where a
        computing time is that of a block of points on one shard.
    subposteriors
        What workers draw from, the Gaussians of §VI by default.
    per_draw
        Whether every draw takes a time of its own. By default a batch of r draws takes r times one
        computing time, as in §II.
    realisations, seed
        Number of runs, and their random seed.
    copy_cost
        Time to copy a shard to a spare slot, which workers of `Adaptive(gap=...)` have.
    progress
        Called after every run with the number of runs done, and of all.
    options
        Options of a scheme that is given by name, such as `code` of `coded`. The paper gives no
        `cov_ridge`; the default is that of its authors' scripts, 10.
    """
    require(realisations >= 1, f"realisations must be at least 1, not {realisations}.")
    require(seed >= 0, f"seed must be 0 or more, not {seed}.")
    require(
        workers * draws <= _MOST_BLOCKS,
        f"A run of {workers} x {draws} blocks takes hours. Use fewer workers or draws.",
    )
    model = parse_latency(latency) if isinstance(latency, str) else latency
    usual = {"cov_ridge": COV_RIDGE, "redundancy": 1}
    chosen = as_published(scheme, usual, {"redundancy": redundancy, **options})
    check_sizes(workers, chosen.shards_per_worker(workers) if redundancy is None else redundancy)
    subposteriors = subposteriors or paper_subposteriors(workers)
    require(
        subposteriors.n_shards == workers,
        f"There are {subposteriors.n_shards} subposteriors for {workers} workers. Give one for "
        "each.",
    )
    setup = Setup(workers, subposteriors.dim, draws, seed=seed)
    outcomes = []
    for realisation in range(realisations):
        streams = Streams(seed, realisation)
        cluster = virtual.Cluster(model, subposteriors, streams, per_draw, copy_cost)
        run = _run if method == "merge" else _run_exactly
        outcomes.append(run(chosen, setup, cluster, subposteriors))
        progress(realisation + 1, realisations)
    return _summary(chosen, workers, draws, outcomes)


def _run(
    options: SchemeOptions, setup: Setup, cluster: virtual.Cluster, model: GaussianSubposteriors
) -> _Outcome:
    scheme = options.start(setup)
    coordinator = Coordinator(scheme, setup.n_draws)
    timeline = virtual.run(coordinator, cluster, keep_blocks=True)
    n_floats = sum(block.n_floats for block in timeline.blocks)
    return _outcome(scheme, coordinator, timeline, model, n_floats)


def _run_exactly(
    options: SchemeOptions, setup: Setup, cluster: virtual.Cluster, model: GaussianSubposteriors
) -> _Outcome:
    assert setup.n_draws is not None
    inquiry = Inquiry(model.initial(), model.names, setup.n_draws, setup.seed, has_gradient=True)
    scheme = ExactScheme(options.sums(setup.n_workers, setup.seed), inquiry)
    coordinator = PassCoordinator(scheme, setup.n_draws)
    job = Job(model, EllipseSampler(), scheme.worker_side, "", setup.n_workers, setup.seed)
    worker = Worker(job, {}, _RowsOfGaussians())
    passes = VirtualPasses(coordinator, worker, cluster.latency, cluster.streams)
    outcome = _outcome(scheme, coordinator, passes.run(), model, passes.n_floats)
    return replace(outcome, n_passes=inquiry.n_passes)


class _RowsOfGaussians:
    """Shard s is the s-th Gaussian."""

    def shard(self, number: int) -> Shard:
        return {ROWS: np.array([number])}


def _outcome(
    scheme: Scheme,
    coordinator: Coordinator[Any],
    timeline: Timeline,
    model: GaussianSubposteriors,
    n_floats: int,
) -> _Outcome:
    counts = scheme.received.draw_counts()
    lost = frozenset(coordinator.lost)
    if not timeline.finished:
        return _Outcome(np.inf, np.nan, *counts, lost, n_floats)
    expected = model.posterior_second_moment()
    error = float(relative_error(second_moment(scheme.received.global_draws()), expected))
    return _Outcome(timeline.release_times[-1], error, *counts, lost, n_floats)


def _summary(
    options: SchemeOptions, workers: int, draws: int, outcomes: list[_Outcome]
) -> SimulationSummary:
    received = sum(outcome.received for outcome in outcomes)
    if not received and outcomes[0].lost:
        raise UnreachableError(options.name, draws, outcomes[0].lost)
    times = np.array([outcome.time for outcome in outcomes])
    finished = np.isfinite(times)
    errors = [outcome.error for outcome in outcomes if outcome.time < np.inf]
    median, p90, p99 = (_quantile(times, share) for share in (0.5, 0.9, 0.99))
    return SimulationSummary(
        scheme=options.name,
        workers=workers,
        redundancy=options.shards_per_worker(workers),
        draws=draws,
        median=median,
        p90=p90,
        p99=p99,
        share_unfinished=float(1 - finished.mean()),
        error=float(np.mean(errors)) if errors else None,
        wasted_share=1 - sum(outcome.used for outcome in outcomes) / max(received, 1),
        floats_per_draw=sum(outcome.n_floats for outcome in outcomes) / (draws * len(outcomes)),
        method="merge" if outcomes[0].n_passes is None else "exact",
        passes=max((outcome.n_passes or 0 for outcome in outcomes), default=0) or None,
    )


def _quantile(times: Array, share: float) -> float:
    """Linear between order statistics; infinity as soon as one of the two is, and has weight."""
    position = share * (len(times) - 1)
    low, high = np.sort(times)[[int(np.floor(position)), int(np.ceil(position))]]
    return float(low if low == high else low + (high - low) * (position % 1))
