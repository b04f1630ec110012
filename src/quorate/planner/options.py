"""The options of a plan: schemes, K and r, and the times and costs to expect of each."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from quorate._registry import option_names
from quorate._types import Array, Progress
from quorate.engines.latency import Scaled
from quorate.errors import BadInputError, require
from quorate.planner.losses import survives_typically
from quorate.planner.passes import ExactRun, passes_in_virtual_time
from quorate.planner.simulated import simulated
from quorate.protocol.allocation import check_sizes
from quorate.protocol.scheme import SchemeOptions
from quorate.protocol.schemes import SCHEMES
from quorate.protocol.times import Outcomes, Realisations, Work
from quorate.run.settings import TASKS_PER_SHARD

REDUNDANCY = "redundancy"
_SECONDS_PER_HOUR = 3600.0
_MOST_AT_ONCE = 2**23  # times that are held in memory
NEARLY_AS_FAST = 1.1  # as the fastest: then fewer workers and less storage decide


@dataclass(frozen=True)
class Option:
    """One choice of scheme, K and r, and what to expect of it.

    Parameters
    ----------
    chosen
        The scheme with its options.
    workers, redundancy
        K, and the number of shards r that each worker holds.
    median, p95
        Seconds to all the draws: half of the runs finish by then, 95 % do. Infinity for never.
    share_unfinished
        Share of runs that never finish, because too many workers die.
    worker_hours
        K times the median, in hours.
    storage
        Share of the data that a worker holds, r/K.
    floats_per_draw
        Floats that workers send for each global draw.
    survives, survives_typically
        How many workers a run can lose: whichever they are, and in half of the orders in which
        chance may take them.
    """

    chosen: SchemeOptions
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

    @property
    def scheme(self) -> str:
        """Name of the scheme."""
        return self.chosen.name

    @property
    def settings(self) -> dict[str, Any]:
        """Options of the scheme that are not the defaults, but for the redundancy."""
        made_of: Any = type(self.chosen)
        values = {field: getattr(self.chosen, field.name) for field in fields(made_of)}
        return {
            field.name: value
            for field, value in values.items()
            if value != field.default and field.name != REDUNDANCY
        }

    @property
    def title(self) -> str:
        """The scheme with its settings, such as "adaptive gap=5"."""
        return " ".join([self.scheme, *(f"{k}={v}" for k, v in self.settings.items())])

    def as_json(self) -> dict[str, object]:
        """Scheme, settings and numbers, with None for infinity, which JSON does not know."""
        names = [field.name for field in fields(self) if field.name != "chosen"]
        numbers = {name: getattr(self, name) for name in names}
        found = {name: None if value == np.inf else value for name, value in numbers.items()}
        return {"scheme": self.scheme, "settings": self.settings, **found}


@dataclass(frozen=True)
class Grid:
    """What a plan tries: every scheme with every K and r that go together.

    A scheme is a name, or an object with its options.
    """

    workers: tuple[int, ...]
    redundancies: tuple[int, ...]
    schemes: tuple[str | SchemeOptions, ...]

    def __post_init__(self) -> None:
        for n_workers in self.workers:
            check_sizes(n_workers, 1)
        for redundancy in self.redundancies:
            check_sizes(max(self.workers), redundancy)

    def choices(self, n_workers: int) -> list[SchemeOptions]:
        """The schemes for K workers, each with every r above 1 that fits, if it has an r."""
        return [
            options
            for scheme in self.schemes
            for options in self._of(scheme, n_workers)
            if _fits(options, n_workers)
        ]

    def _of(self, scheme: str | SchemeOptions, n_workers: int) -> list[SchemeOptions]:
        if not isinstance(scheme, str):
            return [scheme]
        if REDUNDANCY not in option_names(SCHEMES[scheme]):
            return [SCHEMES.chosen(scheme)]
        redundancies = sorted({r for r in self.redundancies if 1 < r <= n_workers})
        listed = [SCHEMES.chosen(scheme, {REDUNDANCY: r}) for r in redundancies]
        return list({options.shards_per_worker(n_workers): options for options in listed}.values())


def _fits(options: SchemeOptions, n_workers: int) -> bool:
    try:
        return options.shards_per_worker(n_workers) <= n_workers
    except BadInputError:
        return False


def compared(
    grid: Grid,
    work: Work,
    measured_at: int,
    rows_share: float,
    dim: int,
    realisations: int,
    progress: Progress,
    exact: ExactRun | None,
) -> list[Option]:
    """All options of a grid. `work` holds for `measured_at` workers; it is of a merge, or `exact`.

    With K workers a shard has `measured_at` / K times as many rows. The share `rows_share` of the
    time of a draw grows with them, and blocks have the more draws the faster these are.
    """
    require(0 <= rows_share <= 1, f"`rows_share` is a share, from 0 to 1, not {rows_share}.")
    options = []
    for i, n_workers in enumerate(grid.workers):
        factor = rows_share * measured_at / n_workers + 1 - rows_share
        scaled = replace(
            work,
            n_workers=n_workers,
            latency=Scaled(work.latency, factor),
            block=max(1, round(work.block / factor)) if work.block > 1 else 1,
            task=max(1, work.n_draws // TASKS_PER_SHARD),
        )
        options += _options(grid.choices(n_workers), scaled, dim, realisations, exact)
        progress(i + 1, len(grid.workers))
    if not options:
        tried, workers = _listed(grid.redundancies), _listed(grid.workers)
        raise BadInputError(
            f"None of the schemes fits {workers} workers with a redundancy of {tried or 'none'}. "
            "Try other `schemes`, or `redundancies` from 2 to the number of workers."
        )
    return options


def _options(
    choices: Sequence[SchemeOptions],
    work: Work,
    dim: int,
    realisations: int,
    exact: ExactRun | None,
) -> list[Option]:
    if exact is None:
        finished = _merges(choices, work, realisations)
    else:
        of_run = work, exact, dim, realisations
        finished = [passes_in_virtual_time(choice, *of_run) for choice in choices]
    return [_option(*pair, work, dim) for pair in zip(choices, finished, strict=True)]


def _merges(choices: Sequence[SchemeOptions], work: Work, realisations: int) -> list[Outcomes]:
    n_blocks = 2 * -(-work.n_draws // work.block)
    per_slice = max(1, _MOST_AT_ONCE // (work.n_workers * n_blocks))
    outcomes: list[list[Array]] = [[] for _ in choices]
    for first in range(0, realisations, per_slice):
        part = Realisations(work, first, min(per_slice, realisations - first))
        for choice, found in zip(choices, outcomes, strict=True):
            found.append(np.array(_outcomes(choice, part)))
    return [Outcomes(*np.concatenate(found, axis=1)) for found in outcomes]


def _outcomes(choice: SchemeOptions, realisations: Realisations) -> Outcomes:
    """By the scheme's own short cut, or else by running the scheme."""
    found = choice.finish_times(realisations)
    return simulated(choice, realisations) if found is None else found


def _option(choice: SchemeOptions, outcomes: Outcomes, work: Work, dim: int) -> Option:
    n_workers, times = work.n_workers, outcomes.times
    redundancy = choice.shards_per_worker(n_workers)
    finished = np.isfinite(times)
    median, p95 = np.quantile(times, [0.5, 0.95], method="inverted_cdf")
    n_sent = float(outcomes.n_vectors[finished].mean()) if finished.any() else np.inf
    return Option(
        chosen=choice,
        workers=n_workers,
        redundancy=redundancy,
        median=float(median),
        p95=float(p95),
        share_unfinished=float(1 - finished.mean()),
        worker_hours=float(median) * n_workers / _SECONDS_PER_HOUR,
        storage=redundancy / n_workers,
        floats_per_draw=n_sent * dim / work.n_draws,
        survives=choice.survives(n_workers),
        survives_typically=survives_typically(choice, n_workers, work.seed),
    )


def front(options: Sequence[Option], costs: tuple[str, ...]) -> list[Option]:
    """Options that no other beats in one of `costs` without being worse in another."""

    def prices(option: Option) -> Array:
        return np.array([getattr(option, cost) for cost in costs])

    finite = [option for option in options if np.isfinite(prices(option)).all()]

    def is_beaten(option: Option) -> bool:
        mine = prices(option)
        others = (prices(other) for other in finite)
        return any(np.all(theirs <= mine) and np.any(theirs < mine) for theirs in others)

    return [option for option in finite if not is_beaten(option)]


def ranked(options: Sequence[Option], survive: int, max_storage: float) -> list[Option]:
    """Options that are allowed, best first.

    The fastest has the smallest p95, or median if no p95 is finite. Options nearly as fast come
    first: by fewest workers, then least storage, then time. The others follow by time.

    Only options are allowed that survive the loss of any `survive` workers and need at most
    `max_storage`.
    """
    allowed = [o for o in options if o.survives >= survive and o.storage <= max_storage]
    require(
        len(allowed) > 0,
        f"No option survives the loss of any {survive} workers with at most {max_storage:.0%} of "
        "the data at a worker. Lower `survive`, or raise `max_storage`.",
    )
    key = "p95" if any(np.isfinite(option.p95) for option in allowed) else "median"
    fastest = min(getattr(option, key) for option in allowed)
    tried = _listed(sorted({option.redundancy for option in allowed}))
    require(
        bool(np.isfinite(fastest)),
        f"Too many workers die for any option to finish, with a redundancy of {tried}. Try larger "
        "`redundancies`.",
    )

    def place(option: Option) -> tuple[float, ...]:
        time = getattr(option, key)
        if time <= NEARLY_AS_FAST * fastest:
            return 0, option.workers, option.redundancy, time
        return 1, time, option.workers, option.redundancy

    return sorted(allowed, key=place)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
