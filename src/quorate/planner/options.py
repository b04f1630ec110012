"""What there is to choose from, and what each choice comes to."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from quorate._types import Array, IntArray, Progress
from quorate.engines.latency import Slowed
from quorate.errors import require
from quorate.planner.fast_times import (
    Realisations,
    Work,
    losses_survived,
    losses_survived_at_worst,
    simulated,
)
from quorate.protocol.allocation import check_sizes
from quorate.run.settings import TASKS_PER_SHARD

_SECONDS_PER_HOUR = 3600.0
_MOST_AT_ONCE = 2**23  # times that are held in memory
_ORDERS = 2000  # in which workers are lost, for what is survived typically
_NEARLY_AS_FAST = 1.1  # as the fastest: then fewer workers and less storage decide
_SENT_AGAIN = 4  # exact coded sums, checked: about so many vectors for one


@dataclass(frozen=True)
class Option:
    """One choice of K, r and scheme, and what is to be expected of it.

    Parameters
    ----------
    scheme, workers, redundancy
        The choice.
    median, p95
        Seconds to all the draws: half of the runs are there, 95 % are. Infinity for never.
    share_unfinished
        Runs that never get there, since too many workers die.
    worker_hours
        K times the median, in hours.
    storage
        Share of the data that a worker holds, r/K.
    floats_per_draw
        Sent for each global draw.
    survives, survives_typically
        How many workers can be lost: whichever they are; and in half of the orders in which they
        may be lost, by chance.
    """

    scheme: str
    workers: int
    redundancy: int
    median: float
    p95: float
    share_unfinished: float
    worker_hours: float
    storage: float
    floats_per_draw: float
    survives: int
    survives_typically: int

    def as_json(self) -> dict[str, object]:
        """The fields, with None for infinity, which JSON does not know."""
        return {key: None if value == np.inf else value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Grid:
    """All that is tried: every scheme with every K and r that go together."""

    workers: tuple[int, ...]
    redundancies: tuple[int, ...]
    schemes: tuple[str, ...]

    def __post_init__(self) -> None:
        for n_workers in self.workers:
            check_sizes(n_workers, 1)
        for redundancy in self.redundancies:
            check_sizes(max(self.workers), redundancy)

    def choices(self, n_workers: int) -> list[tuple[str, int]]:
        """Schemes and r for one K; CMC has r = 1 only, and the others need more."""
        fitting = sorted({r for r in self.redundancies if 1 < r <= n_workers})
        with_r = [(s, r) for s in self.schemes if s != "cmc" for r in fitting]
        return [("cmc", 1), *with_r] if "cmc" in self.schemes else with_r


def compared(
    grid: Grid,
    work: Work,
    measured_at: int,
    rows_share: float,
    dim: int,
    realisations: int,
    progress: Progress,
) -> list[Option]:
    """All options. `work` is as with `measured_at` workers.

    With K workers a shard has `measured_at` / K times as many rows: of the time of a draw the share
    `rows_share` goes with them, and blocks have as many more draws as these are quicker.
    """
    require(0 <= rows_share <= 1, "rows_share", rows_share, "it is a share, from 0 to 1")
    options = []
    for i, n_workers in enumerate(grid.workers):
        factor = rows_share * measured_at / n_workers + 1 - rows_share
        scaled = replace(
            work,
            n_workers=n_workers,
            latency=Slowed(work.latency, n_workers, factor),
            block=max(1, round(work.block / factor)) if work.block > 1 else 1,
            task=max(1, work.n_draws // TASKS_PER_SHARD),
        )
        options += _options(grid.choices(n_workers), scaled, dim, realisations)
        progress(i + 1, len(grid.workers))
    require(len(options) > 0, "redundancies", grid.redundancies, "none of them fits the workers")
    return options


def _options(
    choices: Sequence[tuple[str, int]], work: Work, dim: int, realisations: int
) -> list[Option]:
    n_blocks = 2 * -(-work.n_draws // work.block)
    per_slice = max(1, _MOST_AT_ONCE // (work.n_workers * n_blocks))
    outcomes: dict[tuple[str, int], list[Array]] = {choice: [] for choice in choices}
    for first in range(0, realisations, per_slice):
        part = Realisations(work, first, min(per_slice, realisations - first))
        for choice in choices:
            outcomes[choice].append(np.array(simulated(*choice, part)))
    orders = np.random.default_rng(work.seed).permuted(
        np.tile(np.arange(work.n_workers), (_ORDERS, 1)), axis=1
    )
    return [_option(c, work, dim, np.concatenate(o, axis=1), orders) for c, o in outcomes.items()]


def _option(
    choice: tuple[str, int], work: Work, dim: int, outcomes: Array, orders: IntArray
) -> Option:
    (scheme, redundancy), n_workers = choice, work.n_workers
    times, n_vectors = outcomes
    finished = np.isfinite(times)
    median, p95 = np.quantile(times, [0.5, 0.95], method="inverted_cdf")
    n_sent = float(n_vectors[finished].mean()) if finished.any() else np.inf
    survived = losses_survived(scheme, n_workers, redundancy, orders)
    return Option(
        scheme=scheme,
        workers=n_workers,
        redundancy=redundancy,
        median=float(median),
        p95=float(p95),
        share_unfinished=float(1 - finished.mean()),
        worker_hours=float(median) * n_workers / _SECONDS_PER_HOUR,
        storage=redundancy / n_workers,
        floats_per_draw=n_sent * dim / work.n_draws * (_SENT_AGAIN if scheme == "coded" else 1),
        survives=losses_survived_at_worst(scheme, n_workers, redundancy),
        survives_typically=int(np.median(survived)),
    )


def front(options: Sequence[Option], costs: tuple[str, ...]) -> list[Option]:
    """Those that no other beats in one of `costs` without being worse in another."""

    def prices(option: Option) -> Array:
        return np.array([getattr(option, cost) for cost in costs])

    finite = [option for option in options if np.isfinite(prices(option)).all()]

    def is_beaten(option: Option) -> bool:
        mine = prices(option)
        others = (prices(other) for other in finite)
        return any(np.all(theirs <= mine) and np.any(theirs < mine) for theirs in others)

    return [option for option in finite if not is_beaten(option)]


def best(options: Sequence[Option], survive: int, max_storage: float) -> Option:
    """Of those nearly as fast as the fastest: with the fewest workers, then the least storage.

    Fast is by the time in which 95 % of runs are there. Only of those that survive the loss of any
    `survive` workers and fit into `max_storage`.
    """
    allowed = [o for o in options if o.survives >= survive and o.storage <= max_storage]
    way_out = f"no option survives that with {max_storage:.0%} of the data at a worker: allow more"
    require(len(allowed) > 0, "survive", survive, way_out)
    key = "p95" if any(np.isfinite(option.p95) for option in allowed) else "median"
    fastest = min(getattr(option, key) for option in allowed)
    way_out = "too many workers die for any option to get there: try larger redundancies"
    require(bool(np.isfinite(fastest)), "redundancies", _tried(allowed), way_out)
    good = [option for option in allowed if getattr(option, key) <= _NEARLY_AS_FAST * fastest]
    return min(good, key=lambda option: (option.workers, option.redundancy, getattr(option, key)))


def _tried(options: Sequence[Option]) -> list[int]:
    return sorted({option.redundancy for option in options})
