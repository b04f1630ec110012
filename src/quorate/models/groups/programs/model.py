"""Models with local parameters from programs: any log joint density of groups and their rows."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.models.checks import settled, settled_gradient
from quorate.models.groups.levels import Level, Moments, Uniforms
from quorate.models.groups.local import independence_draws, numbers_needed
from quorate.models.groups.programs.anchors import anchored, examined_mode, unanchored, with_effort
from quorate.models.groups.programs.at_point import AtPoint, Program, RowProgram
from quorate.models.groups.programs.backends import Backend, OfPoint
from quorate.models.groups.programs.integral import Arguments
from quorate.models.groups.programs.nested import Anchors, OuterProgram
from quorate.models.groups.programs.single_rows import ProgramRows
from quorate.models.groups.programs.stages import Ready, Stage
from quorate.models.memo import PerShard
from quorate.models.programs.jaxed_many import points_at_once, rows_in
from quorate.models.protocol import Shard
from quorate.models.rows import Ability

_NUMBERS = 1 << 24  # uniform numbers held at a time, for draws of local parameters
_FEW_GROUPS, _FEW_ROWS = 300, 10_000  # that may stand for all groups of a shard
_STEP = 1e-5  # of finite differences of the integrated likelihood


@dataclass(frozen=True)
class ProgramModel:
    """A model without gradients, whose local parameters are integrated out by quadrature."""

    program: Program
    start: tuple[float, ...]
    backend: Backend = field(compare=False)

    rows_at_once = 20_000  # of a piece of work after a run: each is compiled anew

    @property
    def dim(self) -> int:
        return len(self.start)

    @property
    def names(self) -> tuple[str, ...]:
        return self.program.names

    @property
    def levels(self) -> tuple[Level, ...]:
        within = self.program.within
        return (self.program.level,) if within is None else (self.program.level, within.level)

    @property
    def group_columns(self) -> str:
        outer, *inner = (level.name for level in self.levels)
        return "/".join([outer, *(name.removeprefix(f"{outer}:") for name in inner)])

    def initial(self) -> Array:
        return np.array(self.start)

    def constrain(self, draws: Array) -> dict[str, Array]:
        return self.program.constrain(draws)

    def log_prior(self, x: Array) -> float:
        value = self.backend.one(self.at.prior, x, None)
        return settled("log_prior", value, x, self.names)

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        value = self.backend.one(self.at.value, x, self._given(shard))
        return settled("log_likelihood", value, x, self.names)

    def log_prior_many(self, points: Array) -> Array:
        return np.asarray(self.backend.each(self.at.prior, points, None, 1))

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        given = self._given(shard)
        return np.asarray(self.backend.each(self.at.value, points, given, rows_in(shard)))

    def local_moments(self, points: Array, shard: Shard) -> dict[str, Moments]:
        given, centres = self._given(shard), self._ready(shard).centres
        stages = self._stages(given, self._ready(shard).codes)
        found = {}
        for stage, about, function in zip(
            stages, centres, (self.at.moments, self.at.moments_within), strict=False
        ):
            sums = self._summed(function, points, (given, about), rows_in(shard))
            order = np.argsort(stage.codes)
            found[stage.level.name] = Moments(stage.codes[order], about[order], sums[:, order])
        return found

    def _summed(
        self, function: OfPoint, points: Array, arguments: tuple[Arguments, Array], n_rows: int
    ) -> Array:
        """Moments of a level, summed over points, (3, m, r)."""
        centres = arguments[1]
        at_once = max(16, points_at_once(3 * centres.size))
        sums = np.zeros((3, *centres.shape))
        for first in range(0, len(points), at_once):
            part = points[first : first + at_once]
            each = self.backend.each(function, part, arguments, n_rows)
            sums += np.asarray(each).sum(axis=0).transpose(1, 0, 2)
        return sums

    def local_draws(
        self, points: Array, shard: Shard, groups: IntArray, uniforms: Uniforms
    ) -> dict[str, tuple[IntArray, Array]]:
        ready = self._ready(shard)
        asked = np.unique(np.asarray(groups, dtype=np.int64))
        missing = np.setdiff1d(asked, ready.codes)
        require(len(missing) == 0, f"The shard has no groups with codes {missing[:5].tolist()}.")
        n_numbers = max(1, len(points) * numbers_needed(self.program.local_dim))
        n_parts = max(1, min(len(asked), -(-len(asked) * n_numbers // _NUMBERS)))
        parts = [
            self._draws(points, shard, part, uniforms) for part in np.array_split(asked, n_parts)
        ]
        by_level = zip(self.levels, zip(*parts, strict=True), strict=True)
        return {
            level.name: (np.concatenate([codes for codes, _ in of_level]),
                         np.concatenate([draws for _, draws in of_level], axis=1))
            for level, of_level in by_level
        }  # fmt: skip

    def _draws(
        self, points: Array, shard: Shard, groups: IntArray, uniforms: Uniforms
    ) -> list[tuple[IntArray, Array]]:
        """Codes and draws of some groups, level by level, from the rows of these groups alone."""
        if len(groups) == 0 or len(points) == 0:
            return [
                (groups, np.zeros((len(points), len(groups), len(level.names))))
                for level in self.levels
            ]
        given, n_rows = self._of_groups(shard, groups)
        found = []
        for stage in self._stages(given, groups):
            z = self._local_points(stage, points, n_rows, uniforms)
            points = np.concatenate([points, z.reshape(len(points), -1)], axis=1)
            each = self.backend.each(stage.at.natural, points, stage.given, n_rows)
            found.append((stage.codes, np.asarray(each)))
        return found

    def _stages(self, given: Arguments, codes: IntArray) -> list[Stage]:
        """The levels of groups with these codes, the outer one first."""
        stages = [Stage(self.at, self.levels[0], given, codes)]
        if self.program.within is not None:
            inner: Arguments = given.inputs
            stages.append(Stage(self.at_inner, self.levels[1], inner, inner.inputs.codes))
        return stages

    def _local_points(self, stage: Stage, points: Array, n_rows: int, uniforms: Uniforms) -> Array:
        """Draws of the unconstrained parameters of the groups of one level, (n, m, q)."""
        at, given = stage.at, stage.given
        mean, factor = self._rough_normal(stage, points, n_rows)
        numbers = uniforms(stage.level.name, stage.codes, numbers_needed(mean.shape[2]))

        def joint(z: Array) -> Array:
            both = np.concatenate([points, z.reshape(len(points), -1)], axis=1)
            return np.asarray(self.backend.each(at.joint, both, given, n_rows))

        return independence_draws(joint, mean, factor, numbers)

    def lacks(self, ability: Ability) -> str:
        return self.program.lacks(ability)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        return self.row_program.prior_draws(n, rng)

    def group_log_likelihoods(self, points: Array, shard: Shard, groups: IntArray) -> Array:
        given, n_rows = self._of_groups(shard, groups)
        return np.asarray(self.backend.each(self.at.of_groups, points, given, n_rows))

    def rows_of_groups(
        self,
        points: Array,
        shard: Shard,
        groups: IntArray,
        uniforms: Uniforms,
        of_prior: bool = False,
    ) -> tuple[IntArray, ProgramRows]:
        places = np.flatnonzero(np.isin(self.program.row_codes(shard), groups))
        program, some = self.row_program, {name: at[places] for name, at in shard.items()}
        in_order = places[program.row_order(some)]
        if of_prior:
            inputs, _ = program.prepared(some)
            return in_order, ProgramRows(self, self.at, points, None, inputs, len(places))
        given, n_rows = self._of_groups(shard, groups)
        for stage in self._stages(given, groups):
            around, z = points, self._local_points(stage, points, n_rows, uniforms)
            points = np.concatenate([points, z.reshape(len(points), -1)], axis=1)
        return in_order, ProgramRows(
            self, stage.at, around, z, stage.given.inputs, n_rows, stage.given
        )

    @property
    def row_program(self) -> RowProgram:
        """The program of the level that has no groups within its groups."""
        return self.program.within or cast(RowProgram, self.program)

    def _of_groups(self, shard: Shard, groups: IntArray) -> tuple[Arguments, int]:
        """Arguments for some of the groups of a shard, and their number of rows."""
        given, codes = self._given(shard), self._ready(shard).codes
        if len(groups) == len(codes):
            return given, len(self.program.row_codes(shard))
        return self._part(shard, given, codes, groups)

    def _part(
        self, shard: Shard, given: Arguments, codes: IntArray, groups: IntArray
    ) -> tuple[Arguments, int]:
        of_groups = np.isin(self.program.row_codes(shard), groups)
        rows = {name: array[of_groups] for name, array in shard.items()}
        places = np.searchsorted(codes, groups)
        if isinstance(self.program, OuterProgram):
            inputs: Any = self.program.of_part(given.inputs, rows, places)
        else:
            inputs, _ = self.program.prepared(rows)
        anchors = np.asarray(given.anchors)[places]
        spreads = np.asarray(given.spreads)[:, :, places]
        some = given._replace(inputs=inputs, anchors=anchors, spreads=spreads)
        return some, int(of_groups.sum())

    def _rough_normal(self, stage: Stage, points: Array, n_rows: int) -> tuple[Array, Array]:
        """Means (n, m, q) of z, and factors (n, m, q, q) of its covariances, by quadrature."""
        sums = self.backend.each(stage.at.spread, points, stage.given, n_rows)
        offsets, dim = np.asarray(sums), stage.given.anchors.shape[1]
        mean, products = offsets[..., :dim], offsets[..., dim:]
        products = products.reshape(*products.shape[:-1], dim, dim)
        cov = products - mean[..., :, None] * mean[..., None, :]
        scale = np.sqrt(np.maximum(np.einsum("...ii->...i", cov), 1e-300))
        correlation = cov / (scale[..., :, None] * scale[..., None, :]) + 1e-9 * np.eye(dim)
        sound = np.isfinite(correlation).all(axis=(-2, -1), keepdims=True)
        factor = np.linalg.cholesky(np.where(sound, correlation, np.eye(dim)))
        return np.asarray(stage.given.anchors) + mean, scale[..., :, None] * factor

    def _given(self, shard: Shard) -> Arguments:
        ready = self._ready(shard)
        require(not ready.refused, ready.refused)
        return ready.given

    @cached_property
    def _ready(self) -> PerShard[Ready]:
        return PerShard(self._make_ready)

    def _make_ready(self, shard: Shard) -> Ready:
        inputs, codes = self.program.prepared(shard)
        given = unanchored(inputs, len(codes), self.program.local_dim)
        step = min(len(codes) // _FEW_GROUPS, rows_in(shard) // _FEW_ROWS)
        some, times = given, 1.0
        if step > 1:
            some, times = self._part(shard, given, codes, codes[::step])[0], float(step)
        try:
            with np.errstate(all="ignore"):  # a search may pass through points of density 0
                x, effort = examined_mode(_ShardPosterior(self, times), some, self.initial())
        except BadInputError as error:  # remembered: the search is long, and would fail again
            return Ready(given, codes, (), str(error))
        given = with_effort(anchored(_ShardPosterior(self), x, given), effort)
        centres = []
        for stage in self._stages(given, codes):
            x = np.concatenate([x, np.ravel(stage.given.anchors)])
            found = np.asarray(self.backend.one(stage.at.natural, x, stage.given))
            centres.append(np.where(np.isfinite(found), found, 0.0))
        return Ready(given, codes, tuple(centres))

    @cached_property
    def at(self) -> AtPoint:
        """The functions of one point that backends evaluate."""
        return AtPoint(self.program)

    @cached_property
    def at_inner(self) -> AtPoint:
        """Functions of one point for inner groups; points end with parameters of outer groups."""
        return AtPoint(self.row_program)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("program", "start", "backend")}


@dataclass(frozen=True)
class JaxProgramModel(ProgramModel):
    """A model with gradients, whose local parameters are integrated out by quadrature."""

    is_compiled = True

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        return self._pair("log_prior", x, self.backend.one(self.at.prior_and_gradient, x, None))

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        pair = self.backend.one(self.at.value_and_gradient, x, self._given(shard))
        return self._pair("log_likelihood", x, pair)

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        values, gradients = self.backend.each(self.at.prior_and_gradient, points, None, 1)
        return values, gradients

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        function, given = self.at.value_and_gradient, self._given(shard)
        values, gradients = self.backend.each(function, points, given, rows_in(shard))
        return values, gradients

    def _pair(self, what: str, x: Array, pair: Any) -> tuple[float, Array]:
        number = settled(what, pair[0], x, self.names)
        return number, settled_gradient(what, number, pair[1], x, self.names)


@dataclass(frozen=True)
class _ShardPosterior:
    """Prior times integrated likelihood of a shard, with arguments that are still being chosen."""

    model: ProgramModel
    times: float = 1.0  # how many groups each group stands for

    def values(self, points: Array, given: Arguments) -> Array:
        model = self.model
        one, at = model.backend.one, model.at  # points are few: none is padded
        return np.array(
            [one(at.prior, x, None) + self.times * one(at.value, x, given) for x in points],
            dtype=np.float64,
        )

    def value_and_gradient(self, x: Array, given: Arguments) -> tuple[float, Array]:
        if isinstance(self.model, JaxProgramModel):
            one, at = self.model.backend.one, self.model.at
            pairs = one(at.prior_and_gradient, x, None), one(at.value_and_gradient, x, given)
            (prior, prior_slope), (value, slope) = pairs
            return float(prior + self.times * value), np.asarray(prior_slope + self.times * slope)
        steps = _STEP * (1 + np.abs(x))
        moves = np.concatenate([np.zeros((1, len(x))), np.diag(steps), -np.diag(steps)])
        here, *others = self.values(x + moves, given)
        ups, downs = np.split(np.array(others), 2)
        return float(here), (ups - downs) / (2 * steps)

    def anchored(self, x: Array, given: Arguments) -> Arguments:
        found = self.model.backend.one(self.model.at.modes, x, given)
        if isinstance(found, Anchors):
            return found.put(given)
        return given._replace(anchors=np.asarray(found[0]), spreads=np.asarray(found[1]))
