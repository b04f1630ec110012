"""The place and scale that a chain is drawn around, built so that all machines get the same bits.

A chain moves in z; its draws are x = mean + lower z. Any mean and lower are valid, so both are
rounded until what is left does not depend on how a machine rounds: on a grid of 2⁻¹² standard
deviations, finer where coordinates are nearly collinear. z is kept on a grid of 2⁻⁴⁰, which
swallows the last bits of sines, logarithms and square roots. Products are summed in a fixed order,
without BLAS.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

import numpy as np

from quorate._types import Array
from quorate.samplers.laplace import LaplaceFit

_BITS = 12
_MOST_BITS = 40
_GRID = 2.0**40  # of z


@dataclass(frozen=True)
class Base:
    """`mean` is (d,), `lower` a lower triangular (d, d)."""

    mean: Array
    lower: Array

    @classmethod
    def around(cls, fit: LaplaceFit) -> "Base":
        """The rounded fit."""
        sds = np.sqrt(np.sum(fit.lower**2, axis=1))
        # Rounding is felt in units of the sd of a coordinate given all before it
        lost = log2(float(np.max(sds / np.diag(fit.lower))))
        bits = min(_BITS + ceil(lost), _MOST_BITS)
        grid = 2.0 ** (np.ceil(np.log2(sds)) - bits)
        lower = np.round(fit.lower / grid[:, None]) * grid[:, None]
        return cls(np.round(fit.mode / grid) * grid, lower)

    @classmethod
    def standard(cls, mean: Array) -> "Base":
        """Scale 1 along every coordinate."""
        return cls(mean, np.eye(len(mean)))

    @property
    def covariance(self) -> Array:
        """Lower lowerᵀ."""
        return np.asarray(self.lower @ self.lower.T)

    def point(self, z: Array) -> Array:
        """mean + lower z for z of shape (d,).

        The sum goes over the outer axis, which numpy adds row by row.
        """
        return np.asarray(self.mean + np.add.reduce(z[:, None] * self._columns, axis=0))

    @cached_property
    def _columns(self) -> Array:
        return np.ascontiguousarray(self.lower.T)


def snapped(z: Array) -> Array:
    """The nearest multiples of 2⁻⁴⁰."""
    return np.asarray(np.round(z * _GRID) / _GRID)
