"""The location and scale that a chain moves around, with the same bits on all machines.

A chain moves in z, and its draws are x = mean + lower z. Any mean and lower are valid. So both are
rounded to a grid so coarse that rounding errors of machines do not matter: 2⁻¹² standard
deviations, finer for nearly collinear coordinates. z is rounded to a grid of 2⁻⁴⁰, which removes
the last bits of sines, logarithms and square roots. Products are summed in a fixed order, without
BLAS.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

import numpy as np

from quorate._types import Array
from quorate.samplers.laplace import LaplaceFit

_BITS = 12
_MOST_BITS = 40
_POINT_BITS = 36
_GRID = 2.0**40  # of z
_ENTRIES = 250_000  # of a product at a time, which one thread makes sooner than several


@dataclass(frozen=True)
class Base:
    """A location and a scale: `mean` (d,), and `lower`, lower triangular (d, d)."""

    mean: Array
    lower: Array

    @classmethod
    def around(cls, fit: LaplaceFit) -> "Base":
        """The base with the mode and covariance of `fit`, rounded."""
        sds = np.sqrt(np.sum(fit.lower**2, axis=1))
        # Rounding counts relative to the sd of a coordinate given all before it
        lost = log2(float(np.max(sds / np.diag(fit.lower))))
        bits = min(_BITS + ceil(lost), _MOST_BITS)
        grid = 2.0 ** (np.ceil(np.log2(sds)) - bits)
        lower = np.round(fit.lower / grid[:, None]) * grid[:, None]
        return cls(np.round(fit.mode / grid) * grid, lower)

    @classmethod
    def standard(cls, mean: Array) -> "Base":
        """The base at `mean` with scale 1 along every coordinate."""
        return cls(mean, np.eye(len(mean)))

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return len(self.mean)

    @property
    def covariance(self) -> Array:
        """Covariance lower lowerᵀ, shape (d, d)."""
        return np.asarray(self.lower @ self.lower.T)

    def point(self, z: Array) -> Array:
        """The point mean + lower z, for z of shape (d,).

        The sum runs over the outer axis, which numpy adds row by row.
        """
        return np.asarray(self.mean + np.add.reduce(z[:, None] * self._columns, axis=0))

    def points(self, z: Array) -> Array:
        """The points mean + lower z, for z of shape (n, d).

        They are rounded to 2⁻³⁶ standard deviations, which hides how a machine adds.
        """
        found = np.empty_like(z)
        at_once = max(_ENTRIES // self.dim**2, 64)
        for start in range(0, len(z), at_once):
            part = found[start : start + at_once]
            np.matmul(z[start : start + at_once], self.lower.T, out=part)
            part += self.mean
            part /= self._grid
            np.rint(part, out=part)
            part *= self._grid
        return found

    @cached_property
    def scales(self) -> Array:
        """The standard deviations of the coordinates, rounded up to powers of two, (d,)."""
        sds = np.sqrt(np.sum(self.lower**2, axis=1))
        return np.asarray(2.0 ** np.ceil(np.log2(sds)))

    @cached_property
    def _grid(self) -> Array:
        return np.asarray(self.scales / 2.0**_POINT_BITS)

    @cached_property
    def _columns(self) -> Array:
        return np.ascontiguousarray(self.lower.T)


def snapped(z: Array) -> Array:
    """`z` rounded to multiples of 2⁻⁴⁰."""
    grown = z * _GRID
    np.rint(grown, out=grown)
    grown /= _GRID
    return grown
