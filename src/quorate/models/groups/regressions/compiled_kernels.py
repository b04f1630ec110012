"""Integrated likelihoods of groups by nodes, in JAX: sums over many groups of one size.

The arithmetic is that of `kernels` and `integrals`, and so are the axes of arrays: (rows, points,
groups). Nodes are taken one after the other, so memory does not grow with their number but for one
number for each node, point and group.
"""

from functools import cache
from typing import Any, NamedTuple

from quorate._extras import jax_in_float64
from quorate.models.groups.accuracy import Effort
from quorate.models.groups.quadrature import length_of, newton_step, rule_of, spread
from quorate.models.groups.regressions.integrals import (
    LONGEST_STEP,
    MOST_STEPS,
    SHORT_STEP,
    Prior,
    damping,
)
from quorate.models.groups.regressions.kernels import FURTHEST, LARGEST
from quorate.models.groups.regressions.points import Points
from quorate.models.regressions.families import NegativeBinomial, Poisson
from quorate.models.regressions.family import Family

ROWS_OF_A_PRODUCT = 8  # sizes above are multiples of it; terms in (1, 2] multiply to below 2^8
_FEW_COLUMNS = 8  # up to which a matrix product is slower than sums column by column


class Kind(NamedTuple):
    """What is compiled into a kernel, beside the shapes of its arrays."""

    is_softplus: bool  # b is log(1 + exp), or else exp
    has_scale: bool  # w is y + counts · exp(log scale), and the shift is the log scale
    is_intercept: bool  # Z is a single column of ones
    count_once: bool  # all counts are 0 or 1, and there is no scale

    @classmethod
    def of(cls, family: Family, *, is_intercept: bool, count_once: bool) -> "Kind":
        """The kind of a family."""
        has_scale = isinstance(family, NegativeBinomial)
        is_softplus = not isinstance(family, Poisson)
        return cls(is_softplus, has_scale, is_intercept, count_once and not has_scale)


class Class(NamedTuple):
    """Groups of one size, on the device. `exists` is 0 for groups that fill up."""

    columns: Any  # (size, p, g)
    varying: Any  # (size, q, g); (size, 0, g) for a single column of ones
    offset: Any  # (size, 0 or 1, g)
    response: Any  # (size, g)
    counts: Any  # (size, g)
    exists: Any  # (g,)


class At(NamedTuple):
    """Points, with the normal priors of the parameters of a group there."""

    betas: Any  # (n_points, p)
    log_scales: Any  # (n_points,)
    precision: Any  # (q, q, n_points)
    log_constant: Any  # (n_points,)


def at_points(points: Points) -> At:
    """Points with one level of groups."""
    prior = Prior.of(points.covs[0])
    return At(points.betas, points.log_scales, prior.precision, prior.log_constant)


class Totals(NamedTuple):
    """Sums over groups, for each point. Without gradients all but the first are None."""

    log_integrals: Any  # (n_points,)
    by_beta: Any = None  # Σ E[w b'(η)] x, (n_points, p)
    pulls: Any = None  # Σ E[w b'(η)], (n_points,)
    terms: Any = None  # Σ counts · E[b(η)], (n_points,)
    squares: Any = None  # Σ E[z zᵀ], (n_points, q, q)


class _Rows(NamedTuple):
    """Rows of a class at points."""

    offsets: Any  # (size, n_points, g); -inf in rows that count nothing
    weights: Any  # (size, 1 or n_points, g)
    response: Any  # (size, 1, g)
    varying: Any  # as in `Class`


@cache
def kernels() -> tuple[Any, Any]:
    """`totals` and `centres`, compiled."""
    jit = jax_in_float64().jit
    return (
        jit(_totals, static_argnames=("kind", "effort", "gradient")),
        jit(_centres, static_argnames=("kind", "n_steps")),
    )


def _totals(kind: Kind, some: Class, at: At, anchors: Any, effort: Effort, gradient: bool) -> Any:
    """`Totals` of a class, where anchors are (q, g)."""
    xp = jax_in_float64().numpy
    rows = _rows_of(kind, some, at)
    centre, upper, log_det = _placed(kind, rows, at, anchors, effort.n_steps)
    rule = rule_of(effort.n_nodes, len(anchors))
    nodes, log_weights = xp.asarray(rule.nodes), xp.asarray(rule.log_weights)
    response = _response_by_parameter(kind, some)

    def joint(_: None, node: Any) -> tuple[None, Any]:
        t, log_weight = node
        local = _at_node(centre, upper, t)
        return None, _log_joint(kind, rows, at, response, local) + log_det + log_weight

    _, log_terms = jax_in_float64().lax.scan(joint, None, (nodes, log_weights))
    top = log_terms.max(axis=0)
    top = xp.where(xp.isfinite(top), top, 0.0)
    terms = xp.exp(log_terms - top)
    whole = terms.sum(axis=0)
    value = (some.exists * (top + xp.log(whole))).sum(axis=1)
    if not gradient:
        return Totals(value)
    shares = some.exists * (terms / whole)
    return _with_slopes(kind, some, rows, value, shares, (centre, upper, nodes))


def _with_slopes(
    kind: Kind, some: Class, rows: _Rows, value: Any, shares: Any, placed: tuple[Any, Any, Any]
) -> Totals:
    """Totals with the means over nodes that gradients are made of; shares are (m, n_points, g)."""
    xp, (centre, upper, nodes) = jax_in_float64().numpy, placed
    nothing = xp.zeros_like(rows.offsets)

    q, n_points, _ = centre.shape
    pairs = [(i, j) for i in range(q) for j in range(q)]

    def add(sums: Any, node: Any) -> tuple[Any, None]:
        pulls, terms, squares = sums
        t, share = node
        local = _at_node(centre, upper, t)
        odds = xp.minimum(_odds(kind, rows, local), LARGEST)
        pulls = pulls + share * (odds / (1 + odds) if kind.is_softplus else odds)
        if kind.has_scale:
            terms = terms + share * xp.log1p(odds)
        squares = [
            old + share * local[i] * local[j] for old, (i, j) in zip(squares, pairs, strict=True)
        ]
        return (pulls, terms, squares), None

    start = (nothing, nothing if kind.has_scale else 0.0, [nothing[0]] * len(pairs))
    sums, _ = jax_in_float64().lax.scan(add, start, (nodes, shares))
    pulls, terms = rows.weights * sums[0], sums[1]
    of_scale = xp.zeros(n_points)
    return Totals(
        value,
        _by_column(pulls, some.columns),
        pulls.sum(axis=(0, 2)) if kind.has_scale else of_scale,
        (terms * some.counts[:, None]).sum(axis=(0, 2)) if kind.has_scale else of_scale,
        xp.stack([square.sum(axis=1) for square in sums[2]], axis=1).reshape(n_points, q, q),
    )


def _by_column(values: Any, columns: Any) -> Any:
    """Σ value · x over rows and groups, (n_points, p)."""
    xp = jax_in_float64().numpy
    if columns.shape[1] > _FEW_COLUMNS:
        return xp.einsum("sbg,scg->bc", values, columns)
    each = [(values * columns[:, c, None]).sum(axis=(0, 2)) for c in range(columns.shape[1])]
    return xp.stack(each, axis=1)


def _predictors(betas: Any, columns: Any) -> Any:
    """Xβ of every row at every point, (size, n_points, g)."""
    if columns.shape[1] > _FEW_COLUMNS:
        return jax_in_float64().numpy.einsum("bc,scg->sbg", betas, columns)
    each = (betas[:, c, None] * columns[:, c, None] for c in range(columns.shape[1]))
    return sum(each)


def _centres(kind: Kind, some: Class, at: At, anchors: Any, n_steps: int) -> Any:
    """Modes of z at the first point, (q, g), after some Newton steps from the anchors."""
    centre, _, _ = _placed(kind, _rows_of(kind, some, at), at, anchors, n_steps)
    return centre[:, 0]


def _rows_of(kind: Kind, some: Class, at: At) -> _Rows:
    xp = jax_in_float64().numpy
    offsets = _predictors(at.betas, some.columns)
    if some.offset.shape[1]:
        offsets = offsets + some.offset
    weights, response = some.counts[:, None], some.response[:, None]
    if kind.has_scale:
        offsets = offsets - at.log_scales[:, None]
        weights = response + weights * xp.exp(at.log_scales)[:, None]
    offsets = xp.where(some.counts[:, None] == 0, -xp.inf, offsets)
    return _Rows(offsets, weights, response, some.varying)


def _placed(
    kind: Kind, rows: _Rows, at: At, anchors: Any, n_steps: int
) -> tuple[Any, list[list[Any]], Any]:
    """Centres (q, n_points, g), U and log det U, as `integrals.placed` finds them."""
    jax = jax_in_float64()
    xp, q = jax.numpy, len(anchors)
    shape = rows.offsets.shape[1:]
    pairs = [(i, j) for i in range(q) for j in range(i, q)]

    damped = xp.asarray([damping(step) for step in range(MOST_STEPS)])

    def goes_on(state: Any) -> Any:
        step, _, _, _, far = state
        return (step < n_steps) | ((step < n_steps + MOST_STEPS) & far.any())

    def body(state: Any) -> Any:
        step, centre, upper, log_det, far = state
        slopes, curvatures = _derivatives(kind, rows, at, centre)
        nearer, new_log_det = spread(curvatures, xp)
        longest = xp.maximum(LONGEST_STEP, length_of(curvatures, centre, xp))
        longest = damped[xp.maximum(step - n_steps, 0)] * longest
        move, length = newton_step(nearer, slopes, longest, xp)
        moving = (step < n_steps) | far
        return (
            step + 1,
            xp.where(moving, centre + xp.stack(move), centre),
            [xp.where(moving, nearer[i][j], old) for (i, j), old in zip(pairs, upper, strict=True)],
            xp.where(moving, new_log_det, log_det),
            moving & (length > SHORT_STEP),
        )

    nothing = xp.zeros(shape)
    start = xp.broadcast_to(anchors[:, None], (q, *shape))
    state = (0, start, [nothing] * len(pairs), nothing, xp.zeros(shape, dtype=bool))
    _, centre, upper, log_det, _ = jax.lax.while_loop(goes_on, body, state)
    found = dict(zip(pairs, upper, strict=True))
    return centre, [[found.get((i, j), 0.0) for j in range(q)] for i in range(q)], log_det


def _derivatives(kind: Kind, rows: _Rows, at: At, centre: Any) -> tuple[list[Any], list[list[Any]]]:
    """Gradient and curvature of the joint log density in z, at `centre` (q, n_points, g)."""
    xp, q = jax_in_float64().numpy, len(centre)
    odds = _odds(kind, rows, xp.clip(centre, -FURTHEST, FURTHEST))
    odds = xp.minimum(odds, LARGEST)
    if kind.is_softplus:
        pulls = rows.weights * odds / (1 + odds)
        bends = pulls / (1 + odds)
    else:
        pulls = bends = rows.weights * odds

    def summed(values: Any, *parameters: int) -> Any:
        for j in () if kind.is_intercept else parameters:
            values = values * rows.varying[:, None, j]
        return values.sum(axis=0)

    precision = at.precision[..., None]
    slopes = [
        summed(rows.response - pulls, i) - sum(precision[i, j] * centre[j] for j in range(q))
        for i in range(q)
    ]
    curvatures = [[summed(bends, i, j) + precision[i, j] for j in range(i + 1)] for i in range(q)]
    return slopes, curvatures


def _at_node(centre: Any, upper: list[list[Any]], t: Any) -> Any:
    """z at one node, (q, n_points, g)."""
    q = len(centre)
    moved = [centre[i] + sum(upper[i][j] * t[j] for j in range(i, q)) for i in range(q)]
    return jax_in_float64().numpy.stack(moved)


def _log_joint(kind: Kind, rows: _Rows, at: At, response: Any, local: Any) -> Any:
    """log p(z|φ) p(rows|z, φ) at `local` (q, n_points, g), without terms linear in Xβ."""
    values = at.log_constant[:, None] - _sums(kind, rows, local)
    for i, by_parameter in enumerate(response):
        pull = by_parameter - 0.5 * at.precision[i, i][:, None] * local[i]
        for j in range(i):
            pull = pull - at.precision[i, j][:, None] * local[j]
        values = values + pull * local[i]
    return values


def _sums(kind: Kind, rows: _Rows, local: Any) -> Any:
    """Σ w b(η) over rows, (n_points, g), at `local` (q, n_points, g)."""
    xp = jax_in_float64().numpy
    if not kind.is_softplus and kind.is_intercept:
        near = xp.exp(xp.minimum(rows.offsets, FURTHEST))
        return (rows.weights * near).sum(axis=0) * xp.exp(local[0])
    if not kind.is_softplus:
        return (rows.weights * _odds(kind, rows, local)).sum(axis=0)
    eta = _eta(kind, rows, local)
    small, above = xp.exp(-xp.abs(eta)), xp.maximum(eta, 0.0)
    if not kind.count_once:
        return (rows.weights * (above + xp.log1p(small))).sum(axis=0)
    n = min(len(eta), ROWS_OF_A_PRODUCT)
    products = (1 + small).reshape(-1, n, *small.shape[1:]).prod(axis=1)
    return above.sum(axis=0) + xp.log(products).sum(axis=0)


def _odds(kind: Kind, rows: _Rows, local: Any) -> Any:
    """exp η, (size, n_points, g), at `local` (q, n_points, g)."""
    xp = jax_in_float64().numpy
    if not kind.is_intercept:
        return xp.exp(_eta(kind, rows, local))
    return xp.exp(xp.minimum(rows.offsets, FURTHEST)) * xp.exp(xp.minimum(local[0], FURTHEST))


def _eta(kind: Kind, rows: _Rows, local: Any) -> Any:
    if kind.is_intercept:
        return rows.offsets + local[0]
    return rows.offsets + sum(rows.varying[:, None, j] * one for j, one in enumerate(local))


def _response_by_parameter(kind: Kind, some: Class) -> Any:
    """Zᵀy of each group, (q, g)."""
    if kind.is_intercept:
        return some.response.sum(axis=0)[None]
    return jax_in_float64().numpy.einsum("sjg,sg->jg", some.varying, some.response)
