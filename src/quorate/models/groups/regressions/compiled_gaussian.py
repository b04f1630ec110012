"""The integrated likelihood of linear regressions with groups, in closed form, compiled by JAX.

Values and gradients are those of `gaussian.ClosedForm`, but for rounding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array, IntArray
from quorate.models import device
from quorate.models.groups.quadrature import solved, spread
from quorate.models.groups.regressions.compiled_kernels import At, at_points
from quorate.models.groups.regressions.gaussian import ClosedForm
from quorate.models.groups.regressions.integrals import Prior
from quorate.models.groups.regressions.points import Derivatives, Points, RoughFit
from quorate.models.groups.regressions.tiles import filled_up, in_tiles, on_host, round_number


class _Groups(NamedTuple):
    """What a shard is reduced to, on the device, filled up with groups without rows."""

    squares: Any  # ZᵀZ, (q, q, g)
    by_column: Any  # ZᵀX, (q, p, g)
    by_response: Any  # Zᵀy, (q, g)
    exists: Any  # (g,), 0 for groups that fill up


class _Totals(NamedTuple):
    """Sums over groups, for each point. Without gradients all but the first are None."""

    log_integrals: Any  # (n_points,)
    by_beta: Any = None  # E XᵀZz, (n_points, p)
    misfits: Any = None  # E |r - Zz|² - |r|², (n_points,)
    squares: Any = None  # E zzᵀ, (n_points, q, q)


@dataclass(frozen=True)
class CompiledClosedForm:
    """A shard of a linear regression with groups, reduced and moved to the device."""

    in_numpy: ClosedForm
    fit: RoughFit | None = None

    @property
    def codes(self) -> IntArray:
        """Codes of the groups, in rising order."""
        return self.in_numpy.codes

    def pooled_fit(self, start: Array, log_sds: IntArray) -> RoughFit:
        """A fit without groups, by least squares."""
        return self.in_numpy.pooled_fit(start, log_sds)

    def log_likelihoods(self, points: Points) -> Array:
        """Integrated log-likelihood of each point, (n,)."""
        values = self.in_numpy.of_rows(points, gradient=False).log_likelihoods
        for at, found in self._totals(points, gradient=False):
            values[at] += found.log_integrals
        return values

    def log_likelihoods_and_gradients(self, points: Points) -> tuple[Array, Derivatives]:
        """Integrated log-likelihood of each point, and its derivatives."""
        rows = self.in_numpy.of_rows(points, gradient=True)
        values, by_beta, by_scale = rows.log_likelihoods, rows.coefficients, rows.log_scales
        assert by_beta is not None
        assert by_scale is not None
        squares, precision = np.zeros_like(points.covs[0]), np.exp(-2 * points.log_scales)
        for at, found in self._totals(points, gradient=True):
            values[at] += found.log_integrals
            by_beta[at] -= precision[at, None] * found.by_beta
            by_scale[at] += precision[at] * found.misfits
            squares[at] += found.squares
        slopes = Prior.of(points.covs[0]).slopes(squares, len(self.codes))
        return values, Derivatives(by_beta, by_scale, (slopes,))

    def _totals(self, points: Points, *, gradient: bool) -> Iterator[tuple[slice, _Totals]]:
        """Sums over all groups, for the points of each tile."""
        totals = _compiled()

        def evaluate(at: IntArray) -> _Totals:
            found: _Totals = totals(self._groups, at_points(points.part(at)), gradient)
            return found

        q, _, n_groups = self.in_numpy.by_column.shape
        bytes_of_point = 8.0 * (4 * q * q + 4) * n_groups
        for at, found in in_tiles(len(points.betas), bytes_of_point, evaluate):
            yield at, _Totals(*on_host(found, at))

    @cached_property
    def _groups(self) -> _Groups:
        reduced = self.in_numpy
        n_groups = len(reduced.codes)
        given = (reduced.squares, reduced.by_column, reduced.by_response, np.ones(n_groups))
        filled = _Groups(*(filled_up(array, round_number(n_groups)) for array in given))
        return device.on_device(filled)


@cache
def _compiled() -> Any:
    return jax_in_float64().jit(_totals_of, static_argnums=2)


def _totals_of(groups: _Groups, at: At, gradient: bool) -> _Totals:
    """Sums over groups at some points; see `gaussian.ClosedForm`."""
    xp, q = jax_in_float64().numpy, len(groups.by_response)
    scale = xp.exp(-2 * at.log_scales)[:, None]
    curvature = groups.squares[:, :, None] * scale + at.precision[..., None]
    upper, log_det = spread(curvature, xp)
    pulls = groups.by_response[:, None] - xp.einsum("pc,icg->ipg", at.betas, groups.by_column)
    mean = xp.stack(solved(upper, pulls * scale))
    log_root = at.log_constant + 0.5 * q * np.log(2 * np.pi)
    gain = 0.5 * scale * (mean * pulls).sum(axis=0)
    value = (groups.exists * (gain + log_det + log_root[:, None])).sum(axis=1)
    if not gradient:
        return _Totals(value)
    whole = xp.stack([xp.stack([xp.zeros_like(log_det) + one for one in row]) for row in upper])
    second = xp.einsum("ikpg,jkpg->ijpg", whole, whole) + mean[:, None] * mean
    misfits = xp.einsum("ijg,ijpg->p", groups.squares, second)
    return _Totals(
        value,
        xp.einsum("ipg,icg->pc", mean, groups.by_column),
        misfits - 2 * xp.einsum("ipg,ipg->p", pulls, mean),
        xp.einsum("ijpg,g->pij", second, groups.exists),
    )
