"""The Gaussian fit of the posterior itself, from passes over all shards at common points.

A pass asks for the log posterior, with its gradient if there is one, at points of the fit so far.
A linear regression of the gradient on the points tells slope and curvature, averaged over the fit;
without gradients a quadratic is fitted to the values. The fit then moves there, by a bounded step.
For a Gaussian posterior one pass is enough. A start that is far off takes a few more.
"""

from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.special import ndtri

from quorate._types import Array
from quorate.numerics.streams import Purpose, Streams
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit
from quorate.samplers.sobol import MOST_DIMENSIONS, shifted_points

_CLIP = 4.0  # factor by which a pass may change a precision
_FARTHEST = 3.0  # move along any axis, in standard deviations of the fit
_FELL = 0.05  # fall of the evidence bound after which steps become shorter
_SHORTEST = 1 / 8
_LENGTHEN = 1.2
_STILL = 0.02  # move below which the fit stands
_ENOUGH, _NEAR = 3, 0.3  # passes in a row with bounded changes after which a smaller move will do
_MOST = 40  # passes in all
_LOST = 20  # passes without a density after which there is none
_SHRINK = 0.5  # of the scale where too many points have no density
_FEW = 20  # dimensions below which a pass with gradients has ten points for each
_WIDE = 320  # dimensions above which 1,024 points leave too much noise in the curvature
FULL = 40  # dimensions up to which all products of coordinates are fitted to values


@dataclass(frozen=True, eq=False)
class Centring:
    """How far the fit has come.

    Attributes
    ----------
    base
        The fit, rounded so that its bits do not depend on the order of sums.
    step
        Share of the way that a pass moves the fit.
    bound
        Lower bound on the log evidence at the last pass.
    n_bounded
        Passes in a row whose changes were within their limits.
    n_passes
        Passes so far.
    move
        How far the last pass would have moved the fit with a full step: root mean square of the
        mean, in standard deviations, and of the logarithm of the standard deviations.
    flat
        Directions (n, d) along which the last pass found less curvature than a pass may accept.
    n_flat
        Passes in a row with such directions.
    last
        The fit before the last move, at whose points there was a density.
    """

    base: Base
    step: float = 1.0
    bound: float = -inf
    n_bounded: int = 0
    n_passes: int = 0
    move: float = inf
    flat: Array | None = None
    n_flat: int = 0
    last: Base | None = None

    @property
    def stands(self) -> bool:
        """Whether the fit is good enough to draw around."""
        settled = self.n_bounded > 0 and self.move < _STILL
        near = self.n_bounded >= _ENOUGH and self.move < _NEAR
        return settled or near or self.n_passes >= _MOST

    @property
    def is_lost(self) -> bool:
        """Whether no pass has had a density at half of its points, though they came nearer."""
        return self.last is None and self.n_passes >= _LOST

    @property
    def is_improper(self) -> bool:
        """Whether the fit has become wider and wider along some direction, without an end."""
        return self.n_passes >= _MOST and self.n_flat >= _MOST / 2


def n_points(dim: int, *, with_gradient: bool) -> int:
    """Points of a pass."""
    if with_gradient and (dim < _FEW or dim > _WIDE):
        return 64 * -(-(10 if dim < _FEW else 5) * dim // 64)
    least = 256 if dim < _FEW else 512 if dim < 40 else 1024
    if with_gradient:
        return least
    n_terms = (dim + 1) * (dim + 2) // 2 if dim <= FULL else 2 * dim + 1
    return max(least, 64 * -(-3 * n_terms // 64))


def spread(streams: Streams, number: int, n: int, dim: int) -> Array:
    """Standard normal points (n, d) of pass `number`: evenly spread, or in opposite pairs."""
    if dim <= MOST_DIMENSIONS:
        shift = streams.uniforms(Purpose.PASSES, [(0, 0)], number, 1, dim)[0, 0]
        return np.asarray(ndtri(shifted_points(n, shift)))
    uniforms = streams.uniforms(Purpose.PASSES, [(number, 1)], 0, n // 2, dim)[0]
    half = ndtri(uniforms)
    return np.concatenate([half, -half])


def recentred(before: Centring, z: Array, values: Array, gradients: Array | None) -> Centring:
    """The fit after a pass.

    Parameters
    ----------
    z
        Points in units of the fit, (n, d).
    values
        Log posterior at the points, (n,); -inf where there is no density.
    gradients
        Its gradients, (n, d), in the coordinates of the model; None if there are none.
    """
    base = before.base
    known = np.isfinite(values)
    if known.sum() < max(len(z) / 2, 2 * base.dim + 2):
        return _retreated(before, z[known])
    z, values = z[known], values[known]
    slope, curvature = (
        _from_values(z, values)
        if gradients is None
        else _from_gradients(z, gradients[known] @ base.lower)
    )
    bound = _bound(base, z, values, slope, curvature)
    fell = bound < before.bound - _FELL
    step = max(before.step / 2, _SHORTEST) if fell else min(before.step * _LENGTHEN, 1.0)
    bends, axes = np.linalg.eigh(curvature)
    allowed = np.clip(bends, 1 / _CLIP, _CLIP)
    wanted = (slope @ axes) / allowed
    target = np.clip(wanted, -_FARTHEST, _FARTHEST)
    is_bounded = bool(np.all(bends == allowed) and np.all(wanted == target))
    # Natural parameters are mixed; those of the fit are the identity and 0 in its own units
    mixed = 1 + step * (allowed - 1)
    mean = axes @ (step * allowed * target / mixed)
    lower = base.lower @ np.linalg.cholesky((axes / mixed) @ axes.T)
    fit = LaplaceFit(base.mean + base.lower @ mean, lower)
    n_bounded = before.n_bounded + 1 if is_bounded else 0
    move = float(np.sqrt(np.mean(mean**2 + np.log(mixed) ** 2 / 4))) / step
    flat = (base.lower @ axes[:, bends < 1 / _CLIP]).T
    n_flat = before.n_flat + 1 if len(flat) else 0
    return Centring(
        Base.around(fit), step, bound, n_bounded, before.n_passes + 1, move, flat, n_flat, base
    )


def _from_gradients(z: Array, gradients: Array) -> tuple[Array, Array]:
    """Slope at 0 and curvature, of gradients that are about slope - curvature z."""
    centre, level = z.mean(axis=0), gradients.mean(axis=0)
    gaps = z - centre
    rises = np.linalg.lstsq(gaps, gradients - level, rcond=None)[0]
    return level - centre @ rises, -(rises + rises.T) / 2


def _from_values(z: Array, values: Array) -> tuple[Array, Array]:
    """Slope at 0 and curvature, of values that are about quadratic in z."""
    n, dim = z.shape
    is_full = n > (dim + 1) * (dim + 2) // 2
    rows, columns = np.triu_indices(dim) if is_full else (np.arange(dim), np.arange(dim))
    terms = np.concatenate([np.ones((n, 1)), z, z[:, rows] * z[:, columns]], axis=1)
    found = np.linalg.lstsq(terms, values, rcond=None)[0]
    half = np.zeros((dim, dim))
    half[rows, columns] = found[1 + dim :]
    return found[1 : 1 + dim], -(half + half.T)


def _bound(base: Base, z: Array, values: Array, slope: Array, curvature: Array) -> float:
    """E log p + entropy, up to a constant; the quadratic is a control variate."""
    quadratic = z @ slope - 0.5 * np.sum((z @ curvature) * z, axis=1)
    volume = float(np.log(np.diag(base.lower)).sum())
    return float(np.mean(values - quadratic) - 0.5 * np.trace(curvature) + volume)


def _retreated(before: Centring, known: Array) -> Centring:
    """Half-way back to the last fit, or a smaller fit around the points that have a density."""
    base, last, step = before.base, before.last, before.step
    if last is not None:
        step = max(step / 2, _SHORTEST)
        fit = LaplaceFit((base.mean + last.mean) / 2, last.lower)
    else:
        mean = base.mean + base.lower @ known.mean(axis=0) if len(known) else base.mean
        fit = LaplaceFit(mean, base.lower * _SHRINK)
    return Centring(Base.around(fit), step, n_passes=before.n_passes + 1, last=last)
