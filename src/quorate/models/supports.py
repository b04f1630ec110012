"""Supports of parameters, and their bijections with unconstrained space.

Every support maps x in ℝⁿ to a value θ of its `shape` and knows log |dθ/dx|. The density of a
simplex is that of all but its last entry; the density of a correlation matrix is that of the
entries below its diagonal. The Dirichlet and LKJ densities are usually written so. All functions
take leading axes, and numpy or jax.numpy as `xp`.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np

from quorate.errors import require
from quorate.models.arrays import (
    AnyArray,
    Namespace,
    flatten,
    indexed,
    log_expit,
    log_sech2,
    settle_shape,
    sum_over,
    unflatten,
)
from quorate.numerics.names import indexed_at


class Support(Protocol):
    """The values that a parameter may take."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value θ."""

    @property
    def dim(self) -> int:
        """n, the number of unconstrained coordinates."""

    def constrain(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        """θ(x): (..., n) to (..., *shape)."""

    def unconstrain(self, value: AnyArray, xp: Namespace = np) -> AnyArray:
        """x(θ): (..., *shape) to (..., n)."""

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        """log |dθ/dx|: (..., n) to (...)."""

    def labels(self, name: str) -> tuple[str, ...]:
        """One label for each unconstrained coordinate of a parameter of that name."""


@dataclass(frozen=True)
class _Single:
    """An array of numbers that are transformed one by one, each to one coordinate."""

    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        settle_shape(self, 0)

    @property
    def dim(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Real(_Single):
    """All numbers."""

    def constrain(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        return unflatten(x, self.shape)

    def unconstrain(self, value: AnyArray, xp: Namespace = np) -> AnyArray:
        return flatten(value, self.shape)

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        return xp.zeros(x.shape[:-1])

    def labels(self, name: str) -> tuple[str, ...]:
        return indexed(name, self.shape)


@dataclass(frozen=True)
class Positive(_Single):
    """Numbers above 0, by θ = exp x."""

    def constrain(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        return unflatten(xp.exp(x), self.shape)

    def unconstrain(self, value: AnyArray, xp: Namespace = np) -> AnyArray:
        return xp.log(flatten(value, self.shape))

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        return xp.sum(x, axis=-1)

    def labels(self, name: str) -> tuple[str, ...]:
        return tuple(f"log({label})" for label in indexed(name, self.shape))


@dataclass(frozen=True)
class UnitInterval(_Single):
    """Numbers between 0 and 1, by x = logit θ."""

    def constrain(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        return unflatten(xp.exp(log_expit(x, xp)), self.shape)

    def unconstrain(self, value: AnyArray, xp: Namespace = np) -> AnyArray:
        flat = flatten(value, self.shape)
        return xp.log(flat) - xp.log1p(-flat)

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        return xp.sum(log_expit(x, xp) + log_expit(-x, xp), axis=-1)

    def labels(self, name: str) -> tuple[str, ...]:
        return tuple(f"logit({label})" for label in indexed(name, self.shape))


@dataclass(frozen=True)
class Simplex:
    """Positive numbers that sum to 1 along the last axis, by stick breaking; x = 0 is the middle.

    Piece k, from 0, takes the share expit(x_k - log(n - k)) of what earlier pieces left.
    """

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        settle_shape(self, 1)

    @property
    def dim(self) -> int:
        return prod(self._free)

    def constrain(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        log_share, log_left = self._break(x, xp)
        zero = xp.zeros_like(log_left[..., :1])
        before = xp.concatenate([zero, log_left], axis=-1)
        return xp.exp(before + xp.concatenate([log_share, zero], axis=-1))

    def unconstrain(self, value: AnyArray, xp: Namespace = np) -> AnyArray:
        left = xp.flip(xp.cumsum(xp.flip(value, axis=-1), axis=-1), axis=-1)
        odds = xp.log(value[..., :-1]) - xp.log(left[..., 1:])
        return flatten(odds + self._offsets, self._free)

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        # dθ_k/dx_k = share_k (1 - share_k) left_k, and left_{k+1} = (1 - share_k) left_k.
        log_share, log_left = self._break(x, xp)
        return sum_over(log_share + log_left, len(self.shape), xp)

    def labels(self, name: str) -> tuple[str, ...]:
        return tuple(f"logit-share({label})" for label in indexed(name, self._free))

    @property
    def _free(self) -> tuple[int, ...]:
        return (*self.shape[:-1], self.shape[-1] - 1)

    @property
    def _offsets(self) -> AnyArray:
        return np.log(np.arange(self.shape[-1] - 1, 0, -1.0))

    def _break(self, x: AnyArray, xp: Namespace) -> tuple[AnyArray, AnyArray]:
        logits = unflatten(x, self._free) - self._offsets
        return log_expit(logits, xp), xp.cumsum(log_expit(-logits, xp), axis=-1)


@dataclass(frozen=True)
class Ordered:
    """Numbers that increase along the last axis, by the logarithms of their gaps."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        settle_shape(self, 1)

    @property
    def dim(self) -> int:
        return prod(self.shape)

    def constrain(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        rows = unflatten(x, self.shape)
        steps = xp.concatenate([rows[..., :1], xp.exp(rows[..., 1:])], axis=-1)
        return xp.cumsum(steps, axis=-1)

    def unconstrain(self, value: AnyArray, xp: Namespace = np) -> AnyArray:
        gaps = xp.log(xp.diff(value, axis=-1))
        return flatten(xp.concatenate([value[..., :1], gaps], axis=-1), self.shape)

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        return sum_over(unflatten(x, self.shape)[..., 1:], len(self.shape), xp)

    def labels(self, name: str) -> tuple[str, ...]:
        return tuple(
            label if not index[-1] else f"log({label} - {indexed_at(name, (*index[:-1], before))})"
            for label, index in zip(indexed(name, self.shape), np.ndindex(self.shape), strict=True)
            for before in [index[-1] - 1]
        )


@dataclass(frozen=True)
class Correlation:
    """Correlation matrices (..., m, m), by the Cholesky factor that tanh x_ij builds row by row.

    tanh x_ij are canonical partial correlations (Lewandowski, Kurowicka & Joe 2009).
    """

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        settle_shape(self, 2)
        square = self.shape[-1] == self.shape[-2]
        require(square, f"Correlation has shape {self.shape}. It must be square: end in (m, m).")

    @property
    def dim(self) -> int:
        return prod(self._free)

    def constrain(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        lower = self._cholesky(x, xp)
        return lower @ xp.swapaxes(lower, -1, -2)

    def unconstrain(self, value: AnyArray, xp: Namespace = np) -> AnyArray:
        lower = xp.linalg.cholesky(value)
        squares = xp.flip(xp.cumsum(xp.flip(lower**2, axis=-1), axis=-1), axis=-1)
        rows, columns = self._below
        partial = lower[..., rows, columns] / xp.sqrt(squares[..., rows, columns])
        return flatten(xp.arctanh(partial), self._free)

    def log_jacobian(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        _, columns = self._below
        powers = (
            self.shape[-1] - columns
        ) / 2  # (m - k - 1)/2 of column k = columns + 1; + 1: tanh
        return sum_over(powers * log_sech2(unflatten(x, self._free), xp), self._axes, xp)

    def labels(self, name: str) -> tuple[str, ...]:
        pairs = list(zip(*self._below, strict=True))
        batches = list(np.ndindex(self.shape[:-2]))
        return tuple(
            f"atanh-partial({indexed_at(name, (*batch, *map(int, pair)))})"
            for batch in batches
            for pair in pairs
        )

    @cached_property
    def _below(self) -> tuple[AnyArray, AnyArray]:
        rows, columns = np.tril_indices(self.shape[-1], -1)
        return rows, columns

    @property
    def _free(self) -> tuple[int, ...]:
        return (*self.shape[:-2], len(self._below[0]))

    @property
    def _axes(self) -> int:
        return len(self._free)

    def _cholesky(self, x: AnyArray, xp: Namespace) -> AnyArray:
        free = unflatten(x, self._free)
        zero, one = xp.zeros_like(free[..., :1]), xp.ones_like(free[..., :1])
        size, n_free = self.shape[-1], self._free[-1]
        where = np.full((size, size), n_free)  # above the diagonal: index of the appended 0
        where[self._below] = np.arange(n_free)
        log_rest = xp.concatenate([0.5 * log_sech2(free, xp), zero], axis=-1)[..., where]
        before = xp.cumsum(log_rest, axis=-1) - log_rest
        np.fill_diagonal(where, n_free + 1)  # on the diagonal: index of the appended 1
        return xp.concatenate([xp.tanh(free), zero, one], axis=-1)[..., where] * xp.exp(before)
