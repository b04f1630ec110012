"""Generalised linear models whose rows lie on a device of JAX: the same values, but for rounding.

The sum over rows that is not linear in η = Xβ is computed there, some rows at a time for all
points; its derivatives are those that JAX finds. What is linear, and what depends on few numbers,
is added by numpy.

A linear regression is not among them: its shard is reduced to a small triangle, and no device is
quicker with that than numpy.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.models import device
from quorate.models.many_points import Rows, Values, rising
from quorate.models.memo import PerShard
from quorate.models.protocol import Shard
from quorate.models.regressions.families import Logistic, NegativeBinomial, Poisson
from quorate.models.regressions.family import Value
from quorate.models.regressions.glm import GeneralisedLinearModel, Prepare
from quorate.models.regressions.robust import Student, log_constants

_MOST_CHUNKS = 1024  # that rows are cut into
_LEAST_ROWS = 8192  # of a chunk
_TERMS = 128  # of a product of numbers in (1, 2], which is below 2^128


def compiled(model: GeneralisedLinearModel) -> GeneralisedLinearModel:
    """The model with rows on the device, if its family gains by that."""
    if type(model.family) not in _FAMILIES:
        return model
    return CompiledRegression(**{each.name: getattr(model, each.name) for each in fields(model)})


@dataclass(frozen=True)
class OnDevice:
    """A prepared shard: arrays on the device, and what numpy adds to the sum over them."""

    arrays: dict[str, Any]  # X (n, p), counts (n,), response (n,), offset (n,)
    n_chunks: int  # a power of two; n is a multiple of it and of `_TERMS`
    is_once: bool  # whether every row counts once
    linear: Array  # (p,): the coefficients' share of what is linear in η
    constant: float
    rows: Rows  # for what depends on few numbers


class CompiledRegression(GeneralisedLinearModel):
    """A generalised linear model, evaluated by JAX."""

    is_compiled = True

    def _evaluate(self, x: Array, shard: Shard, *, gradient: bool) -> Value:
        found = self._evaluate_many(x[None], shard, gradient=gradient)
        value = float(found.log_likelihoods[0])
        if found.coefficients is None:
            return Value(value)
        scales = 0.0 if found.log_scales is None else found.log_scales[0]
        return Value(value, found.coefficients[0], scales)

    def _evaluate_many(self, points: Array, shard: Shard, *, gradient: bool) -> Values:
        kept = self._on_device(shard)
        p, n = len(self.columns), len(points)
        full = device.padded(points)
        with np.errstate(all="ignore"):  # a few points may be far out
            inputs = full[:, :p], self.log_scales(full)
            found = [array[:n] for array in self._sums(kept, *inputs, gradient)]
            return _FAMILIES[type(self.family)].finish(kept, points[:, :p], inputs[1][:n], found)

    def _sums(self, kept: OnDevice, betas: Array, scales: Array, gradient: bool) -> list[Array]:
        """The sum over rows at each point, and its derivatives if they are wanted."""
        n_rows = len(kept.arrays["columns"])

        def evaluate(limit: float) -> list[Array]:
            wanted = 8 * n_rows * len(betas) / limit
            n_chunks = min(kept.n_chunks, 1 << max(int(np.ceil(np.log2(max(wanted, 1)))), 0))
            once = kept.is_once and not gradient
            sums = self._compiled(kept.arrays, betas, scales, n_chunks, gradient, once)
            return [np.asarray(array) for array in sums]

        return device.MEMORY.fit(evaluate)

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        jax = jax_in_float64()
        family = _FAMILIES[type(self.family)]

        def summed(
            arrays: Any, betas: Any, scales: Any, n_chunks: int, gradient: bool, once: bool
        ) -> Any:
            terms = family.terms_once if once and family.terms_once else family.terms

            def of_chunk(betas: Any, scales: Any, rows: Any) -> Any:
                eta = betas @ rows["columns"].T + rows.get("offset", 0.0)
                return terms(eta, scales[:, :, None], rows["counts"], rows["response"])

            def add(sums: Any, rows: Any) -> Any:
                if not gradient:
                    return (sums[0] + of_chunk(betas, scales, rows),), None
                values, back = jax.vjp(lambda b, s: of_chunk(b, s, rows), betas, scales)
                found = (values, *back(jax.numpy.ones_like(values)))
                return tuple(a + b for a, b in zip(sums, found, strict=True)), None

            zeros = jax.numpy.zeros(len(betas)), *map(jax.numpy.zeros_like, (betas, scales))
            start = zeros if gradient else zeros[:1]
            if n_chunks == 1:
                return add(start, arrays)[0]
            chunks = {k: a.reshape(n_chunks, -1, *a.shape[1:]) for k, a in arrays.items()}
            return jax.lax.scan(add, start, chunks)[0]

        whole: Callable[..., Any] = jax.jit(
            summed, static_argnames=("n_chunks", "gradient", "once")
        )
        return whole

    @cached_property
    def _on_device(self) -> PerShard[OnDevice]:
        return PerShard(_Place(Prepare(self.family, self.columns)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_compiled"}


@dataclass(frozen=True)
class _Place:
    """Checks and prepares a shard, and puts it on the device."""

    prepare: Prepare

    def __call__(self, shard: Shard) -> OnDevice:
        rows: Rows = self.prepare(shard)
        lean = _FAMILIES[type(self.prepare.family)].lean(rows)
        constant = rows.constant
        given = {"columns": rows.columns, "counts": rows.counts, "response": rows.response}
        if rows.offset is not None:
            given["offset"] = rows.offset
            constant += float(lean @ rows.offset)
        n_chunks = 1 << max(min(_MOST_CHUNKS, len(lean) // _LEAST_ROWS).bit_length() - 1, 0)
        arrays = device.on_device({k: _padded(a, n_chunks * _TERMS) for k, a in given.items()})
        is_once = bool((rows.counts == 1).all())
        none = np.empty((0, len(self.prepare.columns)))  # no view, which would keep all rows
        few = Rows(none, rows.counts, none[:, 0], above=rows.above)
        return OnDevice(arrays, n_chunks, is_once, lean @ rows.columns, constant, few)


def _padded(array: Array, divisor: int) -> Array:
    """Rows and zeros after them, so that their number can be divided."""
    n_more = -len(array) % divisor
    return np.concatenate([array, np.zeros((n_more, *array.shape[1:]))]) if n_more else array


# ---------------------------------------------------------------- families


@dataclass(frozen=True)
class _Family:
    """What is computed where.

    `terms(eta, log_scales, counts, response)` is the sum over rows (n_points,) for η
    (n_points, n) and log scales (n_points, k, 1). `terms_once` is the same for rows that count
    once, or not at all, without derivatives. `lean(rows)` (n,) is what η is multiplied by in what
    is linear in it. `finish` adds that and the rest to the sums and derivatives.
    """

    terms: Callable[..., Any]
    lean: Callable[[Rows], Array]
    finish: Callable[[OnDevice, Array, Array, list[Array]], Values]
    terms_once: Callable[..., Any] | None = None


def _logistic(eta: Any, log_scales: Any, counts: Any, response: Any) -> Any:
    """-Σ |η|/2 + log(1 + exp(-|η|))."""
    xp = jax_in_float64().numpy
    size = xp.abs(eta)
    return -(counts * (0.5 * size + xp.log1p(xp.exp(-size)))).sum(axis=1)


def _logistic_once(eta: Any, log_scales: Any, counts: Any, response: Any) -> Any:
    """-Σ |η|/2 + log(1 + exp(-|η|)), with one logarithm for the product of many terms."""
    jax = jax_in_float64()
    size = jax.numpy.abs(eta)
    numbers = counts * size, 1 + counts * jax.numpy.exp(-size)
    parts = tuple(array.reshape(len(eta), -1, _TERMS) for array in numbers)
    sums, products = jax.lax.reduce(
        parts, (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (2,)
    )
    return -(0.5 * sums + jax.numpy.log(products)).sum(axis=1)


def _poisson(eta: Any, log_scales: Any, counts: Any, response: Any) -> Any:
    return -(counts * jax_in_float64().numpy.exp(eta)).sum(axis=1)


def _negative_binomial(eta: Any, log_scales: Any, counts: Any, response: Any) -> Any:
    xp = jax_in_float64().numpy
    log_phi = log_scales[:, 0]
    sizes = response + counts * xp.exp(log_phi)
    return -(sizes * xp.logaddexp(0.0, eta - log_phi)).sum(axis=1)


def _student(eta: Any, log_scales: Any, counts: Any, response: Any) -> Any:
    """Σ log(1 + z²/ν), which is multiplied by -(ν + 1)/2 afterwards."""
    xp = jax_in_float64().numpy
    z = (response - eta) * xp.exp(-log_scales[:, 0])
    return (counts * xp.log1p(z * z * xp.exp(-log_scales[:, 1]))).sum(axis=1)


def _add_linear(kept: OnDevice, betas: Array, scales: Array, found: list[Array]) -> Values:
    values = found[0] + betas @ kept.linear + kept.constant
    return Values(values) if len(found) == 1 else Values(values, found[1] + kept.linear)


def _add_rising(kept: OnDevice, betas: Array, scales: Array, found: list[Array]) -> Values:
    plain = _add_linear(kept, betas, scales, found)
    assert kept.rows.above is not None
    rises, slopes = rising(kept.rows.above, scales[:, 0])
    values = plain.log_likelihoods + rises
    if plain.coefficients is None:
        return Values(values)
    return Values(values, plain.coefficients, found[2][:, 0] + slopes)


def _weigh_logs(kept: OnDevice, betas: Array, scales: Array, found: list[Array]) -> Values:
    log_sigma, log_nu = scales.T
    nu, total, logs = np.exp(log_nu), kept.rows.counts.sum(), found[0]
    constant, slope = log_constants(nu)
    weight = -0.5 * (nu + 1)
    values = total * (constant - log_sigma) + weight * logs
    if len(found) == 1:
        return Values(values)
    by_sigma = weight * found[2][:, 0] - total
    by_nu = weight * found[2][:, 1] + total * slope - 0.5 * nu * logs
    return Values(values, weight[:, None] * found[1], np.column_stack([by_sigma, by_nu]))


_FAMILIES = {
    Logistic: _Family(
        _logistic, lambda rows: rows.response - 0.5 * rows.counts, _add_linear, _logistic_once
    ),
    Poisson: _Family(_poisson, lambda rows: rows.response, _add_linear),
    NegativeBinomial: _Family(_negative_binomial, lambda rows: rows.response, _add_rising),
    Student: _Family(_student, lambda rows: np.zeros_like(rows.response), _weigh_logs),
}
