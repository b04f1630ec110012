"""Many runs of a scheme in virtual time: `simulate`."""

from dataclasses import asdict, dataclass

import numpy as np

from quorate._types import Array, Progress
from quorate.engines import virtual
from quorate.engines.latency import LatencyModel, parse_latency
from quorate.errors import UnreachableError, require
from quorate.lab.error import relative_error, second_moment
from quorate.models.gaussian import GaussianSubposteriors, paper_subposteriors
from quorate.numerics.streams import Streams
from quorate.protocol.allocation import check_sizes
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.scheme import Scheme
from quorate.protocol.schemes import COV_RIDGE, as_run, scheme_maker

_MOST_BLOCKS = 10**8


@dataclass(frozen=True)
class SimulationSummary:
    """What came of many simulated runs of one scheme.

    `median`, `p90` and `p99` are quantiles of the time to all the draws asked for; a run that
    never gets there counts as infinity. `error` is the mean error of eq. (3) at the end of those
    that do, None if none does. `wasted_share` is the share of the workers' draws that no global
    draw uses, `floats_per_draw` what workers send for each global draw that was asked for.
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


def simulate(
    scheme: str,
    workers: int,
    redundancy: int = 1,
    draws: int = 100,
    latency: LatencyModel | str = "pareto:0.1,1.2",
    *,
    subposteriors: GaussianSubposteriors | None = None,
    code: str = "grouped",
    per_draw: bool = False,
    realisations: int = 100,
    seed: int = 0,
    cov_ridge: float = COV_RIDGE,
    precision_ridge: float | None = None,
    pairing: str | None = None,
    gap: int | None = None,
    copy_cost: float = 0.0,
    precision: str = "estimated",
    checked: bool = False,
    progress: Progress = lambda done, total: None,
) -> SimulationSummary:
    """Run a scheme many times in virtual time.

    Parameters
    ----------
    scheme
        `cmc`, `grouped`, `coded`, `adaptive` or `genie`.
    workers, redundancy
        K and r. CMC has r = 1 always, and the genie r = K.
    draws
        Global draws to get. A worker is asked for none beyond those.
    latency
        A model, or its short form as `quorate.engines.latency.parse_latency` reads it.
    subposteriors
        What workers draw from, the Gaussians of §VI by default.
    code
        The gradient code of `coded`: `grouped`, `reed-solomon` or `cyclic`.
    per_draw
        Whether every draw takes a time of its own; by default a batch of r draws takes r times one
        computing time, as in §II.
    realisations, seed
        How many runs, and what their randomness is keyed by.
    cov_ridge, precision_ridge, pairing, gap, precision, checked
        See `quorate.protocol.schemes.scheme_maker`.
    copy_cost
        Time to copy a shard to a spare slot, which workers have where `gap` is given.
    progress
        Called after every run with the number of runs done, and of all.
    """
    require(realisations >= 1, "realisations", realisations, "ask for at least one")
    require(seed >= 0, "seed", seed, "a seed is 0 or more")
    check_sizes(workers, redundancy)
    require(
        workers * draws <= _MOST_BLOCKS,
        "workers x draws",
        workers * draws,
        f"a run of more than {_MOST_BLOCKS:.0e} blocks takes hours: use fewer",
    )
    model = parse_latency(latency) if isinstance(latency, str) else latency
    subposteriors = subposteriors or paper_subposteriors(workers)
    require(
        subposteriors.n_shards == workers,
        "number of subposteriors",
        subposteriors.n_shards,
        f"there must be one for each of the {workers} workers",
    )
    run_as, held = as_run(scheme, workers, redundancy)
    make = scheme_maker(
        run_as,
        workers,
        held,
        subposteriors.dim,
        cov_ridge,
        precision_ridge,
        code,
        pairing=pairing,
        gap=gap,
        seed=seed,
        precision=precision,
        checked=checked,
        last=draws,
    )
    outcomes = []
    for realisation in range(realisations):
        streams = Streams(seed, realisation)
        cluster = virtual.Cluster(model, subposteriors, streams, per_draw, copy_cost)
        outcomes.append(_run(make(), draws, cluster))
        progress(realisation + 1, realisations)
    return _summary(scheme, workers, held, draws, outcomes)


def _run(scheme: Scheme, draws: int, cluster: virtual.Cluster) -> _Outcome:
    coordinator = Coordinator(scheme, draws)
    timeline = virtual.run(coordinator, cluster)
    counts = scheme.draw_counts()
    if not timeline.finished:
        return _Outcome(np.inf, np.nan, *counts, frozenset(coordinator.lost), coordinator.n_floats)
    expected = cluster.subposteriors.posterior_second_moment()
    error = float(relative_error(second_moment(scheme.global_draws()), expected))
    time, lost = timeline.release_times[-1], frozenset(coordinator.lost)
    return _Outcome(time, error, *counts, lost, coordinator.n_floats)


def _summary(
    scheme: str, workers: int, redundancy: int, draws: int, outcomes: list[_Outcome]
) -> SimulationSummary:
    received = sum(outcome.received for outcome in outcomes)
    if not received and outcomes[0].lost:
        raise UnreachableError(scheme, draws, outcomes[0].lost)
    times = np.array([outcome.time for outcome in outcomes])
    finished = np.isfinite(times)
    errors = [outcome.error for outcome in outcomes if outcome.time < np.inf]
    median, p90, p99 = (_quantile(times, share) for share in (0.5, 0.9, 0.99))
    return SimulationSummary(
        scheme=scheme,
        workers=workers,
        redundancy=redundancy,
        draws=draws,
        median=median,
        p90=p90,
        p99=p99,
        share_unfinished=float(1 - finished.mean()),
        error=float(np.mean(errors)) if errors else None,
        wasted_share=1 - sum(outcome.used for outcome in outcomes) / max(received, 1),
        floats_per_draw=sum(outcome.n_floats for outcome in outcomes) / (draws * len(outcomes)),
    )


def _quantile(times: Array, share: float) -> float:
    """Linear between order statistics; infinity as soon as one of the two is, and has weight."""
    position = share * (len(times) - 1)
    low, high = np.sort(times)[[int(np.floor(position)), int(np.ceil(position))]]
    return float(low if low == high else low + (high - low) * (position % 1))
