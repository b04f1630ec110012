"""Log-likelihoods of generalised linear models at many points at once.

`betas` is (n_points, p). η = Xβ of a chunk of rows and all points is one matrix product, small
enough to stay in the cache; everything else is done on it in place. Sums that are linear in η need
no η: Σ y_i η_i is (Xᵀy)β. Values are those of `quorate.models.families`, but for rounding. A point
that is not finite, or where exp overflows, spoils only its own values.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quorate._types import Array

_ROWS = 500  # at a time, at most: a product of as many terms in (1, 2] is below 2^500
_ENTRIES = 65_536  # of rows times points, half a megabyte


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

    def of_offset(self, pulls: Array, part: slice) -> float:
        """The part of Σ pull · η that the offsets of some rows make up."""
        return 0.0 if self.offset is None else float(pulls @ self.offset[part])


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
    values = np.full(len(betas), kept.constant)
    slopes = np.zeros_like(betas) if gradient else None
    linear_term = np.zeros(betas.shape[1])
    for part, (eta, small, plus) in eta_in_chunks(kept, betas, n_arrays=3):
        x, n, y = (array[part] for array in (kept.columns, kept.counts, kept.response))
        linear_term += (y - 0.5 * n) @ x
        values += kept.of_offset(y - 0.5 * n, part)
        np.abs(eta, out=small)
        values -= 0.5 * (n @ small)
        np.exp(np.negative(small, out=small), out=small)
        np.add(small, 1, out=plus)
        once = bool((n == 1).all())
        values -= np.log(np.prod(plus, axis=0)) if once else n @ np.log1p(small)
        if slopes is not None:
            lean = np.divide(np.subtract(1, small, out=small), plus, out=small)
            np.copysign(lean, eta, out=lean)  # 2 expit(eta) - 1
            slopes -= lean.T @ (0.5 * n[:, None] * x)
    if slopes is not None:
        slopes += linear_term
    return Values(values + betas @ linear_term, slopes)


def poisson(kept: Rows, betas: Array, gradient: bool) -> Values:
    """y ~ Poisson(exp(Xβ)): Σ yη - exp η."""
    values = np.full(len(betas), kept.constant)
    slopes = np.zeros_like(betas) if gradient else None
    linear_term = np.zeros(betas.shape[1])
    for part, (eta,) in eta_in_chunks(kept, betas):
        x, n, y = (array[part] for array in (kept.columns, kept.counts, kept.response))
        linear_term += y @ x
        values += kept.of_offset(y, part)
        mean = np.exp(eta, out=eta)
        values -= n @ mean
        if slopes is not None:
            slopes -= mean.T @ (n[:, None] * x)
    if slopes is not None:
        slopes += linear_term
    return Values(values + betas @ linear_term, slopes)


def negative_binomial(kept: Rows, betas: Array, log_scales: Array, gradient: bool) -> Values:
    """Counts with mean μ = exp(Xβ) and variance μ + μ²/φ.

    Σ yη - (y + φ) log(1 + μ/φ), and Σ_j above_j log(1 + j/φ).
    """
    phi = np.exp(log_scales)
    assert kept.above is not None
    values, by_scale = rising(kept.above, log_scales)
    values += kept.constant
    slopes = np.zeros_like(betas) if gradient else None
    linear_term = np.zeros(betas.shape[1])
    for part, (excess, small, log_terms, work) in eta_in_chunks(kept, betas, n_arrays=4):
        x, n, y = (array[part] for array in (kept.columns, kept.counts, kept.response))
        linear_term += y @ x
        values += kept.of_offset(y, part)
        excess -= log_scales
        np.abs(excess, out=small)
        np.exp(np.negative(small, out=small), out=small)
        np.log1p(small, out=log_terms)
        log_terms += np.maximum(excess, 0.0, out=work)
        of_rows = phi * (n @ log_terms)
        values -= y @ log_terms + of_rows
        if slopes is not None:
            np.exp(np.minimum(excess, 0.0, out=excess), out=excess)
            small += 1
            pulls = np.divide(excess, small, out=excess)  # expit of the excess
            pulls *= np.add(np.multiply(n[:, None], phi, out=work), y[:, None], out=work)
            by_scale += pulls.sum(axis=0) - of_rows
            slopes -= pulls.T @ x
    if slopes is None:
        return Values(values + betas @ linear_term)
    return Values(values + betas @ linear_term, slopes + linear_term, by_scale)


def eta_in_chunks(
    kept: Rows, betas: Array, n_arrays: int = 1
) -> Iterator[tuple[slice, list[Array]]]:
    """Chunks of rows with arrays of shape (rows, n_points): η, and others to work in.

    All chunks share these arrays: fresh memory for every temporary would take longer than the
    arithmetic.
    """
    turned = np.ascontiguousarray(betas.T)
    at_once = _rows_at_once(len(betas))
    space = np.empty((n_arrays, at_once, len(betas)))
    for start in range(0, len(kept.columns), at_once):
        part = slice(start, start + at_once)
        rows = kept.columns[part]
        arrays = [array[: len(rows)] for array in space]
        np.matmul(rows, turned, out=arrays[0])
        if kept.offset is not None:
            arrays[0] += kept.offset[part, None]
        yield part, arrays


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
