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

_ROUGH = Effort(5, 4)  # from anchors at 0
_MOST_STEPS = 40  # of the search for a rough mode
_ANCHOR_STEPS = 12
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
    rough = ByNodes(model.family, rows, constant, above, anchors, _ROUGH)
    with np.errstate(all="ignore"):
        mode = _rough_mode(model, rough)
        anchored = replace(
            rough, anchors=rough.centres_at(model.taken_apart(mode[None]), _ANCHOR_STEPS)
        )
        cov = _rough_cov(model, anchored, mode)

        def values(points: Array, effort: Effort) -> Array:
            likelihoods = replace(anchored, effort=effort).log_likelihoods(
                model.taken_apart(points)
            )
            return likelihoods + model.log_prior_and_gradient_many(points)[0]

        return replace(anchored, effort=sufficient(values, mode, cov, varying.shape[1]))


def _rough_mode(model: GroupedPosterior, rough: ByNodes) -> Array:
    """About the mode of the whole prior times the likelihood of the shard."""
    from scipy.optimize import minimize  # slow to import

    def fall(x: Array) -> tuple[float, Array]:
        value, gradient = _density(model, rough, x[None])
        fine = np.isfinite(value[0]) and np.isfinite(gradient[0]).all()
        return (-float(value[0]), -gradient[0]) if fine else (1e300, np.zeros_like(x))

    found = minimize(
        fall, model.initial(), jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
    )
    return np.asarray(found.x)


def _rough_cov(model: GroupedPosterior, anchored: ByNodes, mode: Array) -> Array:
    """Covariance from the curvature at the mode. Flat directions are given a moderate width."""
    dim = len(mode)
    steps = _STEP * np.eye(dim)
    _, gradients = _density(model, anchored, mode + np.concatenate([steps, -steps]))
    curvature = -(gradients[:dim] - gradients[dim:]) / (2 * _STEP)
    curvature = np.nan_to_num(0.5 * (curvature + curvature.T))
    bends, axes = np.linalg.eigh(curvature)
    return np.asarray(axes / np.maximum(bends, _WIDEST**-2) @ axes.T)


def _density(model: GroupedPosterior, shard: ByNodes, points: Array) -> tuple[Array, Array]:
    prior, of_prior = model.log_prior_and_gradient_many(points)
    values, slopes = shard.log_likelihoods_and_gradients(model.taken_apart(points))
    return prior + values, of_prior + model.gradients(points, slopes)
