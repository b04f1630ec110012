"""Log-likelihoods of generalised linear models, summed over rows, and their derivatives.

A family first *prepares* a shard: it checks the response and computes what never changes. It is
then evaluated at η = Xβ, and at the logarithm of its scale parameter if it has one. Every term is
written so that neither large |η| nor a large scale loses digits. Equal rows of X share their η, and
responses enter only through their sum. Such rows are stored once, with their count, so a regression
on a few categories costs only as much as their number of combinations.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, gammaln, nbdtrik, ndtri, pdtrik

from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.models import many_points
from quorate.models.many_points import Rows

_CHUNK = 65_536  # rows factorised at a time
_TABLE = 100_000  # counts up to which log Γ(y + φ) - log Γ(φ) is summed term by term


@dataclass(frozen=True)
class Value:
    """A log-likelihood, with its derivatives if they were requested."""

    log_likelihood: float
    coefficients: Array | None = None  # (p,)
    log_scale: float = 0.0


class Family(Protocol):
    """The interface of the ready-made likelihoods."""

    @property
    def scale_name(self) -> str | None:
        """Name of the positive parameter, or None."""

    def constants(self, response: Array) -> tuple[float, Array | None]:
        """Check y (n,), and reduce what depends on it but not on η.

        Returns a constant, and for some families the number of responses above 0, 1, ….
        """

    def expected(self, eta: Array) -> Array:
        """The mean of y, of the shape of η."""

    def responses(self, eta: Array, log_scales: Array, uniforms: Array) -> Array:
        """A draw of y for each entry of η, from one uniform number each."""

    def log_densities(self, eta: Array, log_scales: Array, response: Array) -> Array:
        """Log density of each y, of the shape of η: (n_points, n_rows). Scales broadcast."""

    def outside(self, eta: Array, log_scales: Array, response: Array) -> Array:
        """The part of `log_densities` that integrals over parameters of groups leave out.

        `eta` is Xβ, without these parameters. See `quorate.models.groups.regressions.chunks`.
        """

    def prepare(self, columns: Array, response: Array) -> Any:
        """Check a shard and reduce it: `columns` is X (n, p), `response` y (n,)."""

    def evaluate(self, kept: Any, beta: Array, log_scale: float, gradient: bool) -> Value:
        """The log-likelihood of a prepared shard at one point."""

    def evaluate_many(
        self, kept: Any, betas: Array, log_scales: Array, gradient: bool
    ) -> many_points.Values:
        """The log-likelihoods at `betas` (n_points, p) and `log_scales` (n_points,)."""


@dataclass(frozen=True)
class Linear:
    """y ~ N(Xβ, σ²). A shard is reduced to the triangle R of a QR factorisation of (X, y).

    One evaluation then costs p², however many rows there are. It loses no digits, because
    |y - Xβ|² is |R(β, -1)|² and not a difference of sums of squares.
    """

    scale_name: str | None = "sigma"

    def constants(self, response: Array) -> tuple[float, Array | None]:
        return 0.0, None

    def expected(self, eta: Array) -> Array:
        return eta

    def responses(self, eta: Array, log_scales: Array, uniforms: Array) -> Array:
        return np.asarray(eta + np.exp(log_scales) * ndtri(uniforms))

    def log_densities(self, eta: Array, log_scales: Array, response: Array) -> Array:
        misfits = (response - eta) * np.exp(-log_scales)
        return np.asarray(-0.5 * misfits**2 - log_scales - 0.5 * np.log(2 * np.pi))

    def outside(self, eta: Array, log_scales: Array, response: Array) -> Array:
        return self.log_densities(eta, log_scales, response)

    def prepare(self, columns: Array, response: Array) -> tuple[int, Array]:
        n, p = columns.shape
        triangle = np.zeros((0, p + 1))
        for start in range(0, n, _CHUNK):
            part = slice(start, start + _CHUNK)
            block = np.column_stack([columns[part], response[part]])
            triangle = np.asarray(np.linalg.qr(np.vstack([triangle, block]), mode="r"))
        return n, triangle

    def evaluate(
        self, kept: tuple[int, Array], beta: Array, log_scale: float, gradient: bool
    ) -> Value:
        n, triangle = kept
        residual = triangle[:, -1] - triangle[:, :-1] @ beta
        precision = np.exp(-2 * log_scale)
        misfit = float(residual @ residual) * precision
        value = -0.5 * misfit - n * (log_scale + 0.5 * np.log(2 * np.pi))
        if not gradient:
            return Value(float(value))
        slope = triangle[:, :-1].T @ residual * precision
        return Value(float(value), slope, misfit - n)

    def evaluate_many(
        self, kept: tuple[int, Array], betas: Array, log_scales: Array, gradient: bool
    ) -> many_points.Values:
        return many_points.linear(*kept, betas, log_scales, gradient)


@dataclass(frozen=True)
class Logistic:
    """P(y = 1) = expit(Xβ), y in {0, 1}."""

    scale_name: str | None = None

    def constants(self, response: Array) -> tuple[float, Array | None]:
        binary = (response == 0) | (response == 1)
        _require_all(binary, response, "A logistic response is 0 or 1: compare it, as in `y > 15`.")
        return 0.0, None

    def expected(self, eta: Array) -> Array:
        return np.asarray(expit(eta))

    def responses(self, eta: Array, log_scales: Array, uniforms: Array) -> Array:
        return np.asarray(uniforms < expit(eta), dtype=np.float64)

    def log_densities(self, eta: Array, log_scales: Array, response: Array) -> Array:
        return response * eta - _softplus(eta)

    def outside(self, eta: Array, log_scales: Array, response: Array) -> Array:
        return response * eta

    def prepare(self, columns: Array, response: Array) -> Rows:
        return _prepared(self, columns, response)

    def evaluate(self, kept: Rows, beta: Array, log_scale: float, gradient: bool) -> Value:
        eta = kept.columns @ beta
        value = float(kept.response @ eta - kept.counts @ _softplus(eta))
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

    scale_name: str | None = None

    def constants(self, response: Array) -> tuple[float, Array | None]:
        _require_counts(response)
        return -float(gammaln(response + 1).sum()), None

    def expected(self, eta: Array) -> Array:
        return np.asarray(np.exp(eta))

    def responses(self, eta: Array, log_scales: Array, uniforms: Array) -> Array:
        return _whole(pdtrik(uniforms, np.exp(eta)))

    def log_densities(self, eta: Array, log_scales: Array, response: Array) -> Array:
        return self.outside(eta, log_scales, response) - np.exp(eta)

    def outside(self, eta: Array, log_scales: Array, response: Array) -> Array:
        return np.asarray(response * eta - gammaln(response + 1))

    def prepare(self, columns: Array, response: Array) -> Rows:
        return _prepared(self, columns, response)

    def evaluate(self, kept: Rows, beta: Array, log_scale: float, gradient: bool) -> Value:
        eta = kept.columns @ beta
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

    scale_name: str | None = "phi"

    def constants(self, response: Array) -> tuple[float, Array | None]:
        _require_counts(response)
        most = int(response.max(initial=0))
        require(
            most <= _TABLE,
            f"The largest count in y is {most}. Counts above {_TABLE} are not supported: use "
            "`linear` on their logarithms.",
        )
        counts = np.bincount(response.astype(np.int64), minlength=most + 1)
        above = (len(response) - np.cumsum(counts)[:-1]).astype(np.float64)
        return -float(gammaln(response + 1).sum()), above

    def expected(self, eta: Array) -> Array:
        return np.asarray(np.exp(eta))

    def responses(self, eta: Array, log_scales: Array, uniforms: Array) -> Array:
        phi = np.exp(log_scales)
        return _whole(np.asarray(nbdtrik(uniforms, phi, 1 / (1 + np.exp(eta) / phi)), float))

    def log_densities(self, eta: Array, log_scales: Array, response: Array) -> Array:
        log_term = _softplus(eta - log_scales)
        outside = self.outside(eta, log_scales, response)
        return outside - (response + np.exp(log_scales)) * log_term

    def outside(self, eta: Array, log_scales: Array, response: Array) -> Array:
        counts = response.astype(np.int64)
        steps = np.log1p(np.arange(counts.max(initial=0)) * np.exp(-log_scales))
        sums = np.concatenate([np.zeros_like(log_scales), np.cumsum(steps, axis=1)], axis=1)
        return np.asarray(sums[:, counts] + response * eta - gammaln(response + 1))

    def prepare(self, columns: Array, response: Array) -> Rows:
        return _prepared(self, columns, response)

    def evaluate(self, kept: Rows, beta: Array, log_scale: float, gradient: bool) -> Value:
        phi, y, n, above = np.exp(log_scale), kept.response, kept.counts, kept.above
        assert above is not None
        eta = kept.columns @ beta
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
        return many_points.negative_binomial(kept, betas, log_scales, gradient)


def _prepared(family: Family, columns: Array, response: Array) -> Rows:
    constant, above = family.constants(response)
    return Rows(*distinct(columns, response), constant, above)


def distinct(columns: Array, response: Array) -> tuple[Array, Array, Array]:
    """Distinct rows of X, how often each occurs, and the sums of y over them.

    X is returned unchanged if this would save less than half of its rows. A random projection finds
    equal rows, which are then compared.
    """
    key = np.zeros(len(columns))
    for column, weight in zip(columns.T, _projection(columns.shape[1]), strict=True):
        key += weight * column
    _, first, which, counts = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    few = 2 * len(first) <= len(columns)
    if few and all((column[first][which] == column).all() for column in columns.T):
        sums = np.bincount(which, weights=response).astype(np.float64)
        return columns[first], counts.astype(np.float64), sums
    return columns, np.ones(len(columns)), response


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
