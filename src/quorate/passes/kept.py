"""Draws that chains in step have made, with room for more."""

from abc import ABC, abstractmethod

import numpy as np

from quorate._types import Array, IntArray
from quorate.samplers.base import Base

_ROOM = 2**26  # numbers, at first


class Kept:
    """Draws of chains and the log posterior there, by place and chain.

    The system gives memory as chains move on: room that is never used costs nothing. It refuses
    very much room at once, so there is room for some draws at first, and for more when needed.
    """

    def __init__(self, base: Base, n_chains: int, n_draws: int) -> None:
        self._base = base
        n_first = min(n_draws, _ROOM // (n_chains * base.dim))
        self._z = np.empty((n_first, n_chains, base.dim))
        self._values = np.empty((n_first, n_chains))

    def put(self, chains: IntArray, places: IntArray, z: Array, values: Array) -> None:
        """Keep a draw of each of `chains` at its place, in units of the base."""
        n_needed = int(places.max(initial=-1)) + 1
        self._z, self._values = _with_room(self._z, n_needed), _with_room(self._values, n_needed)
        self._z[places, chains], self._values[places, chains] = z, values

    def draws(self, n: int) -> Array:
        """The first `n` of every chain, in the coordinates of the model: (n_chains, n, d)."""
        z = self._z[:n]
        points = self._base.points(z.reshape(-1, z.shape[-1])).reshape(z.shape)
        return np.swapaxes(points, 0, 1)

    def log_densities(self, n: int) -> Array:
        """The log posterior at the first `n` of every chain, (n_chains, n)."""
        return self._values[:n].T


class InStep(ABC):
    """Chains in step, which keep their draws."""

    _kept: Kept

    @property
    @abstractmethod
    def n_complete(self) -> int:
        """Draws that every chain has made."""

    @property
    def draws(self) -> Array:
        """The draws that all chains have made, (n_chains, n_complete, d)."""
        return self._kept.draws(self.n_complete)

    @property
    def log_densities(self) -> Array:
        """The log posterior at the draws, (n_chains, n_complete)."""
        return self._kept.log_densities(self.n_complete)


def _with_room(array: Array, n: int) -> Array:
    """`array` (m, ...), or one twice as long with the same entries if m is below `n`."""
    m, *rest = array.shape
    if n <= m:
        return array
    longer = np.empty((max(n, 2 * m), *rest))
    longer[:m] = array
    return longer
