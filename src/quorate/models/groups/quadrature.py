"""Adaptive Gauss–Hermite quadrature of the parameters of a group.

For a group with parameters z in R^q, log ∫ exp h(z) dz is computed at nodes that are placed by a
centre c and a curvature H, as if exp h were proportional to N(c, H⁻¹):

    z_k = c + U t_k with U Uᵀ = H⁻¹,    log ∫ exp h ≈ logsumexp_k(log w_k + h(z_k) + |t_k|²/2)
                                                      + q/2 log 2π + log det U.

c and H need not be exact: they place the nodes, and the sum is right for any smooth h if there are
enough of them. Where many are needed in one dimension, h is far from quadratic, as in a group whose
responses are all 1 under a wide prior: exp h rises within a few units and falls over hundreds. The
nodes are then spaced by a hyperbolic sine: densely at the centre, and as far out as 20 standard
deviations of N(0, H⁻¹). Small matrices are written with their two axes first, so that one operation
serves all groups, nodes and points.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from quorate._types import Array
from quorate.models.arrays import AnyArray, Namespace

MOST_DIMENSIONS = 3  # of integrals by nodes, whose number is a power of this
_MANY_NODES = 31  # from which on those of one dimension are spaced by a hyperbolic sine
_REACH = 20.0  # of such nodes, in standard deviations
_DENSE = 0.1  # standard deviations from the centre, within which they are evenly spaced
_NEGLIGIBLE = 1e-9  # share of the weights of those nodes that are left out
_LEAST_PIVOT = 1e-8  # of a Cholesky factorisation, relative to the diagonal


@dataclass(frozen=True, eq=False)
class Rule:
    """Nodes and weights for densities about as wide as a standard normal one, in q dimensions.

    If all nodes of the product are kept, `nodes[i * k + j]` is `across[j]` with `along[i]` added to
    its first coordinate. Else `along` is a single 0, and `across` are the nodes.
    """

    nodes: Array  # (m, q)
    log_weights: Array  # (m,), of exp h(z_k): log w_k + |t_k|²/2 + q/2 log 2π
    along: Array  # (n,)
    across: Array  # (k, q)

    @cached_property
    def basis(self) -> Array:
        """Log weights, 1, t_i, and t_i t_j for i <= j: (m, 2 + q + q(q+1)/2)."""
        t = self.nodes.T
        squares = [t[i] * t[j] for i in range(len(t)) for j in range(i, len(t))]
        return np.column_stack([self.log_weights, np.ones(len(self.nodes)), *t, *squares])


class Places(NamedTuple):
    """Where the nodes of groups are placed at points: z_k = c + U t_k."""

    centre: Array  # c, (q, n_points, g)
    upper: list[list[Array]]  # U, as `spread` returns it, (n_points, g) each
    rule: Rule

    @property
    def local(self) -> Array:
        """z at the nodes, (q, m, n_points, g)."""
        return self.of(self.rule.nodes)

    def of(self, nodes: Array) -> Array:
        """z of nodes t (m, q), (q, m, n_points, g)."""
        q, *shape = self.centre.shape
        local = np.empty((q, len(nodes), *shape))
        for i, (centre, row) in enumerate(zip(self.centre, self.upper, strict=True)):
            terms = np.stack([centre, *row[i:]]).reshape(1 + q - i, -1)
            factors = np.column_stack([np.ones(len(nodes)), nodes[:, i:]])
            np.matmul(factors, terms, out=local[i].reshape(len(nodes), -1))
        return local


@cache
def rule_of(n_nodes: int, dim: int) -> Rule:
    """The rule with `n_nodes` in each dimension."""
    if dim == 1 and n_nodes >= _MANY_NODES:
        return _wide_rule(n_nodes)
    return _gauss_hermite(n_nodes, dim)


def _wide_rule(n_nodes: int) -> Rule:
    """The trapezoidal rule in s, where t = c sinh s, and c is `_DENSE`."""
    furthest = np.arcsinh(_REACH / _DENSE)
    s, step = np.linspace(-furthest, furthest, n_nodes, retstep=True)
    nodes = _DENSE * np.sinh(s)
    return Rule(nodes[:, None], np.log(step * _DENSE * np.cosh(s)), nodes, np.zeros((1, 1)))


def _gauss_hermite(n_nodes: int, dim: int) -> Rule:
    """The product of Gauss–Hermite rules, without nodes of negligible weight."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    weights = weights / weights.sum()
    grid = np.array(list(product(nodes, repeat=dim)))
    log_weights = np.log(np.array(list(product(weights, repeat=dim)))).sum(axis=1)
    kept = _above(log_weights)
    along, across = np.zeros(1), grid[kept]
    if kept.all():
        along, across = nodes, grid[: len(grid) // n_nodes] * (np.arange(dim) > 0)
    grid, log_weights = grid[kept], log_weights[kept]
    constant = 0.5 * dim * np.log(2 * np.pi)
    return Rule(grid, log_weights + 0.5 * (grid**2).sum(axis=1) + constant, along, across)


def _above(log_weights: Array) -> Any:
    """Which nodes to keep: all but those whose weights sum to a negligible share."""
    order = np.argsort(log_weights, kind="stable")
    lost = np.cumsum(np.exp(log_weights[order]))
    kept = np.ones(len(order), dtype=bool)
    kept[order[lost < _NEGLIGIBLE]] = False
    return kept


def spread(curvature: Any, xp: Namespace = np) -> tuple[list[list[Any]], AnyArray]:
    """U, upper triangular, with U Uᵀ = H⁻¹, and log det U.

    Parameters
    ----------
    curvature
        H: `curvature[i][j]` is an array, for i, j < q. Only i >= j is read. Where H is not positive
        definite, its pivots are raised.

    Returns
    -------
    tuple
        `U[i][j]`, arrays for i <= j and 0.0 below, and log det U.
    """
    dim = len(curvature)
    lower = _cholesky(curvature, xp)
    inverse: list[list[Any]] = [[0.0] * dim for _ in range(dim)]  # of L; its transpose is U
    for j in range(dim):
        for i in range(j, dim):
            known = sum((lower[i][k] * inverse[k][j] for k in range(j, i)), 0.0)
            inverse[i][j] = ((1.0 if i == j else 0.0) - known) / lower[i][i]
    log_det = -sum(xp.log(lower[i][i]) for i in range(dim))
    return [[inverse[j][i] for j in range(dim)] for i in range(dim)], log_det


def _cholesky(matrix: Any, xp: Namespace) -> list[list[Any]]:
    dim = len(matrix)
    lower: list[list[Any]] = [[0.0] * dim for _ in range(dim)]
    for i in range(dim):
        for j in range(i + 1):
            rest = matrix[i][j] - sum((lower[i][k] * lower[j][k] for k in range(j)), 0.0)
            if i > j:
                lower[i][j] = rest / lower[j][j]
            else:
                least = _LEAST_PIVOT * xp.abs(matrix[i][i]) + 1e-300
                lower[i][i] = xp.sqrt(xp.maximum(rest, least))
    return lower


def newton_step(
    upper: list[list[Any]], slope: Any, longest: float | AnyArray, xp: Namespace = np
) -> tuple[list[Any], AnyArray]:
    """H⁻¹ g, shortened to at most `longest` standard deviations of N(0, H⁻¹), and its whole length.

    `upper` is U of `spread`, and `slope[i]` are the entries of g.
    """
    white = whitened(upper, slope)
    length = xp.sqrt(sum(part**2 for part in white))
    shorter = xp.minimum(1.0, longest / xp.maximum(length, 1e-300))
    return [shorter * part for part in coloured(upper, white)], length


def length_of(curvature: Any, vector: Any, xp: Namespace = np) -> AnyArray:
    """Length of a vector z in standard deviations of N(0, H⁻¹): the root of zᵀHz.

    `curvature[i][j]` and `vector[i]` are arrays. Only i >= j is read.
    """
    square = 0.0
    for i, row in enumerate(vector):
        across = sum((curvature[i][j] * vector[j] for j in range(i)), 0.0)
        square = square + row * (curvature[i][i] * row + 2 * across)
    return xp.sqrt(square)


def solved(upper: list[list[Any]], slope: Any) -> list[Any]:
    """H⁻¹ g."""
    return coloured(upper, whitened(upper, slope))


def whitened(upper: list[list[Any]], slope: Any) -> list[Any]:
    """Uᵀ g."""
    return [sum(upper[i][j] * slope[i] for i in range(j + 1)) for j in range(len(slope))]


def coloured(upper: list[list[Any]], white: Any) -> list[Any]:
    """U t: distributed as N(0, H⁻¹) if t is standard normal."""
    dim = len(white)
    return [sum(upper[i][j] * white[j] for j in range(i, dim)) for i in range(dim)]


def covariance_of(upper: list[list[Any]]) -> Array:
    """U Uᵀ = H⁻¹, (q, q, ...)."""
    dim = len(upper)
    zero = np.zeros_like(upper[0][0])
    whole = np.array([[upper[i][j] + zero for j in range(dim)] for i in range(dim)])
    return np.asarray(np.einsum("ik...,jk...->ij...", whole, whole))
