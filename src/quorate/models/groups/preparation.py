"""What is found out about a shard once: where nodes are placed, and how many are needed."""

from dataclasses import replace
from typing import Protocol

import numpy as np

from quorate._types import Array, IntArray
from quorate.models.families import Family
from quorate.models.groups.accuracy import Effort, sufficient
from quorate.models.groups.by_nodes import ByNodes
from quorate.models.groups.points import Derivatives, Points
from quorate.models.groups.rows import arranged

_FEW_GROUPS, _FEW_ROWS = 300, 6000  # that may stand for all groups of a shard
_ROUGH = Effort(5, 2)  # from anchors at 0
_MOST_STEPS = 40  # of the search for a rough mode
_ANCHOR_STEPS = 8
_STEP = 1e-4  # of central differences of the gradient
_WIDEST = 3.0  # standard deviation of a coordinate of which the shard knows little


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


def prepared(
    model: GroupedPosterior, columns: Array, varying: Array, response: Array, group: IntArray
) -> ByNodes:
    """Arrange X, Z, y by group, find a rough mode, anchors there, and the effort that is needed."""
    constant, above = model.family.constants(response)
    rows = arranged(columns, varying, response, group)
    anchors = np.zeros((varying.shape[1], rows.n_groups))
    shard = ByNodes(model.family, rows, constant, above, anchors, _ROUGH)
    some, times = _some_groups(shard)
    with np.errstate(all="ignore"):
        mode = _rough_mode(model, some, times)
        point = model.taken_apart(mode[None])
        some = replace(some, anchors=some.centres_at(point, _ANCHOR_STEPS))
        cov = _rough_cov(model, some, mode, times)

        def values(points: Array, effort: Effort) -> Array:
            likelihoods = replace(some, effort=effort).log_likelihoods(model.taken_apart(points))
            return times * likelihoods + model.log_prior_and_gradient_many(points)[0]

        effort = sufficient(values, mode, cov, varying.shape[1])
        return replace(shard, anchors=shard.centres_at(point, _ANCHOR_STEPS), effort=effort)


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


def _rough_mode(model: GroupedPosterior, some: ByNodes, times: float) -> Array:
    """About the mode of the whole prior times the likelihood of the shard."""
    from scipy.optimize import minimize  # slow to import

    def fall(x: Array) -> tuple[float, Array]:
        value, gradient = _density(model, some, times, x[None])
        fine = np.isfinite(value[0]) and np.isfinite(gradient[0]).all()
        return (-float(value[0]), -gradient[0]) if fine else (1e300, np.zeros_like(x))

    found = minimize(
        fall, model.initial(), jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
    )
    return np.asarray(found.x)


def _rough_cov(model: GroupedPosterior, some: ByNodes, mode: Array, times: float) -> Array:
    """Covariance from the curvature at the mode. Flat directions are given a moderate width."""
    dim = len(mode)
    steps = _STEP * np.eye(dim)
    points = mode + np.concatenate([steps, -steps])
    _, gradients = _density(model, some, times, points)
    curvature = -(gradients[:dim] - gradients[dim:]) / (2 * _STEP)
    curvature = np.nan_to_num(0.5 * (curvature + curvature.T))
    bends, axes = np.linalg.eigh(curvature)
    return np.asarray(axes / np.maximum(bends, _WIDEST**-2) @ axes.T)


def _density(
    model: GroupedPosterior, some: ByNodes, times: float, points: Array
) -> tuple[Array, Array]:
    prior, of_prior = model.log_prior_and_gradient_many(points)
    values, slopes = some.log_likelihoods_and_gradients(model.taken_apart(points))
    return prior + times * values, of_prior + times * model.gradients(points, slopes)
