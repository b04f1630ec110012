"""Generalised linear models with groups that have coefficients of their own.

η = Xβ + Zu, where each group has its u ~ N(0, Σ). The coefficients u are integrated out, so the
model has few parameters: β, the scale of the family, standard deviations and correlations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.models.checks import settled, settled_gradient
from quorate.models.families import Family, Linear
from quorate.models.formula import Design
from quorate.models.glm import GeneralisedLinearModel, Prepare, numbers
from quorate.models.groups.covariance import Covariance
from quorate.models.groups.gaussian import ClosedForm
from quorate.models.groups.levels import Level, Moments, Uniforms
from quorate.models.groups.local import numbers_needed
from quorate.models.groups.points import Derivatives, Points, RoughFit
from quorate.models.groups.preparation import density, polished, prepared, searched
from quorate.models.memo import PerShard
from quorate.models.protocol import Shard

_STEP = 1e-4  # of central differences, relative to standard deviations


class Integrated(Protocol):
    """A prepared shard, whose groups' coefficients are integrated out."""

    @property
    def codes(self) -> IntArray:
        """Codes of the groups, in rising order."""

    @property
    def centres(self) -> Array:
        """Where moments are taken about, (q, n_groups)."""

    @property
    def fit(self) -> RoughFit | None:
        """About the mode and covariance of the prior times the likelihood of the shard."""

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""

    def pooled_fit(self, start: Array) -> RoughFit:
        """A fit without groups, where searches start."""

    def moments(self, points: Points) -> Array:
        """Sums over points of E (u - centre)^k for k = 1, 2, 3, of each group, (3, n_groups, q)."""

    def draws(self, points: Points, codes: IntArray, uniforms: Array) -> Array:
        """A draw of u of some groups for each point, (n, m, q), from uniforms (n, m, k)."""


@dataclass(frozen=True)
class GroupedRegression:
    """A generalised linear model with groups. See `quorate.models.groups.levels.GroupedModel`.

    The unconstrained vector is that of `fixed`, followed by the coordinates of `covariance`. A
    shard holds `X` (n, p), `y` (n,), `Z` (n, q) and `group` (n,).
    """

    fixed: GeneralisedLinearModel
    covariance: Covariance

    @property
    def dim(self) -> int:
        return self.fixed.dim + self.covariance.dim

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.fixed.names, *self.covariance.names)

    @property
    def levels(self) -> tuple[Level, ...]:
        return (self.covariance.level,)

    @property
    def group_columns(self) -> str:
        return self.covariance.level.name

    @property
    def family(self) -> Family:
        """The family of the regression."""
        return self.fixed.family

    @property
    def encoding(self) -> Design | None:
        """The encoding of the formula, if the model has one."""
        return self.fixed.encoding

    def initial(self) -> Array:
        return np.zeros(self.dim)

    def constrain(self, draws: Array) -> dict[str, Array]:
        fixed, rest = np.split(draws, [self.fixed.dim], axis=1)
        return self.fixed.constrain(fixed) | self.covariance.constrain(rest)

    def log_prior(self, x: Array) -> float:
        return self.log_prior_and_gradient(x)[0]

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        values, gradients = self.log_prior_and_gradient_many(x[None])
        return self._settled("log_prior", x, values, gradients)

    def log_prior_many(self, points: Array) -> Array:
        return self.log_prior_and_gradient_many(points)[0]

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        fixed, rest = np.split(points, [self.fixed.dim], axis=1)
        values, gradients = self.fixed.log_prior_and_gradient_many(fixed)
        with np.errstate(all="ignore"):
            more, of_rest = self.covariance.log_prior_and_gradient(rest)
        return values + more, np.column_stack([gradients, of_rest])

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

    def _fitted(self, kept: Integrated) -> RoughFit:
        whole = density(self, kept)
        return polished(whole, searched(whole, kept.pooled_fit(self.initial())))

    def _with_part_of_prior(self, fit: RoughFit, n_shards: float) -> RoughFit:
        """The fit with the prior to the power 1/K, by a Newton step; as it is if that fails."""
        taken, dim = 1 - 1 / n_shards, self.dim
        steps = _STEP * np.diag(np.sqrt(np.diag(fit.cov)))
        points = np.concatenate([fit.mode[None], fit.mode + steps, fit.mode - steps])
        gradients = self.log_prior_and_gradient_many(points)[1]
        bends = (gradients[1 : dim + 1] - gradients[dim + 1 :]) / (2 * np.diag(steps)[:, None])
        precision = np.linalg.inv(fit.cov) + taken * 0.5 * (bends + bends.T)
        values, axes = np.linalg.eigh(np.nan_to_num(precision))
        if not values[0] > 0:
            return fit
        cov = axes / values @ axes.T
        return RoughFit(fit.mode - taken * cov @ gradients[0], cov)

    def local_moments(self, points: Array, shard: Shard) -> Mapping[str, Moments]:
        kept = self._kept(shard)
        sums = kept.moments(self.taken_apart(points))
        return {self.levels[0].name: Moments(kept.codes, kept.centres.T, sums)}

    def local_draws(
        self, points: Array, shard: Shard, groups: IntArray, uniforms: Uniforms
    ) -> Mapping[str, tuple[IntArray, Array]]:
        kept, level = self._kept(shard), self.levels[0]
        strange = sorted(set(groups.tolist()) - set(kept.codes.tolist()))
        require(not strange, f"The shard has no group with code {strange[:1]}.")
        numbers_of = uniforms(level.name, groups, self._n_uniforms)
        return {level.name: (groups, kept.draws(self.taken_apart(points), groups, numbers_of))}

    def new_groups(self, points: Array, normals: Array) -> Array:
        """Draws of u of m groups without rows, from normal numbers (n_points, m, q)."""
        lower = np.linalg.cholesky(self.taken_apart(points).covs)
        return np.asarray(np.einsum("nij,nmj->nmi", lower, normals))

    def varying_columns(self, rows: Mapping[str, Any]) -> Array:
        """`Z` (n, q) of some rows; without it, groups have intercepts."""
        return self._varying(rows, len(rows["X"]))

    @property
    def _n_uniforms(self) -> int:
        """Uniforms for a draw of the coefficients of a group."""
        q = len(self.levels[0].names)
        return q if self._is_linear else numbers_needed(q)

    @property
    def _is_linear(self) -> bool:
        return isinstance(self.fixed.family, Linear)

    def taken_apart(self, points: Array) -> Points:
        """Coefficients, scales and covariances at each point."""
        covs = self.covariance.matrices(points[:, self.fixed.dim :])
        betas = points[:, : len(self.fixed.columns)]
        return Points(betas, self.fixed.log_scales(points), covs)

    def gradients(self, points: Array, slopes: Derivatives) -> Array:
        """Gradients (n, dim) of the log-likelihood, from derivatives in the parts of points."""
        of_scale = [] if self.fixed.scale_prior is None else [slopes.log_scales]
        of_covs = self.covariance.gradient(points[:, self.fixed.dim :], slopes.covs)
        return np.column_stack([slopes.betas, *of_scale, of_covs])

    def _settled(self, what: str, x: Array, values: Array, gradients: Array) -> tuple[float, Array]:
        number = settled(what, values[0], x, self.names)
        return number, settled_gradient(what, number, gradients[0], x, self.names)

    @cached_property
    def _kept(self) -> PerShard[Integrated]:
        return PerShard(self._prepare)

    def _prepare(self, shard: Shard) -> Integrated:
        columns, response = Prepare(self.fixed.family, self.fixed.columns).checked(shard)
        n_rows = len(response)
        group, varying = self._group(shard, n_rows), self._varying(shard, n_rows)
        if self._is_linear:
            return ClosedForm.of(columns, varying, response, group)
        return prepared(self, columns, varying, response, group)

    def _group(self, shard: Shard, n_rows: int) -> IntArray:
        """`group` (n,) of a shard."""
        if "group" not in shard:
            raise BadInputError(
                f"No array named `group`. The data are {', '.join(sorted(shard))}; this model has "
                f"groups: cut its rows by='group:{self.group_columns}'."
            )
        group = np.asarray(shard["group"])
        right = group.shape == (n_rows,)
        require(right, f"group has shape {group.shape}. Each of the {n_rows} rows needs one.")
        return group

    def _varying(self, shard: Mapping[str, Any], n_rows: int) -> Array:
        """`Z` (n, q) of a shard; without it, groups have intercepts."""
        names = self.levels[0].names
        wanted = (n_rows, len(names))
        if "Z" not in shard:
            require(names == ("Intercept",), f"No array named `Z`. It needs shape {wanted}.")
            return np.ones(wanted)
        varying = numbers("Z", shard["Z"])
        right = varying.shape == wanted
        require(right, f"Z has shape {varying.shape}. It needs shape {wanted}.")
        require(bool(np.isfinite(varying).all()), "Z must be finite: drop or fill such rows.")
        return varying
