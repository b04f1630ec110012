"""Covariances for consensus weights that are right from the first draws.

Noise in the weights multiplies how far shards disagree, and with covariances of draws alone it is
what limits a merge. So covariances of draws are shrunk towards what is known without noise: the
curvature at the mode where warm-up found it, no correlation else. Only what draws say louder than
their noise is taken from them; noise fades as draws come in, so in the end all of it is. Any
weights that sum to I are valid under the Gaussian assumption, so this costs nothing in validity.

Every deviation from the target keeps the share (1 - limit² / deviation²)₊ of itself, the garrote
of Breiman (1995), with `limit` the size that noise alone may bring it to. This is continuous:
inputs that differ by rounding give covariances that do. Units do not matter anywhere.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.merging.fit import Fit
from quorate.numerics.moments import Moments

WORTH = 0.2  # independent draws that a draw of a chain is worth; measured, for covariances
_SIGMAS = 3.0  # standard deviations of noise that the scale of a shard must exceed


def shrunk_covariances(moments: Sequence[Moments], fits: Sequence[Fit | None]) -> Array:
    """Ĉ_s of all shards, shape (n_shards, d, d), each from its draws and its fit, if it has one.

    Weights change with scales relative to other shards only, so the scale of a shard is shrunk
    towards that of the median shard. A shard with neither a fit nor two draws takes the mean of the
    others; where all are such, I, which weighs them equally.
    """
    shards = list(enumerate(zip(moments, fits, strict=True)))
    for s, (of, fit) in shards:
        _check(of, fit, f"shard {s}")
    scale = _common_scale([(of, fit) for _, (of, fit) in shards if fit and of.count > 1])
    known = {
        s: shrunk_covariance(of, fit, scale=scale, name=f"shard {s}")
        for s, (of, fit) in shards
        if fit or of.count > 1
    }
    dim = moments[0].mean.shape[-1]
    other = np.mean(list(known.values()), axis=0) if known else np.eye(dim)
    return np.stack([known.get(s, other) for s, _ in shards])


def shrunk_covariance(
    moments: Moments, fit: Fit | None, *, scale: float = 1.0, name: str = "the shard"
) -> Array:
    """Ĉ of one shard, shape (d, d), from what is known of it alone.

    Parameters
    ----------
    moments
        Of its draws.
    fit
        Of warm-up, or None. It is taken as it is where there are no draws, or one, or where some
        coordinate has never moved.
    scale
        What the covariance of the fit is multiplied by as long as draws do not tell.
    name
        What errors call the shard.
    """
    _check(moments, fit, name)
    constant = np.flatnonzero(~(np.diagonal(moments.scatter) > 0))
    if fit is None:
        require(
            not len(constant),
            f"variance of the draws of {name} along coordinates {constant.tolist()}",
            0.0,
            "without a fit their scale is unknown: draw more, use a sampler that fits in warm-up "
            "('auto', 'ellipse' or 'nuts'), or leave out what is constant",
        )
        return shrink_to_diagonal(moments.covariance(), moments.count)
    if len(constant):
        return np.asarray(scale * fit.covariance)
    fitted = scale * fit.covariance
    return shrink_to_fit(moments.covariance(), moments.count, fitted, _worth(fit))


def shrink_to_fit(covs: Array, counts: ArrayLike, fitted: Array, worth: float = WORTH) -> Array:
    """Covariances of draws, shrunk towards fitted ones; shapes (..., d, d), counts (...) or one.

    Every draw counts as `worth` independent Gaussian ones.

    In coordinates in which the fit is I, noise of n independent draws gives the mean eigenvalue a
    variance of 2/(d n), and spreads single ones over (1 ± √(d/n))² times the mean (Marchenko &
    Pastur 1967). What is beyond is kept, on the scale of logarithms: first of the mean, then of
    each eigenvalue relative to it.
    """
    dim, n = covs.shape[-1], worth * np.asarray(counts, dtype=np.float64)[..., None]
    lower = np.linalg.cholesky(fitted)
    half = np.linalg.solve(lower, covs)
    values, vectors = np.linalg.eigh(np.linalg.solve(lower, np.swapaxes(half, -1, -2)))
    above = np.sqrt(dim / n)
    below = np.minimum(above, 1 - 1e-9)
    least = below**4  # less than that is an eigenvalue of 0, for want of draws
    mean = np.maximum(values.mean(axis=-1, keepdims=True), least)
    scale = _beyond(np.log(mean), _SIGMAS * np.sqrt(2 / (dim * n)))
    relative = np.log(np.maximum(values / mean, least))
    edges = 2 * np.abs(np.log1p(np.where(relative > 0, above, -below)))
    root = lower @ (vectors * np.exp((scale + _beyond(relative, edges)) / 2)[..., None, :])
    return np.asarray(root @ np.swapaxes(root, -1, -2))


def shrink_to_diagonal(covs: Array, counts: ArrayLike) -> Array:
    """Covariances of draws with correlations shrunk towards 0; shapes as for `shrink_to_fit`.

    The share is that of Schäfer & Strimmer (2005): the summed variances of correlations,
    (1 - ρ²)²/n each, over their summed squares. ρ² is taken a little smaller in the former, so
    that two draws, always in one line, are shrunk as well.
    """
    n = np.asarray(counts, dtype=np.float64)[..., None, None]
    sds = np.sqrt(np.diagonal(covs, axis1=-2, axis2=-1))
    products = sds[..., :, None] * sds[..., None, :]
    between = ~np.eye(covs.shape[-1], dtype=bool)
    squares = np.where(between, (covs / products) ** 2, 0.0)
    noise = np.where(between, (1 - squares * (1 - 1 / n)) ** 2 / (WORTH * n), 0.0)
    total = np.maximum(squares.sum(axis=(-2, -1)), np.finfo(float).tiny)
    share = np.minimum(noise.sum(axis=(-2, -1)) / total, 1.0)[..., None, None]
    return np.asarray(np.where(between, (1 - share) * covs, covs))


def _beyond(deviations: Array, limits: Array) -> Array:
    """What is left of deviations that noise alone may bring to `limits`: all of far larger ones."""
    return np.asarray(deviations * (1 - limits**2 / np.maximum(deviations**2, limits**2)))


def _common_scale(pairs: Sequence[tuple[Moments, Fit]]) -> float:
    """How many times wider draws are than fits, in the median shard; 1 where none has both.

    Shards count by what their draws are worth: those with heavy tails hardly tell.
    """
    scales = np.array(
        [np.trace(np.linalg.solve(fit.covariance, of.covariance())) for of, fit in pairs]
    )
    worths = np.array([_worth(fit) * of.count for of, fit in pairs])
    order = [s for s in np.argsort(scales) if scales[s] > 0]
    if not order:
        return 1.0
    worths = worths[order]
    places = np.cumsum(worths) - worths / 2
    return float(np.interp(worths.sum() / 2, places, scales[order])) / len(pairs[0][1].mean)


def _worth(fit: Fit) -> float:
    """Independent Gaussian draws that a draw of a chain is worth for covariances.

    Heavy tails make squares noisy, and chains slow.
    """
    return WORTH / fit.noise**2


def _check(moments: Moments, fit: Fit | None, name: str) -> None:
    is_finite = bool(np.isfinite(moments.scatter).all())
    way_out = "look for NaN and infinite values among the draws"
    require(is_finite, f"scatter of the draws of {name}", moments.scatter, way_out)
    if fit is not None and not _is_covariance(fit.covariance):
        way_out = "it must be finite and positive definite; give None where there is no such fit"
        raise BadInputError(f"covariance of the fit to {name}", fit.covariance, way_out)


def _is_covariance(matrix: Array) -> bool:
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrix)).all())
    except np.linalg.LinAlgError:
        return False
