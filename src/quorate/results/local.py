"""Local parameters of a result: `result.local`. Workers compute them when they are asked for."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray, Progress
from quorate.errors import BadInputError, QuorateError, QuorateWarning, SaveError, require
from quorate.models.groups.levels import Level, Moments, levels_of
from quorate.models.protocol import Model
from quorate.results import saved_local
from quorate.results.group_names import codes_of
from quorate.results.level_summary import LevelSummary
from quorate.results.local_tree import joint_tree
from quorate.results.saved_local import LocalSummaries, digest_of
from quorate.results.some_draws import require_whole, scattered, spaced

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

DEFAULT_POINTS = 200  # draws of the global parameters that summaries are made of, or more
INTERVAL = 0.94
_AXES = (("group", "parameter"), ("inner", "inner_parameter"))  # of the levels
_FEWEST_POINTS = 20  # which tell the spread between draws to within about a sixth


class LocalWork(Protocol):
    """What asks the workers of a run for local parameters: `quorate.run.local.LocalRun`."""

    def labels(self) -> list[NDArray[Any]]:
        """Labels of the groups of each level; the place of a label is the code of its group."""

    @property
    def affordable(self) -> int:
        """Points at which moments take about half a second."""

    def n_groups(self) -> list[int]:
        """Number of groups of each level, without a look at any row."""

    def columns(self) -> list[NDArray[Any]]:
        """Labels in each column that tells groups apart; for an inner level, of all its pairs."""

    def moments(self, points: Array, numbers: IntArray, **options: Any) -> list[Moments]:
        """Moments of the parameters of all groups of each level, summed over the points."""

    def draws(
        self, points: Array, numbers: IntArray, groups: IntArray, **options: Any
    ) -> list[tuple[IntArray, Array]]:
        """Codes of groups and draws of their parameters, level by level, one for each point."""


@dataclass(frozen=True, eq=False)
class LocalDraws:
    """Draws of local parameters, joint with draws of the global ones.

    Parameters
    ----------
    numbers
        Which draws of the run they go with, (n,): rows of `Result.laid_out`.
    points
        These draws, unconstrained, (n, dim).
    levels
        For each level its labels of groups (m,) and draws (n, m, q).
    """

    numbers: IntArray
    points: Array
    levels: tuple[tuple[NDArray[Any], Array], ...]


@dataclass(frozen=True, eq=False, repr=False)
class LocalParameters:
    """The parameters of the groups of a run: `Result.local`.

    Workers compute them from the rows of the groups and draws of the global parameters.

    Parameters
    ----------
    model
        The model of the run.
    levels
        Its levels of groups.
    points
        Draws of the global parameters, unconstrained, (n_draws, dim).
    laid_out, rows
        `Result.laid_out`, when it is asked for, and `Result.chain_rows`.
    folder
        Folder of the run.
    work
        What asks the workers.
    """

    model: Model
    levels: tuple[Level, ...]
    points: Array
    laid_out: Callable[[], Array]
    rows: IntArray
    folder: Path
    work: LocalWork

    @classmethod
    def of(
        cls,
        model: Model,
        points: Array,
        laid_out: Callable[[], Array],
        rows: IntArray,
        folder: Path,
        work: LocalWork | None,
    ) -> "LocalParameters":
        """The local parameters of a model, if it has any, and a run whose workers can be asked."""
        levels = levels_of(model)
        require(
            bool(levels),
            "The model has no groups, so it has no local parameters. Name groups in the model, as "
            "by `(1 | county)` in a formula.",
        )
        if work is None:
            raise BadInputError("This result is of no run, so there are no workers to ask.")
        return cls(model, levels, points, laid_out, rows, folder, work)

    def __repr__(self) -> str:
        return f"LocalParameters: {self._told()}"

    def summary(
        self,
        level: str | None = None,
        *,
        interval: float = INTERVAL,
        points: int | None = None,
        engine: Any = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> "pd.DataFrame":
        """Mean, sd and equal-tailed interval of every parameter of every group.

        They are saved in the run's folder: a second call reads them there, and so does the report.
        Those of a regression that take about a second are computed in this process; give `engine`
        or `workers` to have workers started for them.

        Parameters
        ----------
        level
            Name of the level, if the model has two; the outer one by default.
        interval
            Probability of the interval.
        points
            Number of draws of the global parameters to average over, from all chains; at least 20.
            By default as many as take about half a second, and at least 200.
        engine
            As for `sample`; that of the run by default.
        workers
            Number of workers to ask; as many as the run had by default.
        progress
            A function to call with the pieces of work that are done, and their number.
        """
        asked = {"engine": engine, "workers": workers, "progress": progress}
        return self.level_summary(level, points, **asked).frame(interval)

    def dataset(
        self,
        level: str | None = None,
        *,
        interval: float = INTERVAL,
        points: int | None = None,
        engine: Any = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> "xr.Dataset":
        """What `summary` tells, with the same parameters, as arrays with coordinates."""
        asked = {"engine": engine, "workers": workers, "progress": progress}
        return self.level_summary(level, points, **asked).dataset(interval)

    def draws(
        self,
        groups: Iterable[object],
        n: int | None = None,
        *,
        engine: Any = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> "xr.Dataset":
        """Draws of the parameters of some groups, each joint with a draw of the global parameters.

        They are in ArviZ's form, with the chains and draws of `Result.posterior`. The variable
        `r_tailnum` has the parameters of the groups of `tailnum`. Where levels nest, the groups
        within those asked for have a variable of their own. The draws of a group do not depend on
        the worker that computes them, or on the other groups. They are not saved.

        Parameters
        ----------
        groups
            Labels of groups of the outer level, or rows of the index of `summary()`. Each comes
            once, in the order of `labels()`, in whatever order they are asked for.
        n
            Number of draws, evenly spaced, at least: every chain gives as many. All by default.
        engine, workers, progress
            As for `summary`.
        """
        import xarray as xr

        asked = {"engine": engine, "workers": workers, "progress": progress}
        found = self.joint(groups, n, **asked)
        steps = self.steps(n)
        n_chains = len(found.numbers) // len(steps)
        coords: dict[str, Any] = {"chain": np.arange(n_chains), "draw": steps}
        variables = {}
        for level, axes, (labels, draws) in zip(self.levels, _AXES, found.levels, strict=False):
            name = f"r_{level.name}".replace("/", ".")  # a slash would make it a group
            variables[name] = (("chain", "draw", *axes), _in_chains(draws, n_chains))
            coords |= dict(zip(axes, (labels, list(level.names)), strict=True))
        return xr.Dataset(variables, coords, {"inference_library": "quorate"})

    def posterior(
        self,
        n: int | None = None,
        *,
        engine: Any = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> "xr.DataTree":
        """Draws of the variables of a PyMC or NumPyro program, those of all groups included.

        They have the names, dims and coords of the program, as if it had been sampled whole:
        `pm.sample_posterior_predictive` and NumPyro's `Predictive` take them. A group without rows
        has NaN. Parameters are those of `draws`.
        """
        return joint_tree(self, n, {"engine": engine, "workers": workers, "progress": progress})

    def labels(self, level: int = 0) -> NDArray[Any]:
        """Labels of the groups of a level, the outer one by default."""
        return self.work.labels()[level]

    def columns(self) -> list[NDArray[Any]]:
        """Labels in each column that tells groups apart; for an inner level, of all its pairs."""
        return self.work.columns()

    def joint(self, groups: Iterable[object], n: int | None = None, **asked: Any) -> LocalDraws:
        """Draws of the parameters of some groups as arrays; parameters are those of `draws`."""
        labels = self.work.labels()
        codes = codes_of(labels[0], groups, self.levels[0].name)
        numbers = self.rows[:, self.steps(n)].ravel()
        points = self.laid_out()[numbers]
        found = self.work.draws(points, numbers, codes, **asked)
        return LocalDraws(
            numbers,
            points,
            tuple((named[at], draws) for named, (at, draws) in zip(labels, found, strict=True)),
        )

    def level_summary(
        self, level: str | None = None, points: int | None = None, **asked: Any
    ) -> LevelSummary:
        """The summary of a level as arrays; parameters are those of `summary`."""
        place = self._place(level)
        return self._summaries(self.n_averaged(points), **asked)[place]

    def n_averaged(self, points: int | None) -> int:
        """Number of draws that a summary averages over, if `points` are asked for."""
        if points is None:
            return min(max(DEFAULT_POINTS, self.work.affordable), len(self.points))
        require_whole(points)
        require(
            points >= _FEWEST_POINTS,
            f"points must be at least {_FEWEST_POINTS}, not {points}. Sds and intervals take in "
            "how the parameters of a group differ from draw to draw, and fewer do not tell.",
        )
        return min(points, len(self.points))

    def _summaries(self, n_points: int, **asked: Any) -> tuple[LevelSummary, ...]:
        """Summaries of all levels: from the run's folder, or of workers, and then saved there."""
        numbers = scattered(len(self.points), n_points)
        points = self.points[numbers]
        digest = digest_of(points)
        known = saved_local.load(self.folder)
        if known is not None and known.digest == digest:
            return known.levels
        moments = self.work.moments(points, numbers, **asked)
        found = tuple(
            LevelSummary.of(level, labels[of.groups], of, len(points))
            for level, labels, of in zip(self.levels, self.work.labels(), moments, strict=True)
        )
        _keep(LocalSummaries(found, digest, n_points), self.folder)
        return found

    def _told(self) -> str:
        try:
            counts = [f"{n:,} groups" for n in self.work.n_groups()]
        except QuorateError:  # its folder is gone, or damaged
            counts = ["groups"] * len(self.levels)
        both = zip(counts, self.levels, strict=True)
        return ", ".join(f"{n} of {level.name} ({', '.join(level.names)})" for n, level in both)

    def _place(self, level: str | None) -> int:
        names = [one.name for one in self.levels]
        require(
            level is None or level in names,
            f"No level named {level!r}. The levels are {', '.join(names)}.",
        )
        return 0 if level is None else names.index(level)

    def steps(self, n: int | None) -> IntArray:
        """Places in chains, evenly spaced: about `n` draws of all chains together."""
        n_chains, n_steps = self.rows.shape
        if n is not None:
            require_whole(n)
        return spaced(n_steps, max(n_steps, 1) if n is None else -(-n // n_chains))


def _keep(summaries: LocalSummaries, folder: Path) -> None:
    """Save summaries; warn if that fails, since they can be computed again."""
    try:
        summaries.save(folder)
    except SaveError as error:
        warnings.warn(
            f"{error.path} cannot be written ({error.why}): the summaries are not kept for later "
            "calls and for the report.",
            QuorateWarning,
            stacklevel=2,
        )


def _in_chains(draws: Array, n_chains: int) -> Array:
    """Draws of one chain after the other, by chain: (n, ...) to (n_chains, n / n_chains, ...)."""
    return draws.reshape(n_chains, -1, *draws.shape[1:])
