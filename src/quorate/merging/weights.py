"""Shrunk covariances that make consensus weights accurate from the first draws.

Noise in the weights multiplies the differences between shards. With sample covariances alone, this
noise limits the accuracy of a merge. So sample covariances are shrunk towards a target without
noise: the curvature at the mode if warm-up found it, else zero correlation. The sample covariance
is used where its difference from the target exceeds its Monte Carlo error, and in the end
everywhere, because that error vanishes as draws come in. Under the Gaussian assumption all weights
that sum to I are valid, so shrinkage costs nothing in validity.

Every deviation from the target keeps the share (1 - limit² / deviation²)₊ of itself, the garrote
of Breiman (1995). Here `limit` is the size that noise alone may reach. The rule is continuous:
inputs that differ by rounding give covariances that differ by rounding. Units do not matter.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.merging.fit import Fit
from quorate.numerics.moments import Moments

WORTH = 0.2  # independent draws per draw of a chain, for covariances; measured
_SIGMAS = 3.0  # sds of noise that the scale of a shard must exceed


def shrunk_covariances(moments: Sequence[Moments], fits: Sequence[Fit | None]) -> Array:
    """Ĉ_s of all shards, shape (n_shards, d, d), each from its draws and its fit, if any.

    Weights depend only on relative scales, so the scale of each shard is shrunk towards that of the
    median shard. A shard with neither a fit nor two draws gets the mean of the others. If all
    shards lack both, each gets I, which weighs them equally.
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
    """Ĉ of one shard, shape (d, d), from its own draws and fit.

    Parameters
    ----------
    moments
        Moments of the draws.
    fit
        Fit of warm-up, or None. Its covariance is used unchanged if there are fewer than two draws,
        or if some coordinate is constant in them.
    scale
        Factor on the covariance of the fit.
    name
        Name of the shard in error messages.
    """
    _check(moments, fit, name)
    constant = np.flatnonzero(~(np.diagonal(moments.scatter) > 0))
    if fit is None:
        require(
            not len(constant),
            f"All draws of {name} are equal along coordinates {constant.tolist()}, and without a "
            "fit their scale is unknown. Draw more, use a sampler that fits in warm-up ('auto', "
            "'ellipse' or 'nuts'), or leave out constant coordinates.",
        )
        return shrink_to_diagonal(moments.covariance(), moments.count)
    if len(constant):
        return np.asarray(scale * fit.covariance)
    fitted = scale * fit.covariance
    return shrink_to_fit(moments.covariance(), moments.count, fitted, _worth(fit))


def shrink_to_fit(covs: Array, counts: ArrayLike, fitted: Array, worth: float = WORTH) -> Array:
    """Covariances of draws, shrunk towards fitted ones: shapes (..., d, d), counts (...) or one.

    Every draw counts as `worth` independent Gaussian draws.

    In coordinates in which the fit is I, the noise of n independent draws gives the mean eigenvalue
    a variance of 2/(d n), and spreads single eigenvalues over (1 ± √(d/n))² times the mean
    (Marchenko & Pastur 1967). Larger deviations are kept, on a log scale: first that of the mean,
    then that of each eigenvalue from the mean.
    """
    dim, n = covs.shape[-1], worth * np.asarray(counts, dtype=np.float64)[..., None]
    lower = np.linalg.cholesky(fitted)
    half = np.linalg.solve(lower, covs)
    values, vectors = np.linalg.eigh(np.linalg.solve(lower, np.swapaxes(half, -1, -2)))
    above = np.sqrt(dim / n)
    below = np.minimum(above, 1 - 1e-9)
    least = below**4  # smaller eigenvalues are 0 for lack of draws
    mean = np.maximum(values.mean(axis=-1, keepdims=True), least)
    scale = _beyond(np.log(mean), _SIGMAS * np.sqrt(2 / (dim * n)))
    relative = np.log(np.maximum(values / mean, least))
    edges = 2 * np.abs(np.log1p(np.where(relative > 0, above, -below)))
    root = lower @ (vectors * np.exp((scale + _beyond(relative, edges)) / 2)[..., None, :])
    return np.asarray(root @ np.swapaxes(root, -1, -2))


def shrink_to_diagonal(covs: Array, counts: ArrayLike) -> Array:
    """Covariances of draws with correlations shrunk towards 0: shapes as for `shrink_to_fit`.

    The amount is that of Schäfer & Strimmer (2005): the summed variances of correlations,
    (1 - ρ²)²/n each, over their summed squares. The variances use a slightly smaller ρ², so that
    two draws, which always have ρ² = 1, are shrunk too.
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
    """`deviations` less what noise of size `limits` may explain; far larger ones stay whole."""
    return np.asarray(deviations * (1 - limits**2 / np.maximum(deviations**2, limits**2)))


def _common_scale(pairs: Sequence[tuple[Moments, Fit]]) -> float:
    """Scale of the draws relative to the fits, in the median shard; 1 if no shard has both.

    Shards are weighted by their effective number of draws, which is small for heavy tails.
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
    """Independent Gaussian draws per draw of a chain, for covariances.

    Heavy tails make squares noisy and chains slow.
    """
    return WORTH / fit.noise**2


def _check(moments: Moments, fit: Fit | None, name: str) -> None:
    is_finite = bool(np.isfinite(moments.scatter).all())
    require(is_finite, f"The draws of {name} contain NaN or infinite values. Check its sampler.")
    if fit is not None and not _is_covariance(fit.covariance):
        raise BadInputError(
            f"The covariance of the fit to {name} is not finite and positive definite: "
            f"{fit.covariance}. Give None if there is no fit."
        )


def _is_covariance(matrix: Array) -> bool:
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrix)).all())
    except np.linalg.LinAlgError:
        return False
