"""What is found out about a shard once: a fit, where nodes are placed, and how many.

The search runs on some of the groups; a few steps with all of them follow. The fit says where the
nodes start from, and where passes over all shards begin.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.groups.accuracy import Effort, Measured, is_offered, measured
from quorate.models.groups.regressions.integrated import Integrated
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit
from quorate.models.groups.regressions.tables import Tables
from quorate.models.regressions.family import Family

_FEW_GROUPS, _FEW_ROWS = 250, 3000  # that may stand for all groups of a shard
_COARSE = 1.6  # growth of bundles of a few groups
_ROUGH = Effort(5, 2)  # from anchors at 0
_MOST_STEPS = 40  # of the search
_LAST_STEPS = 4  # with the gradient of all groups, at most
_CONVERGED = 0.05  # standard deviations
_LONGEST_LAST_STEP = 5.0
_ANCHOR_STEPS = 8
_STEP = 1e-4  # of central differences of the gradient, relative to standard deviations
_WIDEST = 3.0  # standard deviation of a coordinate of which the shard knows little

Density = Callable[[Array], tuple[Array, Array]]  # log densities and gradients at points


class GroupedPosterior(Protocol):
    """What the preparation needs of a model."""

    @property
    def family(self) -> Family:
        """The family of the regression."""

    @property
    def log_sds(self) -> IntArray:
        """Coordinates that are logarithms of standard deviations."""

    def initial(self) -> Array:
        """Where the search starts."""

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        """Log priors and their gradients."""

    def taken_apart(self, points: Array) -> Points:
        """Points in their parts."""

    def gradients(self, points: Array, slopes: Derivatives) -> Array:
        """Gradients of the log-likelihood, from derivatives in those parts."""


class Adaptable(Integrated, Protocol):
    """A shard whose integrals are computed by nodes: `ByNodes`, `NestedByNodes`."""

    @classmethod
    def of(cls, family: Family, tables: Tables, effort: Effort, growth: float = ...) -> Self:
        """Arrange rows by group, with anchors at 0."""

    @property
    def effort(self) -> Effort:
        """Nodes and steps of its integrals."""

    @property
    def fewest_nodes(self) -> int:
        """Nodes in each dimension, at least."""

    @property
    def dim(self) -> int:
        """Dimensions of an integral, over all levels."""

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of groups and of rows."""

    def adapted(self, effort: Effort, fit: RoughFit | None = None) -> Self:
        """A copy of this shard with another effort and a fit."""

    def anchored_at(self, point: Points, n_steps: int) -> Self:
        """A copy of this shard with anchors at the modes of groups at one point."""


class Recipe(NamedTuple):
    """How a shard was prepared, so that another holder can prepare it the same way."""

    mode: Array  # where anchors are
    effort: Effort

    def as_array(self) -> Array:
        """The recipe as one array, to be sent."""
        return np.array([*self.mode, *self.effort], dtype=np.float64)

    @classmethod
    def of(cls, array: Array, dim: int, n_local: int) -> "Recipe | None":
        """The recipe in an array of `as_array`; None if the array does not fit such a model.

        The model has `dim` global parameters, and integrals over `n_local` local ones.
        """
        if array.shape != (dim + len(Effort._fields),) or not np.isfinite(array).all():
            return None
        effort = Effort(*(int(number) for number in array[dim:]))
        return cls(array[:dim], effort) if is_offered(effort, n_local) else None


S = TypeVar("S", bound=Adaptable)
T = TypeVar("T", bound=Adaptable)


def prepared(
    model: GroupedPosterior, kind: type[S], tables: Tables, of_few: type[Adaptable] | None = None
) -> S:
    """Arrange rows by group; find a fit, anchors there, and the effort that is needed.

    `of_few` computes for the few groups that stand for all; it is `kind` if nothing is said.
    """
    shard, some, times = _arranged(model, kind, tables, of_few)
    with np.errstate(all="ignore"):
        start = some.pooled_fit(model.initial(), model.log_sds)
        fit = searched(density(model, some, times), start)
        few, needed = _examined(model, some, times, fit)
        if needed.effort.n_nodes > _ROUGH.n_nodes:  # the search saw a density that was too coarse
            fit = searched(density(model, few, times), fit)
            few, needed = _examined(model, some, times, fit)
        effort = needed.tolerated()
        rough = _anchored(model, shard, fit.mode, effort)
        fit = polished(density(model, rough), fit)
        return _anchored(model, shard, fit.mode, effort).adapted(effort, fit)


def prepared_around(model: GroupedPosterior, kind: type[S], tables: Tables, fit: RoughFit) -> S:
    """Arrange rows by group, with anchors and effort for points around a fit that is known."""
    shard, some, times = _arranged(model, kind, tables)
    with np.errstate(all="ignore"):
        _, needed = _examined(model, some, times, fit, has_tails=False)
        return _anchored(model, shard, fit.mode, needed.tolerated())


def prepared_alike(model: GroupedPosterior, kind: type[S], tables: Tables, recipe: Recipe) -> S:
    """Arrange rows by group as another holder did: the same bits, without a search."""
    with np.errstate(all="ignore"):
        shard = kind.of(model.family, tables, _ROUGH)
        return _anchored(model, shard, recipe.mode, recipe.effort)


def _anchored(model: GroupedPosterior, shard: S, mode: Array, effort: Effort) -> S:
    """A shard with anchors at a mode."""
    return shard.anchored_at(model.taken_apart(mode[None]), _ANCHOR_STEPS).adapted(effort)


def _examined(
    model: GroupedPosterior, some: T, times: float, fit: RoughFit, *, has_tails: bool = True
) -> tuple[T, Measured]:
    """Some groups, with anchors at the mode of a fit, and the effort that is needed around it."""
    some = _anchored(model, some, fit.mode, some.effort)

    def values(points: Array, effort: Effort) -> Array:
        likelihoods = some.adapted(effort).log_likelihoods(model.taken_apart(points))
        return times * likelihoods + model.log_prior_and_gradient_many(points)[0]

    found = measured(values, fit.mode, fit.cov, some.dim, some.fewest_nodes, has_tails=has_tails)
    return some.adapted(found.effort), found


def density(model: GroupedPosterior, shard: Integrated, times: float = 1.0) -> Density:
    """The whole prior times the likelihood of a shard, which counts so many times."""

    def at(points: Array) -> tuple[Array, Array]:
        prior, of_prior = model.log_prior_and_gradient_many(points)
        values, slopes = shard.log_likelihoods_and_gradients(model.taken_apart(points))
        return prior + times * values, of_prior + times * model.gradients(points, slopes)

    return at


def searched(density: Density, start: RoughFit) -> RoughFit:
    """About the mode of a density, and the covariance from the curvature there."""
    from scipy.optimize import minimize  # slow to import

    lower = np.linalg.cholesky(start.cov)

    def fall(z: Array) -> tuple[float, Array]:
        value, gradient = density((start.mode + lower @ z)[None])
        fine = np.isfinite(value[0]) and np.isfinite(gradient[0]).all()
        return (-float(value[0]), -(lower.T @ gradient[0])) if fine else (1e300, 0.0 * z)

    found = minimize(
        fall,
        np.zeros(len(lower)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _MOST_STEPS, "ftol": 1e-7},
    )
    mode = start.mode + lower @ found.x
    return RoughFit(mode, _covariance(density, mode, start.cov))


def polished(density: Density, fit: RoughFit) -> RoughFit:
    """The fit after Newton steps, with the curvature where they end."""
    mode, cov = fit
    value, gradient = density(mode[None])
    for _ in range(_LAST_STEPS):
        step = cov @ gradient[0]
        length = np.sqrt(max(float(gradient[0] @ step), 0.0))
        moved = mode + min(1.0, _LONGEST_LAST_STEP / max(length, 1e-300)) * step
        higher, its_gradient = density(moved[None])
        if not higher[0] > value[0]:
            break
        mode, value, gradient = moved, higher, its_gradient
        if length < _CONVERGED:
            break
    return RoughFit(mode, _covariance(density, mode, cov))


def _covariance(density: Density, mode: Array, rough: Array) -> Array:
    """Covariance from the curvature at the mode. Flat directions are given a moderate width."""
    bends = curvature(lambda points: density(points)[1], mode, np.sqrt(np.diag(rough)))
    values, axes = np.linalg.eigh(np.nan_to_num(bends))
    return np.asarray(axes / np.maximum(values, _WIDEST**-2) @ axes.T)


def curvature(gradients: Callable[[Array], Array], point: Array, sds: Array) -> Array:
    """Minus the second derivatives at a point, by differences of gradients at scale `sds`."""
    steps = _STEP * np.diag(sds)
    after, before = np.split(gradients(point + np.concatenate([steps, -steps])), 2)
    bends = (before - after) / (2 * _STEP * sds[:, None])
    return np.asarray(0.5 * (bends + bends.T))


def _arranged(
    model: GroupedPosterior, kind: type[S], tables: Tables, of_few: type[Adaptable] | None = None
) -> tuple[S, Adaptable, float]:
    """All groups, some of them, evenly spaced, that stand for all, and how many times they do."""
    shard = kind.of(model.family, tables, _ROUGH)
    n_groups, n_rows = shard.size
    step = min(n_groups // _FEW_GROUPS, n_rows // _FEW_ROWS)
    if step < 2:
        return shard, of_few.of(model.family, tables, _ROUGH) if of_few else shard, 1.0
    some, times = tables.every(step)
    return shard, (of_few or kind).of(model.family, some, _ROUGH, _COARSE), times
