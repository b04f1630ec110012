"""Models with local parameters from programs: any log joint density of groups and their rows."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.models.checks import settled, settled_gradient
from quorate.models.groups.levels import Level, Moments, Uniforms
from quorate.models.groups.local import independence_draws, numbers_needed
from quorate.models.groups.programs.anchors import anchored, examined_mode, unanchored, with_effort
from quorate.models.groups.programs.at_point import AtPoint, Program
from quorate.models.groups.programs.backends import Backend
from quorate.models.groups.programs.integral import Arguments
from quorate.models.groups.programs.shards import compact
from quorate.models.groups.programs.single_rows import ProgramRows
from quorate.models.groups.quadrature import MOST_DIMENSIONS
from quorate.models.memo import PerShard
from quorate.models.programs.jaxed_many import points_at_once, rows_in
from quorate.models.protocol import Shard
from quorate.models.rows import Ability

_NUMBERS = 1 << 24  # uniform numbers held at a time, for draws of local parameters
_FEW_GROUPS, _FEW_ROWS = 300, 10_000  # that may stand for all groups of a shard
_STEP = 1e-5  # of finite differences of the integrated likelihood


def require_few_dimensions(dim: int, names: str) -> None:
    """Refuse integrals of too many dimensions."""
    require(
        1 <= dim <= MOST_DIMENSIONS,
        f"A group has {dim} local parameters: {names}. They are integrated out at nodes, which is "
        f"done for 1 to {MOST_DIMENSIONS} of them. Make some of them global.",
    )


def one_level(name: object, what: str) -> str:
    """The name of the one level of a program. Levels that nest are refused."""
    if isinstance(name, str) and name:
        return name
    raise BadInputError(
        f"{what} for the one level of groups that a program has, not {name!r}. Where levels nest, "
        "name the inner one, and make the variables of the outer one global. Regressions have "
        "both levels: `(1 | outer/inner)`."
    )


NO_PRIOR = (
    "Functions and PyMC models with local parameters do not draw from their prior. Formulas with "
    "groups and NumPyro programs do; PyMC has functions of its own for it."
)


class Ready(NamedTuple):
    """A shard, ready for integrals; or the reason why they cannot be computed."""

    given: Arguments
    codes: IntArray
    centres: Array  # natural values at the anchors, (m, r)
    refused: str = ""


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
        return (self.program.level,)

    @property
    def group_columns(self) -> str:
        return self.program.level.name

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
        given, ready = self._given(shard), self._ready(shard)
        at_once = max(16, points_at_once(3 * ready.centres.size))
        sums = np.zeros((3, *ready.centres.shape))
        for first in range(0, len(points), at_once):
            part = points[first : first + at_once]
            arguments = (given, ready.centres)
            each = self.backend.each(self.at.moments, part, arguments, rows_in(shard))
            sums += np.asarray(each).sum(axis=0).transpose(1, 0, 2)
        return {self.program.level.name: Moments(ready.codes, ready.centres, sums)}

    def local_draws(
        self, points: Array, shard: Shard, groups: IntArray, uniforms: Uniforms
    ) -> dict[str, tuple[IntArray, Array]]:
        ready = self._ready(shard)
        asked = np.unique(np.asarray(groups, dtype=np.int64))
        missing = np.setdiff1d(asked, ready.codes)
        require(len(missing) == 0, f"The shard has no groups with codes {missing[:5].tolist()}.")
        numbers = max(1, len(points) * numbers_needed(self.program.local_dim))
        n_parts = max(1, min(len(asked), -(-len(asked) * numbers // _NUMBERS)))
        draws = [
            self._draws(points, shard, part, uniforms) for part in np.array_split(asked, n_parts)
        ]
        return {self.program.level.name: (asked, np.concatenate(draws, axis=1))}

    def _draws(self, points: Array, shard: Shard, groups: IntArray, uniforms: Uniforms) -> Array:
        """Draws of some groups, from the rows of these groups alone."""
        if len(groups) == 0 or len(points) == 0:
            return np.zeros((len(points), len(groups), len(self.program.level.names)))
        given, n_rows = self._of_groups(shard, groups)
        z = self._local_points(points, given, n_rows, groups, uniforms)
        both = np.concatenate([points, z.reshape(len(points), -1)], axis=1)
        return np.asarray(self.backend.each(self.at.natural, both, given, n_rows))

    def _local_points(
        self, points: Array, given: Arguments, n_rows: int, groups: IntArray, uniforms: Uniforms
    ) -> Array:
        """Draws of the unconstrained parameters of some groups, (n, m, q)."""
        mean, factor = self._rough_normal(points, given, n_rows)
        wanted = numbers_needed(self.program.local_dim)
        numbers = uniforms(self.program.level.name, groups, wanted)

        def joint(z: Array) -> Array:
            both = np.concatenate([points, z.reshape(len(points), -1)], axis=1)
            return np.asarray(self.backend.each(self.at.joint, both, given, n_rows))

        return independence_draws(joint, mean, factor, numbers)

    def lacks(self, ability: Ability) -> str:
        return self.program.lacks(ability)

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
        codes = self.program.row_codes(shard)
        places = np.flatnonzero(np.isin(codes, groups))
        order = compact(codes[places])[2]
        if of_prior:
            inputs, _ = self.program.prepared({name: at[places] for name, at in shard.items()})
            return places[order], ProgramRows(self, points, None, inputs)
        given, n_rows = self._of_groups(shard, groups)
        z = self._local_points(points, given, n_rows, groups, uniforms)
        return places[order], ProgramRows(self, points, z, given.inputs, given)

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
        inputs, _ = self.program.prepared({name: rows[of_groups] for name, rows in shard.items()})
        places = np.searchsorted(codes, groups)
        anchors = np.asarray(given.anchors)[places]
        spreads = np.asarray(given.spreads)[:, :, places]
        some = given._replace(inputs=inputs, anchors=anchors, spreads=spreads)
        return some, int(of_groups.sum())

    def _rough_normal(self, points: Array, given: Arguments, n_rows: int) -> tuple[Array, Array]:
        """Means (n, m, q) of z, and factors (n, m, q, q) of its covariances, by quadrature."""
        sums = self.backend.each(self.at.spread, points, given, n_rows)
        offsets, dim = np.asarray(sums), self.program.local_dim
        mean, products = offsets[..., :dim], offsets[..., dim:]
        products = products.reshape(*products.shape[:-1], dim, dim)
        cov = products - mean[..., :, None] * mean[..., None, :]
        scale = np.sqrt(np.maximum(np.einsum("...ii->...i", cov), 1e-300))
        correlation = cov / (scale[..., :, None] * scale[..., None, :]) + 1e-9 * np.eye(dim)
        sound = np.isfinite(correlation).all(axis=(-2, -1), keepdims=True)
        factor = np.linalg.cholesky(np.where(sound, correlation, np.eye(dim)))
        return np.asarray(given.anchors) + mean, scale[..., :, None] * factor

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
        nowhere = np.zeros((len(codes), len(self.program.level.names)))
        step = min(len(codes) // _FEW_GROUPS, rows_in(shard) // _FEW_ROWS)
        some, times = given, 1.0
        if step > 1:
            some, times = self._part(shard, given, codes, codes[::step])[0], float(step)
        try:
            with np.errstate(all="ignore"):  # a search may pass through points of density 0
                x, effort = examined_mode(_ShardPosterior(self, times), some, self.initial())
        except BadInputError as error:  # remembered: the search is long, and would fail again
            return Ready(given, codes, nowhere, str(error))
        given = with_effort(anchored(_ShardPosterior(self), x, given), effort)
        both = np.concatenate([x, np.ravel(given.anchors)])
        centres = np.asarray(self.backend.one(self.at.natural, both, given))
        return Ready(given, codes, np.where(np.isfinite(centres), centres, 0.0))

    @cached_property
    def at(self) -> AtPoint:
        """The functions of one point that backends evaluate."""
        return AtPoint(self.program, self.dim)

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

    def modes(self, x: Array, given: Arguments) -> tuple[Array, Array]:
        centres, spreads = self.model.backend.one(self.model.at.modes, x, given)
        return np.asarray(centres), np.asarray(spreads)
