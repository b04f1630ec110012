"""Robust regression: responses about η with Student's t distribution, of unknown ν.

log p = log Γ((ν+1)/2) - log Γ(ν/2) - log(νπ)/2 - log σ - (ν+1)/2 log(1 + z²/ν), with z = (y - η)/σ.
A row far from η pulls with a force of about (ν+1)/(y - η), so a few wild rows do not decide the
fit. As ν grows this becomes the normal distribution, and no digits are lost on the way.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln, stdtrit

from quorate._types import Array, IntArray
from quorate.models.many_points import Rows, Values, eta_in_chunks, in_two_ways, is_moderate
from quorate.models.observed import Observed
from quorate.models.products import log_products
from quorate.models.regressions.family import Value

_TERMS = 50  # in a product, which overflows if they are above a million
_MANY = 60.0  # half the degrees of freedom above which a series has all digits


@dataclass(frozen=True)
class Student:
    """y ~ Xβ + σ t_ν. Its scale parameters are σ and the degrees of freedom ν."""

    scale_names: tuple[str, ...] = ("sigma", "nu")

    def constants(self, seen: Observed) -> tuple[float, Array | None]:
        seen.require_no_trials()
        return 0.0, None

    def expected(self, eta: Array, trials: Array | None = None) -> Array:
        """The centre of y: its mean if ν > 1, and always its median."""
        return eta

    def responses(
        self, eta: Array, log_scales: Array, uniforms: Array, trials: Array | None = None
    ) -> Array:
        sigma, nu = np.moveaxis(np.exp(log_scales), -1, 0)
        return np.asarray(eta + sigma * stdtrit(nu, uniforms))

    def log_densities(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        log_sigma, log_nu = np.moveaxis(log_scales, -1, 0)
        nu, z = np.exp(log_nu), (response - eta) * np.exp(-log_sigma)
        tails = 0.5 * (nu + 1) * np.log1p(z**2 / nu)
        return np.asarray(log_constants(nu)[0] - log_sigma - tails)

    def outside(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        return self.log_densities(eta, log_scales, response)

    def prepare(self, seen: Observed) -> Rows:
        self.constants(seen)
        counts = np.ones(len(seen.response)) if seen.weights is None else seen.weights
        return Rows(seen.columns, counts, seen.response, offset=seen.offset)

    def evaluate(self, kept: Rows, beta: Array, log_scales: Array, gradient: bool) -> Value:
        found = self.evaluate_many(kept, beta[None], log_scales[None], gradient)
        value = float(found.log_likelihoods[0])
        if found.coefficients is None or found.log_scales is None:
            return Value(value)
        return Value(value, found.coefficients[0], found.log_scales[0])

    def evaluate_many(self, kept: Rows, betas: Array, log_scales: Array, gradient: bool) -> Values:
        log_sigma, log_nu = log_scales.T
        nu, total = np.exp(log_nu), kept.counts.sum()
        sums = _sums_of_rows(kept, betas, log_scales, gradient)
        constant, slope = log_constants(nu)
        logs, by_beta, shares = sums.log_likelihoods, sums.coefficients, sums.log_scales
        values = total * (constant - log_sigma) - 0.5 * (nu + 1) * logs
        if by_beta is None or shares is None:
            return Values(values)
        by_beta *= ((nu + 1) / nu * np.exp(-log_sigma))[:, None]
        by_sigma = (nu + 1) * shares - total
        by_nu = total * slope - 0.5 * nu * logs + 0.5 * (nu + 1) * shares
        return Values(values, by_beta, np.column_stack([by_sigma, by_nu]))


def _sums_of_rows(kept: Rows, betas: Array, log_scales: Array, gradient: bool) -> Values:
    """Σ log(1 + z²/ν); and if requested Σ z/(1 + z²/ν) x and Σ z²/(ν + z²)."""

    def by_products(points: IntArray) -> Values:
        return _sums_by_products(kept, betas[points], log_scales[points], gradient)

    def by_logarithms(points: IntArray) -> Values:
        return _sums_by_logarithms(kept, betas[points], log_scales[points], gradient)

    many = len(betas) > 1 and kept.occur_once
    return in_two_ways(is_moderate(log_scales[:, 1]) & many, by_products, by_logarithms)


def _sums_by_logarithms(kept: Rows, betas: Array, log_scales: Array, gradient: bool) -> Values:
    nu = np.exp(log_scales[:, 1])
    logs, by_beta, shares = np.zeros(len(betas)), np.zeros_like(betas), np.zeros(len(betas))
    for part, z, squares in _misfits(kept, betas, log_scales[:, 0]):
        x, n = kept.columns[part], kept.counts[part]
        squares /= nu
        logs += n @ np.log1p(squares)
        if gradient:
            z /= 1 + squares
            squares /= 1 + squares
            by_beta += z.T @ (n[:, None] * x)
            shares += n @ squares
    return Values(logs, by_beta, shares) if gradient else Values(logs)


def _sums_by_products(kept: Rows, betas: Array, log_scales: Array, gradient: bool) -> Values:
    """Sums of `_sums_of_rows` for rows that count once, with one logarithm for many rows.

    log(1 + z²/ν) = log(ν + z²) - log ν.
    """
    log_nu, n_rows = log_scales[:, 1], len(kept.counts)
    nu, logs, shares = np.exp(log_nu), np.zeros(len(betas)), np.zeros(len(betas))
    by_beta = np.zeros(betas.T.shape)
    for part, z, squares in _misfits(kept, betas, log_scales[:, 0]):
        terms = np.add(squares, nu, out=squares)
        bounds = np.append(np.arange(0, len(z), _TERMS), len(z))
        logs += log_products(terms, bounds).sum(axis=0)
        if gradient:
            pulls = np.divide(z, terms, out=terms)
            by_beta += kept.columns[part].T @ pulls
            shares += np.ones(len(z)) @ np.multiply(z, pulls, out=z)
    logs -= n_rows * log_nu
    return Values(logs, (by_beta * nu).T, shares) if gradient else Values(logs)


def _misfits(kept: Rows, betas: Array, log_sigma: Array) -> Iterator[tuple[slice, Array, Array]]:
    """z = (y - η)/σ and z² of each chunk of rows, (rows, n_points) each."""
    for part, (eta, squares) in eta_in_chunks(kept, betas, n_arrays=2):
        y = kept.response[part, None]
        z = np.multiply(np.subtract(y, eta, out=eta), np.exp(-log_sigma), out=eta)
        yield part, z, np.multiply(z, z, out=squares)


def log_constants(nu: Array) -> tuple[Array, Array]:
    """log Γ((ν+1)/2) - log Γ(ν/2) - log(νπ)/2, and its derivative in log ν."""
    half = 0.5 * nu
    inverse = 1 / np.maximum(half, _MANY)
    series = -inverse / 8 + inverse**3 / 192 - inverse**5 / 640
    slope = inverse / 8 - inverse**3 / 64 + inverse**5 / 128
    few = np.minimum(half, _MANY)
    direct = gammaln(few + 0.5) - gammaln(few) - 0.5 * np.log(few)
    direct_slope = few * (digamma(few + 0.5) - digamma(few)) - 0.5
    is_many = half > _MANY
    root = -0.5 * np.log(2 * np.pi)
    return np.where(is_many, series, direct) + root, np.where(is_many, slope, direct_slope)
