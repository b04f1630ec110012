"""Log-likelihoods of generalised linear models at many points at once.

`betas` is (n_points, p). η = Xβ of a chunk of rows and all points is one matrix product, small
enough to stay in the cache; everything else is done on it in place. Sums that are linear in η need
no η: Σ y_i η_i is (Xᵀy)β. Values are those of `quorate.models.regressions.families`,
but for rounding. A point that is not finite, or where exp overflows, spoils only its own values.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quorate._types import Array, BoolArray, IntArray
from quorate.models.products import Alike, alike, log_products

_ROWS = 500  # at a time, at most: a product of as many terms in (1, 2] is below 2^500
_ENTRIES = 32_768  # of rows times points, a quarter of a megabyte
_MODERATE = 4.0  # largest |log scale| at which log(1 + t/scale) loses no digits without log1p


@dataclass(frozen=True)
class Rows:
    """A prepared shard of most families, with the part of log p(y|θ) that is constant in θ."""

    columns: Array  # (n, p), distinct rows
    counts: Array  # (n,), how often each occurs in the shard
    response: Array  # (n,), the sum of its responses
    constant: float = 0.0
    above: Array | None = None  # [j] is the number of responses above j
    offset: Array | None = None  # (n,), added to Xβ

    def eta(self, beta: Array) -> Array:
        """Xβ and the offset, (n,)."""
        eta = self.columns @ beta
        return np.asarray(eta if self.offset is None else eta + self.offset)

    def pulled(self, pulls: Array, betas: Array) -> tuple[Array, Array]:
        """Σ pull · η at each point, (n_points,), and its gradient, which is (p,)."""
        slope = pulls @ self.columns
        constant = 0.0 if self.offset is None else float(pulls @ self.offset)
        return np.asarray(betas @ slope + constant), slope

    @cached_property
    def occur_once(self) -> bool:
        """Whether every row counts once."""
        return bool((self.counts == 1).all())

    def counted(self, part: slice) -> Array:
        """Some rows of X, each times its count."""
        rows = self.columns[part]
        return rows if self.occur_once else self.counts[part, None] * rows

    @cached_property
    def alike(self) -> Alike:
        """The order of rows by count and response, for products of terms like means."""
        return alike((self.response, self.counts), np.exp(_MODERATE) + self.response.max(initial=0))


@dataclass(frozen=True)
class Values:
    """Log-likelihoods of points, with their derivatives if they were requested."""

    log_likelihoods: Array  # (n_points,)
    coefficients: Array | None = None  # (n_points, p)
    log_scales: Array | None = None  # (n_points,)


def linear(
    n_rows: float, triangle: Array, betas: Array, log_scales: Array, gradient: bool
) -> Values:
    """y ~ N(Xβ, σ²), from the triangle R of a QR factorisation of (X, y).

    `n_rows` is the sum of the weights if rows have weights, and R is that of weighted rows.
    """
    residuals = triangle[:, -1:] - triangle[:, :-1] @ betas.T
    precisions = np.exp(-2 * log_scales)
    misfits = np.einsum("ij,ij->j", residuals, residuals) * precisions
    values = -0.5 * misfits - n_rows * (log_scales + 0.5 * np.log(2 * np.pi))
    if not gradient:
        return Values(values)
    slopes = (residuals * precisions).T @ triangle[:, :-1]
    return Values(values, slopes, misfits - n_rows)


def logistic(kept: Rows, betas: Array, gradient: bool) -> Values:
    """P(y = 1) = expit(Xβ): Σ (y - 1/2)η - |η|/2 - log(1 + exp(-|η|)).

    The logarithms of rows that occur once are the logarithm of one product.
    """
    values, slope = kept.pulled(kept.response - 0.5 * kept.counts, betas)
    values += kept.constant
    slopes = np.zeros(betas.T.shape)
    for part, (eta, small, plus) in eta_in_chunks(kept, betas, n_arrays=3):
        n = kept.counts[part]
        np.abs(eta, out=small)
        values -= 0.5 * (n @ small)
        np.exp(np.negative(small, out=small), out=small)
        np.add(small, 1, out=plus)
        values -= np.log(np.prod(plus, axis=0)) if kept.occur_once else n @ np.log1p(small)
        if gradient:
            lean = np.divide(np.subtract(1, small, out=small), plus, out=small)
            np.copysign(lean, eta, out=lean)  # 2 expit(eta) - 1
            slopes -= kept.counted(part).T @ lean
    return Values(values, 0.5 * slopes.T + slope if gradient else None)


def poisson(kept: Rows, betas: Array, gradient: bool) -> Values:
    """y ~ Poisson(exp(Xβ)): Σ yη - exp η."""
    values, slope = kept.pulled(kept.response, betas)
    values += kept.constant
    slopes = np.zeros(betas.T.shape)
    for part, (eta,) in eta_in_chunks(kept, betas):
        mean = np.exp(eta, out=eta)
        values -= kept.counts[part] @ mean
        if gradient:
            slopes -= kept.counted(part).T @ mean
    return Values(values, slopes.T + slope if gradient else None)


def negative_binomial(kept: Rows, betas: Array, log_scales: Array, gradient: bool) -> Values:
    """Counts with mean μ = exp(Xβ) and variance μ + μ²/φ.

    Σ yη - (y + nφ) log(1 + μ/φ), and Σ_j above_j log(1 + j/φ).
    """
    assert kept.above is not None
    values, by_scale = rising(kept.above, log_scales)
    linear_terms, slope = kept.pulled(kept.response, betas)

    def by_products(points: IntArray) -> Values:
        return _overdispersed_by_products(kept, betas[points], log_scales[points], gradient)

    def by_logarithms(points: IntArray) -> Values:
        return _overdispersed(kept, betas[points], log_scales[points], gradient)

    moderate = is_moderate(log_scales) & kept.alike.pays
    rest = in_two_ways(moderate, by_products, by_logarithms)
    values += kept.constant + linear_terms + rest.log_likelihoods
    if rest.coefficients is None or rest.log_scales is None:
        return Values(values)
    return Values(values, rest.coefficients + slope, by_scale + rest.log_scales)


def _overdispersed(kept: Rows, betas: Array, log_scales: Array, gradient: bool) -> Values:
    """-Σ (y + nφ) log(1 + μ/φ), however large μ and φ are."""
    phi = np.exp(log_scales)
    values, by_scale = np.zeros((2, len(betas)))
    slopes = np.zeros(betas.T.shape)
    for part, (excess, small, log_terms, work) in eta_in_chunks(kept, betas, n_arrays=4):
        x, n, y = (array[part] for array in (kept.columns, kept.counts, kept.response))
        excess -= log_scales
        np.abs(excess, out=small)
        np.exp(np.negative(small, out=small), out=small)
        np.log1p(small, out=log_terms)
        log_terms += np.maximum(excess, 0.0, out=work)
        of_rows = phi * (n @ log_terms)
        values -= y @ log_terms + of_rows
        if gradient:
            np.exp(np.minimum(excess, 0.0, out=excess), out=excess)
            small += 1
            pulls = np.divide(excess, small, out=excess)  # expit of the excess
            pulls *= np.add(np.multiply(n[:, None], phi, out=work), y[:, None], out=work)
            by_scale += pulls.sum(axis=0) - of_rows
            slopes -= x.T @ pulls
    return Values(values, slopes.T, by_scale) if gradient else Values(values)


def _overdispersed_by_products(
    kept: Rows, betas: Array, log_scales: Array, gradient: bool
) -> Values:
    """-Σ (y + nφ) log(1 + μ/φ), with one logarithm for many rows of equal n and y.

    The result is not finite if μ is large.

    (y + nφ) log(1 + μ/φ) = (y + nφ) (log(φ + μ) - log φ).
    """
    phi, order = np.exp(log_scales), kept.alike.order
    of_responses, of_counts, total_pulls = np.zeros((3, len(betas)))
    slopes = np.zeros(betas.T.shape)
    for part, (mean, terms) in eta_in_chunks(kept, betas, n_arrays=2, order=order):
        places = part if order is None else order[part]
        n, y = kept.counts[places], kept.response[places]
        np.add(np.exp(mean, out=mean), phi, out=terms)
        bounds = kept.alike.within(part.start, part.start + len(n))
        logs, firsts = log_products(terms, bounds), bounds[:-1]
        of_responses += y[firsts] @ logs
        of_counts += n[firsts] @ logs
        if gradient:
            pulls = np.divide(mean, terms, out=mean)
            times_phi = phi if kept.occur_once else np.multiply(n[:, None], phi, out=terms)
            pulls *= np.add(times_phi, y[:, None], out=terms)
            total_pulls += np.ones(len(n)) @ pulls
            slopes -= _rows_at(kept.columns, places).T @ pulls
    of_counts -= log_scales * kept.counts.sum()
    values = log_scales * kept.response.sum() - of_responses - phi * of_counts
    return Values(values, slopes.T, total_pulls - phi * of_counts) if gradient else Values(values)


def is_moderate(log_scales: Array) -> BoolArray:
    """Whether log(scale + t) - log(scale) has the digits of log1p(t/scale)."""
    return np.asarray(np.abs(log_scales) <= _MODERATE)


def in_two_ways(
    usual: BoolArray, quick: Callable[[IntArray], Values], careful: Callable[[IntArray], Values]
) -> Values:
    """Values of points in the `quick` way if they are usual and it is finite, else carefully.

    A way takes the indices of some points. A point gets the same value whatever the other points
    are, but for the rounding of a matrix product.
    """
    points = np.flatnonzero(usual)
    if len(points) == 0:
        return careful(np.arange(len(usual)))
    found = quick(points)
    fine = np.isfinite(found.log_likelihoods)
    if fine.all() and len(points) == len(usual):
        return found
    rest = np.setdiff1d(np.arange(len(usual)), points[fine])
    other = careful(rest)
    places = np.argsort(np.concatenate([points[fine], rest]))

    def both(first: Array | None, second: Array | None) -> Array | None:
        if first is None or second is None:
            return None
        return np.concatenate([first[fine], second])[places]

    values = both(found.log_likelihoods, other.log_likelihoods)
    assert values is not None
    return Values(
        values,
        both(found.coefficients, other.coefficients),
        both(found.log_scales, other.log_scales),
    )


def eta_in_chunks(
    kept: Rows, betas: Array, n_arrays: int = 1, order: IntArray | None = None
) -> Iterator[tuple[slice, list[Array]]]:
    """Chunks of rows with arrays of shape (rows, n_points): η, and others to work in.

    All chunks share these arrays: fresh memory for every temporary would take longer than the
    arithmetic. With an `order`, a chunk has the rows at these places of it.
    """
    turned = np.ascontiguousarray(betas.T)
    at_once = _rows_at_once(len(betas))
    space = np.empty((n_arrays, at_once, len(betas)))
    for start in range(0, len(kept.columns), at_once):
        part = slice(start, start + at_once)
        places = part if order is None else order[part]
        rows = _rows_at(kept.columns, places)
        arrays = [array[: len(rows)] for array in space]
        np.matmul(rows, turned, out=arrays[0])
        if kept.offset is not None:
            arrays[0] += kept.offset[places, None]
        yield part, arrays


def _rows_at(array: Array, places: slice | IntArray) -> Array:
    """Rows at some places. `take` is quicker than an index."""
    return array[places] if isinstance(places, slice) else array.take(places, axis=0)


def _rows_at_once(n_points: int) -> int:
    return min(_ROWS, max(1, _ENTRIES // max(n_points, 1)))


def rising(above: Array, log_scales: Array) -> tuple[Array, Array]:
    """Σ_j above_j log(1 + j/φ) of each point, and its derivative in log φ."""
    values, slopes = np.zeros((2, len(log_scales)))
    inverse, at_once = np.exp(-log_scales), _rows_at_once(len(log_scales))
    for start in range(0, len(above), at_once):
        part = above[start : start + at_once]
        steps = np.arange(start, start + len(part))[:, None] * inverse
        values += part @ np.log1p(steps)
        slopes -= part @ (steps / (1 + steps))
    return values, slopes
