"""The integral over the parameters of every group of a shard, at one point.

`joint` maps z (m, q), the unconstrained parameters of m groups, to their log joint densities with
their rows, (m,). Nodes are placed by Newton steps from anchors, which depend on the shard only.
All functions take `Arguments`, so that JAX compiles them once for all numbers of nodes and steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from quorate._extras import jax_in_float64
from quorate.models.arrays import AnyArray
from quorate.models.groups.programs.backends import Backend
from quorate.models.groups.quadrature import newton_step, spread

Joint = Callable[[AnyArray], AnyArray]
_FAR = 1e12  # standard deviations: no limit to Newton steps, except where curvatures are tiny
_SHARES = (0.2, 1.0)  # of a step's length that a search tries
_LONG = 1.0  # standard deviations; after a longer step, a group is not near its mode
_SHORT = 0.1  # after which a climb has ended
_LEAST_SHARE = 1e-6  # of a step, below which a climb has given up
_MOST_STEPS = 60  # of a climb


class Arguments(NamedTuple):
    """What an integral depends on besides the point. Numbers may be traced by JAX."""

    inputs: Any  # the rows of the shard, in the form that the joint density takes
    anchors: AnyArray  # (m, q)
    spreads: AnyArray  # (q, q, m): U of `quadrature.spread` at the anchors
    nodes: AnyArray  # (at least n_nodes, q)
    log_weights: AnyArray
    n_nodes: Any
    n_steps: Any


def placed(joint: Joint, given: Arguments, backend: Backend) -> tuple[AnyArray, AnyArray]:
    """Centres (m, q) and spreads (q, q, m) after Newton steps from the anchors.

    Groups whose last step was long begin again at their anchors, and climb until a step is short.
    Steps of full length may jump to and fro over the mode of a group whose prior is wide.
    """
    xp = backend.xp

    def step(_: Any, state: Any) -> Any:
        move, spreads, length = _newton(joint, state[0], state[1], backend)
        return state[0] + move, spreads, length

    none = xp.zeros(len(given.anchors))
    start = given.anchors, given.spreads, none
    centres, spreads, length = backend.loop(given.n_steps, step, start)
    at_anchors = _Climb(given.anchors, given.spreads, none + 1.0, length)
    begun = at_anchors.where(length > _LONG, _Climb(centres, spreads, none, none), xp)

    def goes_on(state: Any) -> Any:
        return (state[0] < _MOST_STEPS) & state[1].goes_on.any()

    def climb_on(state: Any) -> Any:
        n_steps, climb = state
        return n_steps + 1, _climbed(joint, climb, backend).where(climb.goes_on, climb, xp)

    _, found = backend.loop_while(goes_on, climb_on, (0, begun))
    return found.z, found.spreads


def searched(joint: Joint, given: Arguments, backend: Backend) -> tuple[AnyArray, AnyArray]:
    """Modes (m, q) and spreads (q, q, m), by steps that never lower the density."""
    ones = backend.xp.ones(len(given.anchors))
    start = _Climb(given.anchors, given.spreads, ones, ones)
    found = backend.loop(given.n_steps, lambda _, climb: _climbed(joint, climb, backend), start)
    return found.z, found.spreads


class _Climb(NamedTuple):
    """Where groups are on the way to their modes."""

    z: AnyArray  # (m, q)
    spreads: AnyArray  # (q, q, m), before the last step
    share: AnyArray  # (m,), of a Newton step that is tried
    length: AnyArray  # (m,), of the last Newton step, in standard deviations

    @property
    def goes_on(self) -> AnyArray:
        """Which groups are neither near their modes nor stuck, (m,)."""
        return (self.length > _SHORT) & (self.share > _LEAST_SHARE)

    def where(self, which: AnyArray, other: "_Climb", xp: Any) -> "_Climb":
        """Some groups as they are here, and all others as they are in `other`."""
        return _Climb(
            xp.where(which[:, None], self.z, other.z),
            xp.where(which, self.spreads, other.spreads),
            xp.where(which, self.share, other.share),
            xp.where(which, self.length, other.length),
        )


def _climbed(joint: Joint, climb: _Climb, backend: Backend) -> _Climb:
    """The best of some shares of a Newton step, if it is better than none."""
    xp = backend.xp
    move, spreads, length = _newton(joint, climb.z, climb.spreads, backend)
    best, top = climb.z, joint(climb.z)
    for share in _SHARES:
        candidate = climb.z + (share * climb.share)[:, None] * move
        value = joint(candidate)
        better = (value > top) | ~xp.isfinite(top)
        best = xp.where(better[:, None], candidate, best)
        top = xp.where(better, value, top)
    moved = (best != climb.z).any(axis=1)
    share = xp.where(moved, xp.minimum(1.0, 4 * climb.share), 0.1 * climb.share)
    return _Climb(best, spreads, share, length)


def log_integrals(
    joint: Joint, centres: AnyArray, spreads: AnyArray, given: Arguments, backend: Backend
) -> AnyArray:
    """log ∫ exp joint dz of each group, without log det U."""
    xp = backend.xp

    def add(k: Any, total: AnyArray) -> AnyArray:
        values = joint(_at_node(centres, spreads, given.nodes[k], xp))
        return xp.logaddexp(total, given.log_weights[k] + values)

    return backend.loop(given.n_nodes, add, xp.full(len(centres), -xp.inf))


def log_det(spreads: AnyArray, backend: Backend) -> AnyArray:
    """log det U of each group."""
    return sum(backend.xp.log(spreads[i, i]) for i in range(len(spreads)))


def expectations(
    joint: Joint,
    function: Callable[[AnyArray], AnyArray],
    given: Arguments,
    backend: Backend,
    within: AnyArray | None = None,
) -> AnyArray:
    """E[function(z) | rows] of each group, where `function` maps z (m, q) to (m, k).

    If it maps to values of n groups within these, (n, k), `within` (n,) tells where they lie.
    """
    xp = backend.xp
    centres, spreads = placed(joint, given, backend)
    totals = log_integrals(joint, centres, spreads, given, backend)

    def add(k: Any, total: AnyArray) -> AnyArray:
        z = _at_node(centres, spreads, given.nodes[k], xp)
        share = xp.exp(given.log_weights[k] + joint(z) - totals)
        share = share if within is None else share[within]
        return total + share[:, None] * function(z)

    return backend.loop(given.n_nodes, add, xp.zeros_like(function(centres)))


def gradient(
    joint: Callable[[AnyArray, AnyArray], AnyArray],
    x: AnyArray,
    centres: AnyArray,
    spreads: AnyArray,
    totals: AnyArray,
    given: Arguments,
    weights: AnyArray | None = None,
) -> AnyArray:
    """Gradient in x of the sum of log integrals, by differentiation under the integral (JAX).

    Integrals of groups may have weights (m,) in the sum.

    Nodes stay where they are. The integral does not depend on where they are, but for the error of
    the quadrature.
    """
    jax = jax_in_float64()

    def add(k: Any, total: AnyArray) -> AnyArray:
        z = _at_node(centres, spreads, given.nodes[k], jax.numpy)
        values, pull = jax.vjp(lambda x: joint(x, z), x)
        shares = jax.numpy.exp(given.log_weights[k] + values - totals)
        return total + pull(shares if weights is None else weights * shares)[0]

    return jax.lax.fori_loop(0, given.n_nodes, add, jax.numpy.zeros_like(x))


def _newton(
    joint: Joint, z: AnyArray, spreads: AnyArray, backend: Backend
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The Newton step at z, U there, and the length of the step; infinite without a gradient."""
    xp, dim = backend.xp, z.shape[1]
    sds = xp.stack([xp.sqrt((spreads[i] ** 2).sum(axis=0)) for i in range(dim)], axis=-1)
    slope, curvature = backend.derivatives(joint, z, sds)
    is_known = xp.isfinite(sum(slope))
    slope = [xp.where(is_known, part, 0.0) for part in slope]
    upper, _ = spread(_definite(curvature, xp), xp)
    step, length = newton_step(upper, slope, _FAR, xp)
    zero = xp.zeros(len(z))
    whole = xp.stack([xp.stack([part + zero for part in row]) for row in upper])
    return xp.stack(step, axis=-1), whole, xp.where(is_known, length, xp.inf)


def _definite(curvature: list[list[AnyArray]], xp: Any) -> list[list[AnyArray]]:
    """Curvatures, replaced by a diagonal that dominates them where they are not positive."""
    dim = len(curvature)
    positive = _least_minor(curvature, xp) > 0
    rows = [sum(xp.abs(_entry(curvature, i, j)) for j in range(dim)) for i in range(dim)]
    usable = [xp.isfinite(row) & (row > 0) for row in rows]
    bounds = [xp.where(fine, row, 1.0) for fine, row in zip(usable, rows, strict=True)]
    zero = xp.zeros_like(bounds[0])
    return [
        [xp.where(positive, _entry(curvature, i, j), bounds[i] if i == j else zero)
         for j in range(dim)]
        for i in range(dim)
    ]  # fmt: skip


def _least_minor(matrix: list[list[AnyArray]], xp: Any) -> AnyArray:
    """The least of the leading minors of a correlation matrix, 0 < it exactly if H is positive."""
    dim = len(matrix)
    diagonal = [matrix[i][i] for i in range(dim)]
    least = diagonal[0]
    for entry in diagonal[1:]:
        least = xp.minimum(least, entry)
    if dim > 1:
        scale = [xp.sqrt(xp.where(entry > 0, entry, 1.0)) for entry in diagonal]
        r = {(i, j): matrix[i][j] / (scale[i] * scale[j]) for i in range(dim) for j in range(i)}
        least = xp.minimum(least, 1 - r[1, 0] ** 2 - 1e-10)
        if dim > 2:
            squares = r[1, 0] ** 2 + r[2, 0] ** 2 + r[2, 1] ** 2
            least = xp.minimum(least, 1 + 2 * r[1, 0] * r[2, 0] * r[2, 1] - squares - 1e-10)
    return least


def _entry(matrix: list[list[AnyArray]], i: int, j: int) -> AnyArray:
    return matrix[max(i, j)][min(i, j)]


def _at_node(centres: AnyArray, spreads: AnyArray, node: AnyArray, xp: Any) -> AnyArray:
    """c + U t of each group, shape (m, q)."""
    return centres + (spreads * node[None, :, None]).sum(axis=1).T
