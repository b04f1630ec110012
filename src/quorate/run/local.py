"""Local parameters after a run: what is asked of its workers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.data.codes import LEVELS
from quorate.data.label_text import joined, texts_of
from quorate.data.placed import Shards, open_shards
from quorate.data.placed_groups import groups_held
from quorate.data.write import ShardSet
from quorate.engines.options import Processes
from quorate.errors import require
from quorate.models.groups.levels import Level, Moments, levels_of
from quorate.models.groups.regressions.regression import GroupedRegression
from quorate.models.protocol import Model
from quorate.protocol.local import DrawsInOrder, LevelDraws, LocalQuestion, MomentsOfShards
from quorate.results.local import LocalParameters
from quorate.results.tree import chain_rows, laid_out
from quorate.run import kept_model
from quorate.run.after import AfterRun
from quorate.run.configuration import SHARDS
from quorate.run.history import History

_NODES = 25  # times that moments take longer with a coefficient more, roughly
_IN_A_SECOND = 1e8  # rows times points, with one coefficient for each group
_PER_POINT = 1000  # rows that take as long as all else about a point
_PROGRAMS = 50.0  # times that moments of programs take longer, roughly


@dataclass(frozen=True, eq=False)
class LocalRun:
    """A run whose workers are asked for local parameters; see `quorate.run.after.AfterRun`."""

    folder: Path
    model: Model
    excluded: tuple[int, ...] = ()

    def labels(self) -> list[NDArray[Any]]:
        """Labels of the groups of each level; the place of a label is the code of its group."""
        names = LEVELS[: len(self._levels)]
        return [labels_of_level(self._run.shards, name, self.model) for name in names]

    @property
    def affordable(self) -> int:
        """Points at which moments take about half a second."""
        work = (self._n_rows + _PER_POINT) * self._times
        is_ours = isinstance(self.model, GroupedRegression)
        return int(0.5 * _IN_A_SECOND / (work if is_ours else _PROGRAMS * work))

    def n_groups(self) -> list[int]:
        """Number of groups of each level, without a look at any row."""
        shards = open_shards(self.folder / SHARDS)
        return [len(shards.labels(name)) for name in LEVELS[: len(self._levels)]]

    def columns(self) -> list[NDArray[Any]]:
        """Labels in each column that tells groups apart; for an inner level, of all its pairs."""
        names = LEVELS[: len(self._levels)]
        return [columns_of_level(self._run.shards, name, self.model)[-1] for name in names]

    def moments(self, points: Array, numbers: IntArray, **options: Any) -> list[Moments]:
        """Moments of the parameters of all groups of each level, summed over the points."""
        question = LocalQuestion(points, numbers, self._widths, self._run.included)
        answers = MomentsOfShards(question)
        asked = {name: option for name, option in options.items() if option is not None}
        if set(asked) <= {"progress"} and self._takes_a_second(len(points)):
            self._run.answer_here(question, answers, **asked)
        else:
            self._run.ask(question, answers, **options)
        return answers.moments()

    def draws(
        self, points: Array, numbers: IntArray, groups: IntArray, **options: Any
    ) -> list[LevelDraws]:
        """Codes of groups and draws of their parameters, level by level, one for each point."""
        held = self._held(groups)
        question = LocalQuestion(points, numbers, self._widths, tuple(held), held)
        answers = DrawsInOrder(question)
        self._run.ask(question, answers, **options)
        return answers.draws()

    @cached_property
    def _run(self) -> AfterRun:
        return AfterRun(self.folder, self.model, self.excluded)

    def _takes_a_second(self, n_points: int) -> bool:
        """Whether moments take about a second here, no longer than it takes to start workers.

        Only quorate's own regressions are computed here: code of users stays with workers, and so
        does work for the cores of other machines.
        """
        run = self._run
        is_ours = isinstance(self.model, GroupedRegression) and isinstance(run.shards, ShardSet)
        if not is_ours or not isinstance(run.settings.engine_options, Processes):
            return False
        return (self._n_rows + _PER_POINT) * n_points * self._times <= _IN_A_SECOND

    @property
    def _n_rows(self) -> int:
        return sum(n for shard, n in enumerate(self._run.n_rows) if shard not in self.excluded)

    @property
    def _times(self) -> float:
        """Times that a row takes longer than one whose group has one coefficient."""
        return float(_NODES) ** (sum(self._widths) - 1)

    @property
    def _levels(self) -> tuple[Level, ...]:
        return levels_of(self.model)

    @property
    def _widths(self) -> tuple[int, ...]:
        return tuple(len(level.names) for level in self._levels)

    def _held(self, groups: IntArray) -> Mapping[int, IntArray]:
        """Which of the groups each shard holds; shards with none are left out."""
        held, missing = {}, groups
        for shard in self._run.included:
            there = np.isin(groups, groups_held(self._run.shards, shard), kind="table")
            if there.any():
                held[shard] = groups[there]
                missing = np.setdiff1d(missing, groups[there])
        require(
            not missing.size,
            f"No rows of groups with codes {', '.join(map(str, missing[:5]))} have a part in the "
            "draws. Ask for other groups.",
        )
        return held


def opened(folder: Path) -> LocalParameters:
    """Local parameters of the run in `folder`.

    The model that is stored with the run is loaded, which executes its code.
    """
    with History(folder) as history:
        history.read()
        model, _ = kept_model.opened(folder, history.configuration, None)
        draws, view = history.global_draws(), history.view
        of_shards = view.weights(), view.shard_draws()
        rows = chain_rows(len(draws), history.scheme.received.n_chains)
        run = LocalRun(folder, model, history.excluded)
        in_chains = partial(laid_out, draws, *of_shards)
        return LocalParameters.of(model, draws, in_chains, rows, folder, run)


def labels_of_level(shards: Shards, name: str, model: Model) -> NDArray[Any]:
    """Labels by code. Pairs of values, of groups within groups, are text: `WA:King`."""
    columns = columns_of_level(shards, name, model)
    return columns[0] if len(columns) == 1 else joined(*map(texts_of, columns))


def columns_of_level(shards: Shards, name: str, model: Model) -> list[NDArray[Any]]:
    """Labels by code, in one column, or in two for groups within groups.

    The groups of a program are numbers in the data. They get the names that the program has for
    them, if it has any.
    """
    labels = shards.labels(name)
    levels: tuple[NDArray[Any] | None, ...] = getattr(model, "group_names", (None, None))
    if labels.dtype.names is None:
        return [_named(labels, levels[0])]
    columns = [labels[column] for column in labels.dtype.names]
    return [_named(of, names) for of, names in zip(columns, levels, strict=True)]


def _named(labels: NDArray[Any], names: NDArray[Any] | None) -> NDArray[Any]:
    return labels if names is None else np.asarray(names[labels])
