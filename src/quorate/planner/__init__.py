"""Which K, r and scheme? `plan` compares them in virtual time, by measured or assumed times."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple

from quorate._types import Progress
from quorate.engines.latency import parse_cluster
from quorate.errors import require
from quorate.planner.fast_times import Work
from quorate.planner.measured import measured
from quorate.planner.options import Grid, Option, best, compared, front
from quorate.planner.words import assumed, explained, seen
from quorate.protocol.schemes import SCHEMES
from quorate.results.result import load_summary
from quorate.run.history import History

_DRAWS = 1000
_WORKERS = 8
_REDUNDANCIES = (2, 3, 4)
_FRONT = ("p95", "workers", "storage")


@dataclass(frozen=True)
class Plan:
    """All options, the one advised, and why.

    Parameters
    ----------
    options
        Every scheme with every K and r.
    recommended
        One of them.
    explanation
        Five lines of words.
    command
        A line to paste, with the model and the data to be filled in.
    draws
        That were planned for.
    """

    options: tuple[Option, ...]
    recommended: Option
    explanation: tuple[str, ...]
    command: str
    draws: int

    @property
    def front(self) -> list[Option]:
        """Options that no other beats in p95, workers or storage without being worse in another."""
        return front(self.options, _FRONT)

    def save_picture(self, path: str | Path) -> None:
        """Draw time against worker-hours and storage; the ending of `path` says in which format."""
        from quorate.planner.picture import save_picture  # matplotlib is slow to import

        save_picture(self.options, self.recommended, self.draws, Path(path))

    def as_json(self) -> dict[str, object]:
        """All of it, with None for infinity."""
        return {
            "draws": self.draws,
            "options": [option.as_json() for option in self.options],
            "recommended": self.recommended.as_json(),
            "explanation": list(self.explanation),
            "command": self.command,
        }


def plan(
    latency: str | None = None,
    *,
    slow: str | None = None,
    dead: str | None = None,
    run: str | Path | None = None,
    workers: Sequence[int] | None = None,
    redundancies: Sequence[int] | None = None,
    schemes: Sequence[str] = SCHEMES,
    draws: int | None = None,
    target_ess: float | None = None,
    measured_at: int | None = None,
    rows_share: float = 1.0,
    survive: int = 0,
    max_storage: float = 1.0,
    dim: int | None = None,
    realisations: int = 200,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Plan:
    """Compare schemes, K and r by the time to a number of draws, and advise one of them.

    Parameters
    ----------
    latency, slow, dead
        Time of one draw of one shard, as `quorate.engines.latency.parse_latency` reads it, and
        workers that
        are slow or die, as `2x10` and `1@2.5`.
    run
        In place of these: the folder of a run, whose measured times are used.
    workers
        Values of K. By default that of the run and its half, or 8.
    redundancies, schemes
        Values of r, by default 2, 3 and 4 as far as there are workers; and some of
        `quorate.protocol.schemes.SCHEMES`. CMC has r = 1.
    draws, target_ess
        Global draws to get, by default those of the run, or 1000; or effective draws, which
        need as many more draws as the run needed.
    measured_at
        K with which the latency holds; that of the run, or the first of `workers`.
    rows_share
        Share of a draw's time that goes with the rows of a shard; the rest does not depend on K.
    survive
        How many workers, whichever they are, the advised option must be able to lose.
    max_storage
        Largest share of the data that a worker may hold in the advised option.
    dim
        d, for floats that are sent; that of the run, or 1.
    realisations, seed
        How many runs of each option, and what their randomness is keyed by.
    progress
        Called after every K with the number of those done, and of all.
    """
    require(realisations >= 1, "realisations", realisations, "ask for at least one")
    require(seed >= 0, "seed", seed, "a seed is 0 or more")
    require((latency is None) != (run is None), "latency", latency, "give either that or a run")
    without = latency is not None or (slow is None and dead is None)
    require(without, "slow, dead", (slow, dead), "a run has its own: give a latency with them")
    unknown = sorted(set(schemes) - set(SCHEMES))
    require(not unknown, "schemes", unknown, f"choose of {', '.join(SCHEMES)}")
    asked = _Asked(draws, target_ess, seed)
    if run is not None:
        basis = _by_run(Path(run), asked)
    else:
        assert latency is not None
        known_for = measured_at or (workers[0] if workers else _WORKERS)
        basis = _by_model(latency, slow, dead, known_for, asked)
    work, at = basis.work, measured_at or basis.work.n_workers
    tried = tuple(workers or basis.workers)
    if redundancies is None:
        redundancies = [r for r in _REDUNDANCIES if r <= max(tried)]
    grid = Grid(tried, tuple(redundancies), tuple(schemes))
    options = compared(grid, work, at, rows_share, dim or basis.dim, realisations, progress)
    choice = best(options, survive, max_storage)
    return Plan(
        options=tuple(options),
        recommended=choice,
        explanation=explained(basis.words, options, choice, work.n_draws, at),
        command=_command(choice, work.n_draws, target_ess),
        draws=work.n_draws,
    )


class _Asked(NamedTuple):
    """How many draws, or effective ones."""

    draws: int | None
    target_ess: float | None
    seed: int

    def n_draws(self, usual: int, ess_per_draw: float) -> int:
        draws, ess = usual if self.draws is None else self.draws, self.target_ess
        require(draws >= 1, "draws", draws, "ask for at least one")
        require(ess is None or ess > 0, "target_ess", ess, "it must be above 0")
        return draws if ess is None else ceil(ess / ess_per_draw)


class _Basis(NamedTuple):
    """What a plan is made from: times, usual values of K, d, and how to say it."""

    work: Work
    workers: Sequence[int]
    dim: int
    words: str


def _by_run(folder: Path, asked: _Asked) -> _Basis:
    taken, history = measured(folder)
    n_workers = taken.n_workers
    work = Work(
        taken,
        n_workers,
        asked.n_draws(history.settings.draws, _ess_per_draw(history, folder)),
        taken.block,
        warm_up=taken.warm_up,
        start=taken.start,
        seed=asked.seed,
    )
    return _Basis(work, sorted({-(-n_workers // 2), n_workers}), history.dim, seen(taken))


def _by_model(
    latency: str, slow: str | None, dead: str | None, n_workers: int, asked: _Asked
) -> _Basis:
    model = parse_cluster(latency, slow, dead)
    work = Work(model, n_workers, asked.n_draws(_DRAWS, 1.0), seed=asked.seed)
    return _Basis(work, [n_workers], 1, assumed(latency, slow, dead, n_workers))


def _ess_per_draw(history: History, folder: Path) -> float:
    """By the parameter that has the fewest effective draws; 1 if the run has no summary."""
    if not (folder / "summary.json").is_file() or not history.n_global:
        return 1.0
    fewest = min((row["ess"] for row in load_summary(folder).values()), default=0.0)
    return min(1.0, fewest / history.n_global) or 1.0


def _command(choice: Option, n_draws: int, target_ess: float | None) -> str:
    redundancy = f" --redundancy {choice.redundancy}" if choice.scheme != "cmc" else ""
    ess = f" --target-ess {target_ess:g}" if target_ess is not None else ""
    return (
        f"quorate sample MODEL.py:NAME DATA --workers {choice.workers}{redundancy} "
        f"--scheme {choice.scheme} --draws {n_draws}{ess}"
    )
