"""The subposterior of eq. (2) as samplers see it: a log density on unconstrained points."""

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from quorate._types import Array, BoolArray
from quorate.errors import BadInputError, WrongShapeError, require
from quorate.models.checks import require_one_each
from quorate.models.protocol import (
    BatchedDifferentiableModel,
    BatchedModel,
    DifferentiableModel,
    Model,
    Shard,
)

NONE = -1e300  # stands for a log density of -inf where numbers have to be finite


@dataclass(frozen=True)
class Target:
    """log p(x)/K + log-likelihood of one shard, up to a constant."""

    model: Model
    shard: Shard
    n_shards: float  # K, which divides the log prior

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.model.dim

    @property
    def has_gradient(self) -> bool:
        """Whether the model is a `quorate.models.protocol.DifferentiableModel`."""
        return _has(self.model, "log_prior_and_gradient", "log_likelihood_and_gradient")

    @property
    def n_rows(self) -> int | None:
        """Number of rows of the shard; None if it has no arrays."""
        return next((len(rows) for rows in self.shard.values()), None)

    def log_density(self, x: Array) -> float:
        """The log density at x. The prior of the unconstrained point is raised to the power 1/K."""
        return self.model.log_prior(x) / self.n_shards + self.model.log_likelihood(x, self.shard)

    def log_density_and_gradient(self, x: Array) -> tuple[float, Array]:
        """The log density and its gradient, shape (d,), for models with gradients."""
        model = cast(DifferentiableModel, self.model)
        prior, prior_gradient = model.log_prior_and_gradient(x)
        likelihood, gradient = model.log_likelihood_and_gradient(x, self.shard)
        return prior / self.n_shards + likelihood, prior_gradient / self.n_shards + gradient


class Densities(NamedTuple):
    """Log densities at n points, and gradients if they were asked for.

    Values are `NONE`, and gradients 0, where either is not finite. `undefined` says where that is
    because a value is NaN or +inf, or because the model raised an error.
    """

    values: Array
    gradients: Array | None
    undefined: BoolArray


def log_densities(target: Target, points: Array) -> Array:
    """Log densities at `points` (n, d), shape (n,); `NONE` where they are not finite."""
    return densities(target, points).values


def densities(target: Target, points: Array) -> Densities:
    """Log densities at `points` (n, d).

    Points may lie where no chain would go and where a model overflows. A
    `quorate.models.protocol.BatchedModel` is evaluated at all of them at once; if that raises, it
    is evaluated one point at a time, so that one bad point does not spoil the others.
    """
    with np.errstate(all="ignore"):
        values = _at_once(target, points)
        if values is None:
            values = np.array([_value(target, x) for x in points])
    undefined = np.isnan(values) | (values == np.inf)
    return Densities(np.where(undefined, NONE, np.maximum(values, NONE)), None, undefined)


def log_densities_and_gradients(target: Target, points: Array) -> tuple[Array, Array]:
    """Log densities at `points` (n, d), shape (n,), and their gradients, shape (n, d)."""
    values, gradients, _ = densities_and_gradients(target, points)
    assert gradients is not None
    return values, gradients


def densities_and_gradients(target: Target, points: Array) -> Densities:
    """Log densities at `points` (n, d), and their gradients.

    Many points are evaluated at once as by `densities`, if the model is a
    `quorate.models.protocol.BatchedDifferentiableModel`.
    """
    require(
        target.has_gradient,
        f"{type(target.model).__name__} has no gradients. Use `log_densities`, or a model with "
        "gradients, such as one with `backend='jax'`.",
    )
    with np.errstate(all="ignore"):
        values, gradients = _pairs_at_once(target, points) or _pairs(target, points)
    fine = np.isfinite(values) & (values > NONE) & np.isfinite(gradients).all(axis=1)
    undefined = ~fine & (values != -np.inf) & ~(values <= NONE)
    return Densities(
        np.where(fine, values, NONE), np.where(fine[:, None], gradients, 0.0), undefined
    )


def _at_once(target: Target, points: Array) -> Array | None:
    """Log densities from the batched functions; None if the model has none or they raise."""
    if not _has(target.model, "log_prior_many", "log_likelihood_many"):
        return None
    model = cast(BatchedModel, target.model)
    try:
        prior = model.log_prior_many(points)
        likelihood = model.log_likelihood_many(points, target.shard)
    except WrongShapeError:
        raise
    except BadInputError:
        return None
    require_one_each("log_prior_many", prior, len(points))
    require_one_each("log_likelihood_many", likelihood, len(points))
    return np.asarray(prior / target.n_shards + likelihood)


def _pairs_at_once(target: Target, points: Array) -> tuple[Array, Array] | None:
    names = ("log_prior_and_gradient_many", "log_likelihood_and_gradient_many")
    if not _has(target.model, *names):
        return None
    model = cast(BatchedDifferentiableModel, target.model)
    try:
        prior, prior_gradient = model.log_prior_and_gradient_many(points)
        likelihood, gradient = model.log_likelihood_and_gradient_many(points, target.shard)
    except WrongShapeError:
        raise
    except BadInputError:
        return None
    for name, values in zip(names, (prior, likelihood), strict=True):
        require_one_each(name, values, len(points))
    values = prior / target.n_shards + likelihood
    return np.asarray(values), np.asarray(prior_gradient / target.n_shards + gradient)


def _value(target: Target, x: Array) -> float:
    try:
        return float(target.log_density(x))
    except BadInputError:
        return np.nan


def _pairs(target: Target, points: Array) -> tuple[Array, Array]:
    values, gradients = np.full(len(points), np.nan), np.zeros((len(points), target.dim))
    for i, x in enumerate(points):
        with suppress(BadInputError):
            values[i], gradients[i] = target.log_density_and_gradient(x)
    return values, gradients


def _has(model: Model, *names: str) -> bool:
    return all(hasattr(model, name) for name in names)
