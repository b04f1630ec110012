"""Draws that chains in step have made, with room for more, and the state of such chains."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from quorate._types import Array, IntArray
from quorate.numerics.named_arrays import AnyArray
from quorate.samplers.base import Base

_ROOM = 2**26  # numbers, at first
_OF_BASE = ("mean", "lower")
_OF_KEPT = ("kept_z", "kept_values")

State = Mapping[str, AnyArray]


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

    def state(self, n: int) -> dict[str, AnyArray]:
        """The base and what is kept at the first `n` places: views, no copies."""
        base = self._base
        found = base.mean, base.lower, self._z[:n], self._values[:n]
        return dict(zip((*_OF_BASE, *_OF_KEPT), found, strict=True))

    def is_of(self, state: State) -> bool:
        """Whether a state has the same base."""
        base = self._base
        return all(np.array_equal(state[name], getattr(base, name)) for name in _OF_BASE)

    def restore(self, state: State, n: int) -> None:
        """Go on from what was kept at `n` places, or raise ValueError."""
        z, values = (state[name] for name in _OF_KEPT)
        _, *of_place = self._z.shape
        if not (_is_like(z, (n, *of_place)) and _is_like(values, (n, *of_place[:-1]))):
            raise ValueError(f"draws of shape {z.shape}")
        self._z, self._values = z, values


class InStep(ABC):
    """Chains in step, which keep their draws."""

    _kept: Kept
    _arrays: ClassVar[tuple[str, ...]]  # attributes that are the state of the chains
    _counts: ClassVar[tuple[str, ...]]

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

    @property
    @abstractmethod
    def _n_places(self) -> int:
        """Places at which a chain has kept a draw."""

    def state(self) -> dict[str, AnyArray]:
        """All that later draws depend on, and the draws so far: views, to be written at once."""
        names = (*self._arrays, *self._counts)
        own = {name: np.asarray(getattr(self, name)) for name in names}
        return own | self._kept.state(self._n_places)

    def is_of(self, state: State) -> bool:
        """Whether a state is of chains around the same base, and as many of them."""
        own = {name: np.asarray(getattr(self, name)) for name in (*self._arrays, *self._counts)}
        has_all = state.keys() >= {*own, *self._kept.state(0)}
        return (
            has_all
            and all(_is_like(state[name], mine.shape, mine.dtype) for name, mine in own.items())
            and self._kept.is_of(state)
        )

    def restore(self, state: State) -> None:
        """Go on from a state that is of these chains; ValueError if they cannot be in it."""
        for name in self._arrays:
            setattr(self, name, state[name])
        for name in self._counts:
            setattr(self, name, state[name].item())
        if not self._is_sound():
            raise ValueError("chains that are too far")
        self._kept.restore(state, self._n_places)
        self._go_on()

    @abstractmethod
    def _is_sound(self) -> bool:
        """Whether the chains are where chains can be: a stranger may have written the state."""

    @abstractmethod
    def _go_on(self) -> None:
        """Set what follows from the state."""


def _is_like(array: AnyArray, shape: tuple[int, ...], dtype: object = np.float64) -> bool:
    return array.dtype == dtype and array.shape == shape


def _with_room(array: Array, n: int) -> Array:
    """`array` (m, ...), or one twice as long with the same entries if m is below `n`."""
    m, *rest = array.shape
    if n <= m:
        return array
    longer = np.empty((max(n, 2 * m), *rest))
    longer[:m] = array
    return longer
