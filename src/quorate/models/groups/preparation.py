"""What is found out about a shard once: where nodes are placed, and how many are needed."""

from typing import Protocol, Self, TypeVar

import numpy as np

from quorate._types import Array
from quorate.models.groups.accuracy import Effort, sufficient
from quorate.models.groups.points import Derivatives, Points

ROUGH = Effort(5, 4)  # from anchors at 0
_MOST_STEPS = 40  # of the search for a rough mode
_ANCHOR_STEPS = 12
_STEP = 1e-4  # of central differences of the gradient
_WIDEST = 3.0  # standard deviation of a coordinate of which the shard knows little


class GroupedPosterior(Protocol):
    """What the preparation needs of a model."""

    def initial(self) -> Array:
        """Where the search starts."""

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        """Log priors and their gradients."""

    def taken_apart(self, points: Array) -> Points:
        """Points in their parts."""

    def gradients(self, points: Array, slopes: Derivatives) -> Array:
        """Gradients of the log-likelihood, from derivatives in those parts."""


class Adaptable(Protocol):
    """A shard whose integrals are computed by nodes."""

    @property
    def dim(self) -> int:
        """Dimensions of an integral, over all levels."""

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""

    def with_effort(self, effort: Effort) -> Self:
        """The same shard, with another effort."""

    def anchored_at(self, point: Points, n_steps: int) -> Self:
        """The same shard, with anchors at the modes of groups at one point."""


S = TypeVar("S", bound=Adaptable)


def prepared(model: GroupedPosterior, rough: S) -> S:
    """Find a rough mode, anchors there, and the effort that is needed.

    `rough` has its anchors at 0, and the effort `ROUGH`.
    """
    with np.errstate(all="ignore"):
        mode = _rough_mode(model, rough)
        anchored = rough.anchored_at(model.taken_apart(mode[None]), _ANCHOR_STEPS)
        cov = _rough_cov(model, anchored, mode)

        def values(points: Array, effort: Effort) -> Array:
            shard = anchored.with_effort(effort)
            likelihoods = shard.log_likelihoods(model.taken_apart(points))
            return likelihoods + model.log_prior_and_gradient_many(points)[0]

        return anchored.with_effort(sufficient(values, mode, cov, anchored.dim))


def _rough_mode(model: GroupedPosterior, rough: Adaptable) -> Array:
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


def _rough_cov(model: GroupedPosterior, anchored: Adaptable, mode: Array) -> Array:
    """Covariance from the curvature at the mode. Flat directions are given a moderate width."""
    dim = len(mode)
    steps = _STEP * np.eye(dim)
    _, gradients = _density(model, anchored, mode + np.concatenate([steps, -steps]))
    curvature = -(gradients[:dim] - gradients[dim:]) / (2 * _STEP)
    curvature = np.nan_to_num(0.5 * (curvature + curvature.T))
    bends, axes = np.linalg.eigh(curvature)
    return np.asarray(axes / np.maximum(bends, _WIDEST**-2) @ axes.T)


def _density(model: GroupedPosterior, shard: Adaptable, points: Array) -> tuple[Array, Array]:
    prior, of_prior = model.log_prior_and_gradient_many(points)
    values, slopes = shard.log_likelihoods_and_gradients(model.taken_apart(points))
    return prior + values, of_prior + model.gradients(points, slopes)
