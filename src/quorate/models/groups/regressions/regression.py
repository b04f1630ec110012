"""Generalised linear models with groups that have coefficients of their own.

η = Xβ + Zu, where each group has its u ~ N(0, Σ). Groups may lie within others, which have
coefficients too: η = Xβ + Z u_a + Z_inner v_ab. The coefficients of groups are integrated out, so
the model has few parameters: β, the scale of the family, standard deviations and correlations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import require
from quorate.models.axes import Axes
from quorate.models.checks import settled, settled_gradient
from quorate.models.formulas.design import Design
from quorate.models.groups.levels import Level, LevelUniforms, Moments, Uniforms
from quorate.models.groups.local import numbers_needed
from quorate.models.groups.regressions import single_rows
from quorate.models.groups.regressions.by_nodes import ByNodes
from quorate.models.groups.regressions.covariance import Covariance
from quorate.models.groups.regressions.integrated import Integrated, OfGroups, in_numpy
from quorate.models.groups.regressions.level_arrays import (
    codes_of_level,
    group_columns,
    varying_of_level,
)
from quorate.models.groups.regressions.nested import NestedByNodes
from quorate.models.groups.regressions.nested_gaussian import in_closed_form
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit
from quorate.models.groups.regressions.preparation import (
    Adaptable,
    Recipe,
    curvature,
    density,
    polished,
    prepared,
    prepared_alike,
    prepared_around,
    searched,
)
from quorate.models.groups.regressions.single_rows import Local
from quorate.models.groups.regressions.tables import Tables
from quorate.models.memo import PerShard
from quorate.models.protocol import Shard
from quorate.models.regressions.families import Linear
from quorate.models.regressions.family import Family
from quorate.models.regressions.glm import GeneralisedLinearModel, Prepare
from quorate.models.rows import RegressionRows


@dataclass(frozen=True)
class GroupedRegression:
    """A generalised linear model with groups. See `quorate.models.groups.levels.GroupedModel`.

    The unconstrained vector is that of `fixed`, followed by the coordinates of `covariances`, of
    which there is one for each level, outer level first. A shard holds what one of `fixed` holds,
    `Z` (n, q) and `group` (n,), and `Z_inner` and `inner` (n,) for a second level.
    """

    fixed: GeneralisedLinearModel
    covariances: tuple[Covariance, ...]

    @property
    def dim(self) -> int:
        return self.fixed.dim + sum(one.dim for one in self.covariances)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.fixed.names, *(name for one in self.covariances for name in one.names))

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        return tuple(one.level for one in self.covariances)

    @property
    def axes(self) -> Axes:
        """Levels of the factors of a formula."""
        return self.fixed.axes

    @property
    def group_columns(self) -> str:
        return group_columns(self.levels)

    @property
    def family(self) -> Family:
        """The family of the regression."""
        return self.fixed.family

    @property
    def encoding(self) -> Design | None:
        """The encoding of the formula, if the model has one."""
        return self.fixed.encoding

    def without_encoding(self) -> "GroupedRegression":
        """A copy of this model for rows that are encoded already."""
        return replace(self, fixed=self.fixed.without_encoding())

    def on_device(self) -> "GroupedRegression":
        """A copy of this model whose log densities JAX evaluates on the default device."""
        from quorate.models.groups.regressions.on_device import on_device

        return on_device(self)

    @cached_property
    def log_sds(self) -> IntArray:
        """Coordinates that are logarithms of standard deviations, that of `linear` included."""
        found = [self.fixed.dim - 1] if self.is_linear else []
        first = self.fixed.dim
        for one in self.covariances:
            found += range(first, first + len(one.level.names))
            first += one.dim
        return np.array(found)

    def initial(self) -> Array:
        return np.zeros(self.dim)

    def constrain(self, draws: Array) -> dict[str, Array]:
        fixed, *rest = self._split(draws)
        named = self.fixed.constrain(fixed)
        for covariance, part in zip(self.covariances, rest, strict=True):
            named |= covariance.constrain(part)
        return named

    def log_prior(self, x: Array) -> float:
        return self.log_prior_and_gradient(x)[0]

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        values, gradients = self.log_prior_and_gradient_many(x[None])
        return self._settled("log_prior", x, values, gradients)

    def log_prior_many(self, points: Array) -> Array:
        return self.log_prior_and_gradient_many(points)[0]

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        fixed, *rest = self._split(points)
        found = [self.fixed.log_prior_and_gradient_many(fixed)]
        with np.errstate(all="ignore"):
            for covariance, part in zip(self.covariances, rest, strict=True):
                found.append(covariance.log_prior_and_gradient(part))
        values, gradients = zip(*found, strict=True)
        return sum(values), np.column_stack(gradients)

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        values = self.log_likelihood_many(x[None], shard)
        return settled("log_likelihood", values[0], x, self.names)

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        values, gradients = self.log_likelihood_and_gradient_many(x[None], shard)
        return self._settled("log_likelihood", x, values, gradients)

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        with np.errstate(all="ignore"):  # a few points may be far out
            return self._kept(shard).log_likelihoods(self.taken_apart(points))

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            values, slopes = self._kept(shard).log_likelihoods_and_gradients(
                self.taken_apart(points)
            )
            return values, self.gradients(points, slopes)

    def rough_fit(self, shard: Shard, n_shards: float) -> RoughFit:
        """Mode and covariance of the subposterior of a shard, but for the skewness of priors."""
        kept = self._kept(shard)
        with np.errstate(all="ignore"):
            fit = kept.fit or self._fitted(kept)
            return self._with_part_of_prior(fit, n_shards)

    def recipe(self, shard: Shard) -> Array | None:
        """How a shard was prepared, for its other holders; None where that takes no search."""
        kept = self._kept(shard)
        if self.is_linear or kept.fit is None:
            return None
        return Recipe(kept.fit.mode, cast(Adaptable, kept).effort).as_array()

    def prepare_by(self, recipe: Array, shard: Shard) -> None:
        """Prepare a shard as another holder did, unless it is prepared or this is no recipe."""
        if self.is_linear:
            return
        known = Recipe.of(recipe, self.dim, sum(len(level.names) for level in self.levels))
        if known is not None:
            self._kept.remember(shard, lambda: self._prepare(shard, known))

    def _fitted(self, kept: Integrated) -> RoughFit:
        whole = density(self, kept)
        return polished(whole, searched(whole, kept.pooled_fit(self.initial(), self.log_sds)))

    def _with_part_of_prior(self, fit: RoughFit, n_shards: float) -> RoughFit:
        """The fit with the prior to the power 1/K, by a Newton step; as it is if that fails."""
        taken = 1 - 1 / n_shards

        def gradients(points: Array) -> Array:
            return self.log_prior_and_gradient_many(points)[1]

        bends = curvature(gradients, fit.mode, np.sqrt(np.diag(fit.cov)))
        precision = np.linalg.inv(fit.cov) - taken * bends
        values, axes = np.linalg.eigh(np.nan_to_num(precision))
        if not values[0] > 0:
            return fit
        cov = axes / values @ axes.T
        return RoughFit(fit.mode - taken * cov @ gradients(fit.mode[None])[0], cov)

    def local_moments(self, points: Array, shard: Shard) -> Mapping[str, Moments]:
        kept = in_numpy(self._prepare(shard, _around(points)))
        with np.errstate(all="ignore"):  # as everywhere: nodes may be far out
            found = kept.moments(self.taken_apart(points))
        return {level.name: of for level, of in zip(self.levels, found, strict=True)}

    def local_draws(
        self, points: Array, shard: Shard, groups: IntArray, uniforms: Uniforms
    ) -> Mapping[str, tuple[IntArray, Array]]:
        kept = self._holding(groups, shard)
        with np.errstate(all="ignore"):
            found = kept.draws(self.taken_apart(points), groups, self._by_level(uniforms))
        return {level.name: of for level, of in zip(self.levels, found, strict=True)}

    def group_log_likelihoods(self, points: Array, shard: Shard, groups: IntArray) -> Array:
        kept = self._holding(groups, shard)
        with np.errstate(all="ignore"):
            integrals = kept.group_integrals(self.taken_apart(points), groups)
            return single_rows.group_values(self, points, shard, groups, integrals)

    def rows_of_groups(
        self,
        points: Array,
        shard: Shard,
        groups: IntArray,
        uniforms: Uniforms,
        of_prior: bool = False,
    ) -> tuple[IntArray, RegressionRows]:
        if of_prior:
            numbers = self._by_level(uniforms)
            local: Local = single_rows.from_the_prior(self, points, shard, groups, numbers)
        else:
            local = self.local_draws(points, shard, groups, uniforms)
        return single_rows.rows_given(self, points, shard, groups, local)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        covariances = [one.prior_draws(n, rng) for one in self.covariances]
        return np.column_stack([self.fixed.prior_draws(n, rng), *covariances])

    def _holding(self, groups: IntArray, shard: Shard) -> OfGroups:
        """The prepared shard, which must hold these groups."""
        kept = self._kept(shard)
        strange = sorted(set(groups.tolist()) - set(kept.codes.tolist()))
        require(not strange, f"The shard has no group with code {strange[:1]}.")
        return in_numpy(kept)

    def _by_level(self, uniforms: Uniforms) -> LevelUniforms:
        def of_level(number: int, codes: IntArray) -> Array:
            level = self.levels[number]
            return uniforms(level.name, codes, self._n_uniforms(level))

        return of_level

    def new_groups(self, points: Array, normals: Array, level: int = 0) -> Array:
        """Draws of coefficients of m groups without rows, from normal numbers (n_points, m, q)."""
        lower = np.linalg.cholesky(self.taken_apart(points).covs[level])
        return np.asarray(np.einsum("nij,nmj->nmi", lower, normals))

    def varying_columns(self, rows: Mapping[str, Any], level: int = 0) -> Array:
        """`Z` or `Z_inner` (n, q) of some rows; without it, groups have intercepts."""
        return varying_of_level(rows, len(rows["X"]), self.levels[level], level)

    def taken_apart(self, points: Array) -> Points:
        """Coefficients, scales and covariances at each point."""
        _, *rest = self._split(points)
        pairs = zip(self.covariances, rest, strict=True)
        covs = tuple(covariance.matrices(part) for covariance, part in pairs)
        betas = points[:, : len(self.fixed.columns)]
        return Points(betas, self.fixed.log_scales(points)[:, 0], covs)

    def gradients(self, points: Array, slopes: Derivatives) -> Array:
        """Gradients (n, dim) of the log-likelihood, from derivatives in the parts of points."""
        of_scale = [] if not self.fixed.scale_priors else [slopes.log_scales]
        _, *rest = self._split(points)
        of_levels = zip(self.covariances, rest, slopes.covs, strict=True)
        of_covs = [covariance.gradient(part, slope) for covariance, part, slope in of_levels]
        return np.column_stack([slopes.betas, *of_scale, *of_covs])

    def _split(self, points: Array) -> list[Array]:
        """Coordinates of `fixed`, and those of each covariance."""
        sizes = [self.fixed.dim, *(one.dim for one in self.covariances)]
        return np.split(points, np.cumsum(sizes[:-1]), axis=1)

    def _n_uniforms(self, level: Level) -> int:
        """Uniforms for a draw of the coefficients of a group."""
        q = len(level.names)
        return q if self.is_linear else numbers_needed(q)

    @property
    def is_linear(self) -> bool:
        """Whether integrals have a closed form."""
        return isinstance(self.fixed.family, Linear)

    def _settled(self, what: str, x: Array, values: Array, gradients: Array) -> tuple[float, Array]:
        number = settled(what, values[0], x, self.names)
        return number, settled_gradient(what, number, gradients[0], x, self.names)

    @cached_property
    def _kept(self) -> PerShard[Integrated]:
        return PerShard(self._prepare)

    def _prepare(self, shard: Shard, known: RoughFit | Recipe | None = None) -> Integrated:
        """A shard whose integrals are ready: around a fit, by a recipe, or after a search."""
        return self.integrated(self._tables(shard), known)

    def _tables(self, shard: Shard) -> Tables:
        """The arrays of a shard, checked."""
        seen = Prepare(self.fixed.family, self.fixed.columns).checked(shard)
        n_rows, levels = len(seen.response), self.levels
        groups = [codes_of_level(shard, n_rows, levels, i) for i in range(len(levels))]
        varying = [varying_of_level(shard, n_rows, level, i) for i, level in enumerate(levels)]
        return Tables(seen, varying, groups)

    def integrated(self, tables: Tables, known: RoughFit | Recipe | None) -> Integrated:
        """Rows whose integrals are ready; see `_prepare`."""
        if self.is_linear:
            return in_closed_form(tables)
        is_nested = len(self.levels) > 1
        kind: type[ByNodes] | type[NestedByNodes] = NestedByNodes if is_nested else ByNodes
        if known is None:
            return prepared(self, kind, tables)
        if isinstance(known, Recipe):
            return prepared_alike(self, kind, tables, known)
        return prepared_around(self, kind, tables, known)


def _around(points: Array) -> RoughFit | None:
    """Where points of the posterior lie, if there are enough to tell."""
    if len(points) < 2 * points.shape[1] or not points.std(axis=0).all():
        return None
    return RoughFit(points.mean(axis=0), np.cov(points.T))
