"""What is found out about a shard once: a rough fit, where nodes are placed, and how many.

The fit is rough and found on some of the groups. It need not be better: it only says where the
nodes start from, and where passes over all shards begin.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.families import Family
from quorate.models.groups.accuracy import Effort, sufficient
from quorate.models.groups.by_nodes import ByNodes
from quorate.models.groups.points import Derivatives, Points, RoughFit
from quorate.models.groups.rows import arranged

_FEW_GROUPS, _FEW_ROWS = 300, 6000  # that may stand for all groups of a shard
_ROUGH = Effort(5, 2)  # from anchors at 0
_MOST_STEPS = 60  # of the search for a rough mode
_LAST_STEPS = 2  # with the gradient of all groups
_LONGEST_LAST_STEP = 10.0  # standard deviations
_ANCHOR_STEPS = 8
_STEP = 1e-4  # of central differences of the gradient
_WIDEST = 3.0  # standard deviation of a coordinate of which the shard knows little

Density = Callable[[Array], tuple[Array, Array]]  # log densities and gradients at points


class GroupedPosterior(Protocol):
    """What the preparation needs of a model."""

    @property
    def family(self) -> Family:
        """The family of the regression."""

    def initial(self) -> Array:
        """Where the search starts."""

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        """Log priors and their gradients."""

    def taken_apart(self, points: Array) -> Points:
        """Points in their parts."""

    def gradients(self, points: Array, slopes: Derivatives) -> Array:
        """Gradients of the log-likelihood, from derivatives in those parts."""


class Integrated(Protocol):
    """A shard with its integrated likelihood."""

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""


def prepared(
    model: GroupedPosterior, columns: Array, varying: Array, response: Array, group: IntArray
) -> ByNodes:
    """Arrange X, Z, y by group; find a rough fit, anchors there, and the effort that is needed."""
    constant, above = model.family.constants(response)
    rows = arranged(columns, varying, response, group)
    anchors = np.zeros((varying.shape[1], rows.n_groups))
    shard = ByNodes(model.family, rows, constant, above, anchors, _ROUGH)
    some, times = _some_groups(shard)
    with np.errstate(all="ignore"):
        fit = rough_fit(density(model, some, times), model.initial())
        if times > 1:
            fit = _polished(density(model, shard), fit)
        point = model.taken_apart(fit.mode[None])
        some = replace(some, anchors=some.centres_at(point, _ANCHOR_STEPS))

        def values(points: Array, effort: Effort) -> Array:
            likelihoods = replace(some, effort=effort).log_likelihoods(model.taken_apart(points))
            return times * likelihoods + model.log_prior_and_gradient_many(points)[0]

        effort = sufficient(values, fit.mode, fit.cov, varying.shape[1])
        anchors = shard.centres_at(point, _ANCHOR_STEPS)
        return replace(shard, anchors=anchors, effort=effort, fit=fit)


def density(model: GroupedPosterior, shard: Integrated, times: float = 1.0) -> Density:
    """The whole prior times the likelihood of a shard, which counts so many times."""

    def at(points: Array) -> tuple[Array, Array]:
        prior, of_prior = model.log_prior_and_gradient_many(points)
        values, slopes = shard.log_likelihoods_and_gradients(model.taken_apart(points))
        return prior + times * values, of_prior + times * model.gradients(points, slopes)

    return at


def rough_fit(density: Density, start: Array) -> RoughFit:
    """About the mode of a density, and the covariance from the curvature there."""
    from scipy.optimize import minimize  # slow to import

    def fall(x: Array) -> tuple[float, Array]:
        value, gradient = density(x[None])
        fine = np.isfinite(value[0]) and np.isfinite(gradient[0]).all()
        return (-float(value[0]), -gradient[0]) if fine else (1e300, np.zeros_like(x))

    found = minimize(fall, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS})
    mode = np.asarray(found.x)
    return RoughFit(mode, _rough_cov(density, mode))


def _rough_cov(density: Density, mode: Array) -> Array:
    """Covariance from the curvature at the mode. Flat directions are given a moderate width."""
    dim = len(mode)
    steps = _STEP * np.eye(dim)
    _, gradients = density(mode + np.concatenate([steps, -steps]))
    curvature = -(gradients[:dim] - gradients[dim:]) / (2 * _STEP)
    curvature = np.nan_to_num(0.5 * (curvature + curvature.T))
    bends, axes = np.linalg.eigh(curvature)
    return np.asarray(axes / np.maximum(bends, _WIDEST**-2) @ axes.T)


def _polished(density: Density, fit: RoughFit) -> RoughFit:
    """The fit after steps with the gradient of all groups and the curvature of some."""
    mode = fit.mode
    for _ in range(_LAST_STEPS):
        value, gradient = density(mode[None])
        step = fit.cov @ gradient[0]
        length = np.sqrt(max(float(gradient[0] @ step), 1e-300))
        moved = mode + min(1.0, _LONGEST_LAST_STEP / length) * step
        if not density(moved[None])[0][0] > value[0]:
            break
        mode = moved
    return RoughFit(mode, fit.cov)


def _some_groups(shard: ByNodes) -> tuple[ByNodes, float]:
    """Groups that stand for all, evenly spaced, and how many times they do."""
    rows = shard.rows
    step = min(rows.n_groups // _FEW_GROUPS, rows.n_rows // _FEW_ROWS)
    if step < 2:
        return shard, 1.0
    chosen = rows.codes[::step]
    times = rows.n_groups / len(chosen)
    above = None if shard.above is None else shard.above / times
    some = rows.of_groups(chosen)
    return replace(shard, rows=some, above=above, anchors=shard.anchors[:, ::step]), times
