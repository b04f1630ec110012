"""Anchors of a shard: where the nodes of all its groups start from, at every point.

They are found once for each shard, and depend on nothing but its rows: a rough mode of the prior
and the integrated likelihood, and the modes of the groups' parameters there. The number of nodes
and of Newton steps is chosen around that mode.
"""

from typing import Protocol

import numpy as np

from quorate._types import Array
from quorate.models.groups.accuracy import Effort, Measured, finest, measured
from quorate.models.groups.programs.integral import Arguments
from quorate.models.groups.quadrature import rule_of

_SEARCHES = (30, *[10] * 14)  # Newton steps before each climb to the mode
_ROUGH = Effort(5, 6)  # of the climb: groups must follow it, however far it goes
_GAIN = 0.5  # log units; a climb that gains less was the last
_STEP = 1e-3  # of finite differences of gradients
_FLATTEST = 1e-4  # least curvature; points that are too far out are moved in afterwards
_LOWEST = -1e50  # in place of a density that is not finite


class Posterior(Protocol):
    """Prior times integrated likelihood of one shard."""

    def values(self, points: Array, given: Arguments) -> Array:
        """Log densities at points (n, d), shape (n,)."""

    def value_and_gradient(self, x: Array, given: Arguments) -> tuple[float, Array]:
        """The log density and its gradient (d,), which need not be exact."""

    def anchored(self, x: Array, given: Arguments) -> Arguments:
        """The arguments with anchors at the modes of the groups' parameters at a point."""


def unanchored(inputs: object, n_groups: int, dim: int) -> Arguments:
    """The arguments of a search that starts at z = 0."""
    spreads = np.broadcast_to(np.eye(dim)[:, :, None], (dim, dim, n_groups))
    anchors = np.zeros((n_groups, dim))
    none = Arguments(inputs, anchors, np.array(spreads), np.zeros((0, dim)), np.zeros(0), 0, 0)
    return with_effort(none, _ROUGH)


def dim_of(given: Arguments) -> int:
    """Dimensions of an integral, those of the integrals within it included."""
    dim: int = given.anchors.shape[1]
    return dim + dim_of(given.inputs) if isinstance(given.inputs, Arguments) else dim


def with_effort(given: Arguments, effort: Effort) -> Arguments:
    """The arguments with other nodes and steps. Arrays of nodes keep their shapes.

    Integrals within an integral get the same effort.
    """
    if isinstance(given.inputs, Arguments):
        given = given._replace(inputs=with_effort(given.inputs, effort))
    dim = given.anchors.shape[1]
    rule = rule_of(effort.n_nodes, dim)
    n_nodes, most = len(rule.nodes), len(rule_of(finest(dim).n_nodes, dim).nodes)
    nodes, log_weights = np.zeros((most, dim)), np.full(most, -np.inf)
    nodes[:n_nodes], log_weights[:n_nodes] = rule.nodes, rule.log_weights
    return given._replace(
        nodes=nodes, log_weights=log_weights, n_nodes=n_nodes, n_steps=effort.n_steps
    )


def examined_mode(posterior: Posterior, given: Arguments, start: Array) -> tuple[Array, Effort]:
    """A rough mode (d,), and the effort that integrals need around it."""
    x, needed = _examined(posterior, given, start)
    if needed.effort.n_nodes > _ROUGH.n_nodes:  # the search saw a density that was too coarse
        x, needed = _examined(posterior, with_effort(given, needed.effort), x)
    return x, needed.tolerated()


def _examined(posterior: Posterior, given: Arguments, start: Array) -> tuple[Array, Measured]:
    """A mode, found with the effort of the arguments, and the effort that is needed around it."""
    x = start
    for n_steps in _SEARCHES:
        given = anchored(posterior, x, given, n_steps)
        before = x
        x = _climbed(posterior, x, given)
        high, low = posterior.values(np.array([x, before]), given)
        if not high - low > _GAIN:
            break
    given = anchored(posterior, x, given, _SEARCHES[-1])
    cov = _covariance(posterior, x, given)

    def values(points: Array, effort: Effort) -> Array:
        return posterior.values(points, with_effort(given, effort))

    return x, measured(values, x, cov, dim_of(given))


def anchored(
    posterior: Posterior, x: Array, given: Arguments, n_steps: int = _SEARCHES[0]
) -> Arguments:
    """The arguments with anchors at the modes of the groups' parameters at x."""
    found = posterior.anchored(x, given._replace(n_steps=n_steps))
    return found._replace(n_steps=given.n_steps)


def _climbed(posterior: Posterior, x: Array, given: Arguments) -> Array:
    """A mode in x, with anchors held fixed."""
    from scipy.optimize import minimize  # slow to import

    def loss(x: Array) -> tuple[float, Array]:
        value, gradient = posterior.value_and_gradient(x, given)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return -_LOWEST, np.zeros_like(x)
        return -value, -gradient

    found = minimize(loss, x, jac=True, method="L-BFGS-B", options={"maxiter": 60, "ftol": 1e-8})
    return np.asarray(found.x)


def _covariance(posterior: Posterior, x: Array, given: Arguments) -> Array:
    """Inverse of the curvature in x; nearly flat directions get a large variance."""
    dim = len(x)
    hessian = np.empty((dim, dim))
    for i, move in enumerate(_STEP * np.eye(dim)):
        up, down = (posterior.value_and_gradient(x + s * move, given)[1] for s in (1, -1))
        hessian[i] = (up - down) / (2 * _STEP)
    hessian = np.where(np.isfinite(hessian), hessian, 0.0)
    lengths, axes = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    return np.asarray((axes / np.maximum(lengths, _FLATTEST)) @ axes.T)
