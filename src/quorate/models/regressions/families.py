"""Log-likelihoods of generalised linear models, summed over rows, and their derivatives.

A family first *prepares* a shard: it checks the response and computes what never changes. It is
then evaluated at η = Xβ, and at the logarithm of its scale parameter if it has one. Every term is
written so that neither large |η| nor a large scale loses digits. Equal rows of X share their η, and
responses enter only through their sum. Such rows are stored once, with their count, so a regression
on a few categories costs only as much as their number of combinations. A weight counts a row more
than once, or less: the log-likelihood of the row is multiplied by it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtrik, expit, gammaln, nbdtrik, ndtri, pdtrik

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models import many_points
from quorate.models.many_points import Rows
from quorate.models.observed import Observed
from quorate.models.regressions.family import Family, Value

_CHUNK = 65_536  # rows factorised at a time
_TABLE = 100_000  # counts up to which log Γ(y + φ) - log Γ(φ) is summed term by term


@dataclass(frozen=True)
class Linear:
    """y ~ N(Xβ, σ²). A shard is reduced to the triangle R of a QR factorisation of (X, y).

    One evaluation then costs p², however many rows there are. It loses no digits, because
    |y - Xβ|² is |R(β, -1)|² and not a difference of sums of squares.
    """

    scale_names: tuple[str, ...] = ("sigma",)

    def constants(self, seen: Observed) -> tuple[float, Array | None]:
        seen.require_no_trials()
        return 0.0, None

    def expected(self, eta: Array, trials: Array | None = None) -> Array:
        return eta

    def responses(
        self, eta: Array, log_scales: Array, uniforms: Array, trials: Array | None = None
    ) -> Array:
        return np.asarray(eta + np.exp(log_scales[..., 0]) * ndtri(uniforms))

    def log_densities(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        log_sigma = log_scales[..., 0]
        misfits = (response - eta) * np.exp(-log_sigma)
        return np.asarray(-0.5 * misfits**2 - log_sigma - 0.5 * np.log(2 * np.pi))

    def outside(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        return self.log_densities(eta, log_scales, response)

    def prepare(self, seen: Observed) -> tuple[float, Array]:
        self.constants(seen)
        columns, response = seen.rooted(seen.columns), seen.rooted(seen.residual_response)
        n, p = columns.shape
        triangle = np.zeros((0, p + 1))
        for start in range(0, n, _CHUNK):
            part = slice(start, start + _CHUNK)
            block = np.column_stack([columns[part], response[part]])
            triangle = np.asarray(np.linalg.qr(np.vstack([triangle, block]), mode="r"))
        return seen.total, triangle

    def evaluate(
        self, kept: tuple[float, Array], beta: Array, log_scales: Array, gradient: bool
    ) -> Value:
        (n, triangle), log_scale = kept, float(log_scales[0])
        residual = triangle[:, -1] - triangle[:, :-1] @ beta
        precision = np.exp(-2 * log_scale)
        misfit = float(residual @ residual) * precision
        value = -0.5 * misfit - n * (log_scale + 0.5 * np.log(2 * np.pi))
        if not gradient:
            return Value(float(value))
        slope = triangle[:, :-1].T @ residual * precision
        return Value(float(value), slope, misfit - n)

    def evaluate_many(
        self, kept: tuple[float, Array], betas: Array, log_scales: Array, gradient: bool
    ) -> many_points.Values:
        return many_points.linear(*kept, betas, log_scales[:, 0], gradient)


@dataclass(frozen=True)
class Logistic:
    """P(y = 1) = expit(Xβ), y in {0, 1}; or y successes in a number of trials."""

    scale_names: tuple[str, ...] = ()

    def constants(self, seen: Observed) -> tuple[float, Array | None]:
        y, n = seen.response, seen.trials
        if n is None:
            rule = "A logistic response is 0 or 1: compare it, as in `y > 15`, or give its trials."
            _require_all((y == 0) | (y == 1), y, rule)
            return 0.0, None
        _require_counts(y)
        _require_all(y <= n, y, "It cannot be more than the number of trials in its row.")
        return seen.weighted_sum(_log_ways(y, n)), None

    def expected(self, eta: Array, trials: Array | None = None) -> Array:
        return np.asarray(expit(eta) if trials is None else trials * expit(eta))

    def responses(
        self, eta: Array, log_scales: Array, uniforms: Array, trials: Array | None = None
    ) -> Array:
        if trials is None:
            return np.asarray(uniforms < expit(eta), dtype=np.float64)
        found = _whole(np.asarray(bdtrik(uniforms, trials, expit(eta)), float))
        return np.where(trials == 0, 0.0, np.minimum(found, trials))

    def log_densities(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        n = 1.0 if trials is None else trials
        return np.asarray(self.outside(eta, log_scales, response, trials) - n * _softplus(eta))

    def outside(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        ways = 0.0 if trials is None else _log_ways(response, trials)
        return np.asarray(response * eta + ways)

    def prepare(self, seen: Observed) -> Rows:
        return _prepared(self, seen)

    def evaluate(self, kept: Rows, beta: Array, log_scales: Array, gradient: bool) -> Value:
        eta = kept.eta(beta)
        value = float(kept.response @ eta - kept.counts @ _softplus(eta)) + kept.constant
        if not gradient:
            return Value(value)
        return Value(value, kept.columns.T @ (kept.response - kept.counts * expit(eta)))

    def evaluate_many(
        self, kept: Rows, betas: Array, log_scales: Array, gradient: bool
    ) -> many_points.Values:
        return many_points.logistic(kept, betas, gradient)


@dataclass(frozen=True)
class Poisson:
    """y ~ Poisson(exp(Xβ))."""

    scale_names: tuple[str, ...] = ()

    def constants(self, seen: Observed) -> tuple[float, Array | None]:
        seen.require_no_trials()
        _require_counts(seen.response)
        return -seen.weighted_sum(gammaln(seen.response + 1)), None

    def expected(self, eta: Array, trials: Array | None = None) -> Array:
        return np.asarray(np.exp(eta))

    def responses(
        self, eta: Array, log_scales: Array, uniforms: Array, trials: Array | None = None
    ) -> Array:
        return _whole(pdtrik(uniforms, np.exp(eta)))

    def log_densities(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        return self.outside(eta, log_scales, response) - np.exp(eta)

    def outside(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        return np.asarray(response * eta - gammaln(response + 1))

    def prepare(self, seen: Observed) -> Rows:
        return _prepared(self, seen)

    def evaluate(self, kept: Rows, beta: Array, log_scales: Array, gradient: bool) -> Value:
        eta = kept.eta(beta)
        mean = np.exp(eta)
        value = float(kept.response @ eta - kept.counts @ mean) + kept.constant
        if not gradient:
            return Value(value)
        return Value(value, kept.columns.T @ (kept.response - kept.counts * mean))

    def evaluate_many(
        self, kept: Rows, betas: Array, log_scales: Array, gradient: bool
    ) -> many_points.Values:
        return many_points.poisson(kept, betas, gradient)


@dataclass(frozen=True)
class NegativeBinomial:
    """y with mean μ = exp(Xβ) and variance μ + μ²/φ.

    log p = log Γ(y+φ) - log Γ(φ) - y log φ - log y! + yη - (y+φ) log(1 + μ/φ); the first three
    together are Σ_{j<y} log(1 + j/φ), and everything tends to the Poisson as φ grows.
    """

    scale_names: tuple[str, ...] = ("phi",)

    def constants(self, seen: Observed) -> tuple[float, Array | None]:
        seen.require_no_trials()
        response = seen.response
        _require_counts(response)
        most = int(response.max(initial=0))
        require(
            most <= _TABLE,
            f"The largest count in y is {most}. Counts above {_TABLE} are not supported: use "
            "`linear` on their logarithms.",
        )
        counts = np.bincount(response.astype(np.int64), seen.weights, minlength=most + 1)
        above = (seen.total - np.cumsum(counts)[:-1]).astype(np.float64)
        return -seen.weighted_sum(gammaln(response + 1)), above

    def expected(self, eta: Array, trials: Array | None = None) -> Array:
        return np.asarray(np.exp(eta))

    def responses(
        self, eta: Array, log_scales: Array, uniforms: Array, trials: Array | None = None
    ) -> Array:
        phi = np.exp(log_scales[..., 0])
        return _whole(np.asarray(nbdtrik(uniforms, phi, 1 / (1 + np.exp(eta) / phi)), float))

    def log_densities(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        log_phi = log_scales[..., 0]
        log_term = _softplus(eta - log_phi)
        outside = self.outside(eta, log_scales, response)
        return np.asarray(outside - (response + np.exp(log_phi)) * log_term)

    def outside(
        self, eta: Array, log_scales: Array, response: Array, trials: Array | None = None
    ) -> Array:
        counts, log_phi = response.astype(np.int64), log_scales[..., 0]
        steps = np.log1p(np.arange(counts.max(initial=0)) * np.exp(-log_phi))
        sums = np.concatenate([np.zeros_like(log_phi), np.cumsum(steps, axis=1)], axis=1)
        return np.asarray(sums[:, counts] + response * eta - gammaln(response + 1))

    def prepare(self, seen: Observed) -> Rows:
        return _prepared(self, seen)

    def evaluate(self, kept: Rows, beta: Array, log_scales: Array, gradient: bool) -> Value:
        log_scale = float(log_scales[0])
        phi, y, n, above = np.exp(log_scale), kept.response, kept.counts, kept.above
        assert above is not None
        eta = kept.eta(beta)
        steps = np.arange(len(above)) * np.exp(-log_scale)
        excess = eta - log_scale
        log_term = _softplus(excess)
        value = float(above @ np.log1p(steps) + y @ eta - (y + n * phi) @ log_term) + kept.constant
        if not gradient:
            return Value(value)
        share = expit(excess)
        size = y + n * phi
        by_scale = size @ share - phi * (n @ log_term) - above @ (steps / (1 + steps))
        return Value(value, kept.columns.T @ (y - size * share), float(by_scale))

    def evaluate_many(
        self, kept: Rows, betas: Array, log_scales: Array, gradient: bool
    ) -> many_points.Values:
        return many_points.negative_binomial(kept, betas, log_scales[:, 0], gradient)


def _log_ways(successes: Array, trials: Array) -> Array:
    """Logarithms of binomial coefficients."""
    found = gammaln(trials + 1) - gammaln(successes + 1) - gammaln(trials - successes + 1)
    return np.asarray(found)


def _prepared(family: Family, seen: Observed) -> Rows:
    constant, above = family.constants(seen)
    table, counts, sums = distinct(seen.table, seen.weighted_response, seen.counts)
    if seen.offset is None:
        return Rows(table, counts, sums, constant, above)
    columns, offset = np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()
    return Rows(columns, counts, sums, constant, above, offset)


def distinct(
    columns: Array, response: Array, counts: Array | None = None
) -> tuple[Array, Array, Array]:
    """Distinct rows of X, how often each occurs, and the sums of y over them.

    X is returned unchanged if this would save less than half of its rows. A random projection finds
    equal rows, which are then compared. With `counts`, a row occurs that often.
    """
    key = np.zeros(len(columns))
    for column, weight in zip(columns.T, _projection(columns.shape[1]), strict=True):
        key += weight * column
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    few = 2 * len(first) <= len(columns)
    if few and all((column[first][which] == column).all() for column in columns.T):
        sums = np.bincount(which, weights=response).astype(np.float64)
        return columns[first], np.bincount(which, counts).astype(np.float64), sums
    return columns, np.ones(len(columns)) if counts is None else counts, response


def _projection(dim: int) -> Array:
    return np.random.default_rng(0).standard_normal(dim)


def _whole(quantiles: Array) -> Array:
    """Counts from quantiles of a distribution function that was made continuous."""
    return np.maximum(np.ceil(np.nan_to_num(quantiles) - 1e-9), 0.0)


def _softplus(x: Array) -> Array:
    """log(1 + exp x), several times faster than logaddexp."""
    small = np.exp(-np.abs(x))
    np.log1p(small, out=small)
    small += np.maximum(x, 0.0)
    return small


def _require_counts(response: Array) -> None:
    whole = (response >= 0) & (response == np.floor(response)) & np.isfinite(response)
    _require_all(whole, response, "A count is a whole number, 0 or above.")


def _require_all(fine: Any, response: Array, rule: str) -> None:
    if not fine.all():
        row = int(np.argmin(fine))
        raise BadInputError(f"y[{row}] is {response[row]}. {rule}")
