"""Points in tiles that a device works on at once, and arrays in few shapes.

Each shape is compiled anew. Points are padded to a tile, and groups to a round number, so that
there are few shapes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array, IntArray
from quorate.models import device

_LEAST, _GROWTH = 16, 4  # points of the smallest tile, and times those of the next
_ARRAYS = 4  # as large as the limit of memory, that a tile may take
_DIGITS = 4  # binary digits of a round number

T = TypeVar("T")


def round_number(n: int) -> int:
    """n, rounded up to a number with few binary digits."""
    unit = 1 << max(n.bit_length() - _DIGITS, 0)
    return -(-n // unit) * unit


def filled_up(array: Array, n_groups: int) -> Array:
    """An array whose last axis is that of groups, with zeros up to so many of them."""
    widths = [(0, 0)] * (array.ndim - 1) + [(0, n_groups - array.shape[-1])]
    return np.pad(array, widths)


def in_tiles(
    n_points: int, bytes_of_point: float, evaluate: Callable[[IntArray], T]
) -> list[tuple[slice, T]]:
    """The points of each tile, and what `evaluate` finds at them.

    It is given positions of points, as many as a tile has: the last one is repeated. So its results
    may have more entries than there are points, see `on_host`. Where the memory of the device is
    not enough, tiles are made smaller.
    """

    def in_some(limit: float) -> list[tuple[slice, T]]:
        n_tile = _points_of_tile(bytes_of_point, limit)
        found = [(at, evaluate(places)) for at, places in _tiles(n_points, n_tile)]
        jax_in_float64().block_until_ready([results for _, results in found])
        return found

    return device.MEMORY.fit(in_some)


def _points_of_tile(bytes_of_point: float, limit: float) -> int:
    """How many points, a power of two, the device works on at once."""
    most = int(_ARRAYS * limit / max(bytes_of_point, 1.0))
    return 1 << max(most.bit_length() - 1, 0)


def on_host(arrays: Iterable[Any], at: slice) -> list[Any]:
    """Arrays of the device in numpy, without entries for points that fill a tile. None stays."""
    n = at.stop - at.start
    return [None if array is None else np.asarray(array)[:n] for array in arrays]


def _tiles(n_points: int, n_tile: int) -> Iterator[tuple[slice, IntArray]]:
    size = _LEAST
    while size < n_points:
        size *= _GROWTH
    size = min(size, n_tile)
    for first in range(0, n_points, size):
        places = np.minimum(np.arange(first, first + size), n_points - 1)
        yield slice(first, min(first + size, n_points)), places
