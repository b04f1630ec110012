"""Which scheme, K and r? `plan` compares them in virtual time, by measured or assumed times.

It knows a scheme by the finish times that the scheme offers, or by running it; never by its name.
The passes of exact runs are always run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorate._registry import option_names
from quorate._types import Progress
from quorate.data.cut import COMMAND
from quorate.engines.latency import LatencyModel, parse_cluster
from quorate.errors import require
from quorate.planner.measured import measured
from quorate.planner.options import REDUNDANCY, Grid, Option, compared, front, ranked
from quorate.planner.passes import ExactRun
from quorate.planner.words import assumed, explained, seen
from quorate.protocol.scheme import SchemeOptions
from quorate.protocol.schemes import LIMITS, SCHEMES
from quorate.protocol.times import Work
from quorate.run.history import History
from quorate.run.settings import METHODS, Method

_DRAWS = 1000
_WORKERS = 8
_UNKNOWN = 'quorate sample "$MODEL" "$DATA"'
_REDUNDANCIES = (2, 3, 4)
_OUTRUNS = 10.0  # times as fast as others: such a worker may do the work of all
_REALISATIONS: dict[Method, int] = {"merge": 200, "exact": 20}  # passes are simulated one by one
_FRONT = ("p95", "workers", "storage")


@dataclass(frozen=True)
class Plan:
    """All options, the recommended one, and why.

    Parameters
    ----------
    options
        Every scheme with every K and r.
    ranked
        Those that are allowed, best first; the explanation says by what.
    explanation
        Six lines of text.
    command
        The command that runs the recommended option. Where model and data are not known, it reads
        their names from the variables MODEL and DATA of the shell.
    draws
        Number of global draws that the times are for.
    """

    options: tuple[Option, ...]
    ranked: tuple[Option, ...]
    explanation: tuple[str, ...]
    command: str
    draws: int

    @property
    def recommended(self) -> Option:
        """The option that is ranked first."""
        return self.ranked[0]

    @property
    def front(self) -> list[Option]:
        """Options that no other beats in p95, workers or storage without being worse in another."""
        return front(self.options, _FRONT)

    def save_picture(self, path: str | Path) -> None:
        """Draw time against worker-hours and storage, in the format that `path` ends in."""
        from quorate.planner.picture import save_picture  # matplotlib is slow to import

        save_picture(self.options, self.recommended, self.draws, Path(path))

    def as_json(self) -> dict[str, object]:
        """The plan in JSON values, with None for infinity."""
        return {
            "draws": self.draws,
            "options": [option.as_json() for option in self.options],
            "recommended": self.recommended.as_json(),
            "explanation": list(self.explanation),
            "command": self.command,
        }


def plan(
    latency: str | LatencyModel | None = None,
    *,
    slow: str | None = None,
    dead: str | None = None,
    run: str | Path | None = None,
    method: Method | None = None,
    workers: Sequence[int] | None = None,
    redundancies: Sequence[int] | None = None,
    schemes: Sequence[str | SchemeOptions] | None = None,
    draws: int | None = None,
    target_ess: float | None = None,
    measured_at: int | None = None,
    rows_share: float = 1.0,
    survive: int = 0,
    max_storage: float = 1.0,
    dim: int | None = None,
    realisations: int | None = None,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Plan:
    """Compare schemes, K and r by the time to a number of draws, and recommend one option.

    Parameters
    ----------
    latency
        Time of one draw of one shard, or of a block of 64 points on it if the method is exact: a
        latency model, or its short form as `quorate.engines.latency.parse_latency` reads it, such
        as "pareto:0.1,1.2".
    slow, dead
        Workers that are slower or die, such as "2x10" and "1@2.5". With the short form of a
        latency; an object is wrapped in `Slowed` or `Dying` instead.
    run
        Folder of a run whose measured times are used, in place of a latency.
    method
        How draws are made: "merge" or "exact". It is that of the run; with a latency, by default a
        merge.
    workers
        Values of K. By default that of the run and its half, or 8.
    redundancies
        Values of r, by default 2, 3 and 4, and K where the run has a worker ten times as fast as
        usual. A scheme is tried with those that are at most K.
    schemes
        Names, which stand for the scheme's defaults with each r; or objects such as
        `Adaptive(redundancy=3, gap=5)`, which are tried as they are. By default all registered
        schemes, without those that only show a limit.
    draws, target_ess
        Global draws to get, by default those of the run, or 1000. Or effective draws, which take as
        many draws each as in the run; without a run, one.
    measured_at
        K for which the latency holds. By default that of the run, or the first of `workers`.
    rows_share
        Share of a draw's time that grows with the rows of a shard; the rest does not depend on K.
    survive
        How many workers, whichever they are, the recommended option must be able to lose.
    max_storage
        Largest share of the data that a worker may hold in the recommended option.
    dim
        d, for the number of floats sent and of passes. By default that of the run, or 1.
    realisations, seed
        Number of simulated runs of each option, 200 by default and 20 for exact runs; and the key
        of their randomness.
    progress
        Called after every K with the number of those done, and of all.
    """
    require(
        realisations is None or realisations >= 1,
        f"`realisations` must be at least 1, not {realisations}.",
    )
    require(method in (None, *METHODS), f"`method` must be 'exact' or 'merge', not {method!r}.")
    require(seed >= 0, f"`seed` must be 0 or more, not {seed}.")
    require((latency is None) != (run is None), "Give either `latency` or `run` to plan from.")
    require(
        isinstance(latency, str) or (slow is None and dead is None),
        "`slow` and `dead` go with the short form of `latency`. Leave them out: a run has its own "
        "slow and dead workers, and a latency model can be wrapped in Slowed or Dying.",
    )
    asked = _Asked(draws, target_ess, seed, method)
    if run is not None:
        basis = _by_run(Path(run), asked)
    else:
        assert latency is not None
        known_for = measured_at or (workers[0] if workers else _WORKERS)
        basis = _by_model(latency, slow, dead, known_for, dim or 1, asked)
    work, at = basis.work, measured_at or basis.work.n_workers
    tried = tuple(workers or basis.workers)
    if redundancies is None:
        usual = {*_REDUNDANCIES, *(tried if basis.is_uneven else ())}
        redundancies = sorted(r for r in usual if r <= max(tried))
    if schemes is None:
        schemes = [name for name in SCHEMES if name not in LIMITS]
    grid = Grid(tried, tuple(redundancies), tuple(schemes))
    n_runs = realisations or _REALISATIONS[basis.method]
    of_run = dim or basis.dim, n_runs, progress, basis.exact
    options = compared(grid, work, at, rows_share, *of_run)
    allowed = ranked(options, survive, max_storage)
    choice = allowed[0]
    return Plan(
        options=tuple(options),
        ranked=tuple(allowed),
        explanation=explained(basis.words, options, choice, work.n_draws, at),
        command=" ".join(
            [basis.begins, f"--method {basis.method}", *_flags(choice, work.n_draws, target_ess)]
        ),
        draws=work.n_draws,
    )


class _Asked(NamedTuple):
    """How many draws, or effective draws, to plan for, and by which method."""

    draws: int | None
    target_ess: float | None
    seed: int
    method: Method | None

    def n_draws(self, usual: int, history: History | None = None) -> int:
        draws, ess = usual if self.draws is None else self.draws, self.target_ess
        require(draws >= 1, f"`draws` must be at least 1, not {draws}.")
        require(ess is None or ess > 0, f"`target_ess` must be above 0, not {ess}.")
        return draws if ess is None else ceil(ess / _ess_per_draw(history))


def _ess_per_draw(history: History | None) -> float:
    """Effective draws that a draw of the run is worth; 1 without a run or where it cannot tell."""
    if history is None:
        return 1.0
    least = history.view.least_ess()
    return min(1.0, least / history.view.n_draws) if least > 0 else 1.0


class _Basis(NamedTuple):
    """What a plan starts from: times, the usual values of K, d, and a line that describes them.

    `exact` is what an exact run asks for; None for merges. `begins` is how the command begins that
    draws from the same posterior. `is_uneven` says that a worker is much faster than others.
    """

    work: Work
    workers: Sequence[int]
    dim: int
    words: str
    exact: ExactRun | None
    begins: str = _UNKNOWN
    is_uneven: bool = False

    @property
    def method(self) -> Method:
        return "merge" if self.exact is None else "exact"


def _by_run(folder: Path, asked: _Asked) -> _Basis:
    times, history = measured(folder)
    method, n_workers = history.settings.chosen_method, history.n_workers
    require(
        asked.method in (None, method),
        f"The run in {folder} was made by method={method!r}, and its times say nothing of "
        f"{asked.method!r}. Leave out `method`, or plan from another run.",
    )
    n_draws = asked.n_draws(history.settings.draws, history)
    work = Work(
        times,
        n_workers,
        n_draws,
        times.block,
        warm_up=times.warm_up,
        start=times.start,
        seed=asked.seed,
    )
    return _Basis(
        work=work,
        workers=sorted({-(-n_workers // 2), n_workers}),
        dim=history.dim,
        words=seen(times, n_workers),
        exact=None if method == "merge" else ExactRun.of_history(history, times, n_draws),
        begins=history.configuration.get("made_by", {}).get(COMMAND, _UNKNOWN),
        is_uneven=bool(_OUTRUNS * times.levels.min() <= np.median(times.levels)),
    )


def _by_model(
    latency: str | LatencyModel,
    slow: str | None,
    dead: str | None,
    n_workers: int,
    dim: int,
    asked: _Asked,
) -> _Basis:
    model = parse_cluster(latency, slow, dead) if isinstance(latency, str) else latency
    n_draws, is_exact = asked.n_draws(_DRAWS), asked.method == "exact"
    work = Work(model, n_workers, n_draws, seed=asked.seed)
    words = assumed(latency, slow, dead, n_workers, is_exact=is_exact)
    exact = ExactRun.of_gaussian(dim, n_draws) if is_exact else None
    return _Basis(work, [n_workers], dim, words, exact)


def _flags(choice: Option, n_draws: int, target_ess: float | None) -> list[str]:
    """The options of `quorate sample` that say how to draw."""
    has_redundancy = REDUNDANCY in option_names(type(choice.chosen))
    flags = [
        f"--workers {choice.workers}",
        f"--redundancy {choice.redundancy}" if has_redundancy else "",
        f"--scheme {choice.scheme}",
        *(_flag(name, value) for name, value in choice.settings.items()),
        f"--draws {n_draws}",
        f"--target-ess {target_ess:g}" if target_ess is not None else "",
    ]
    return list(filter(None, flags))


def _flag(name: str, value: object) -> str:
    """The option of `quorate sample` that sets an option of a scheme."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"
