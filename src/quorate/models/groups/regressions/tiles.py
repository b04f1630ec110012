"""Points in tiles that a device works on at once, and arrays in few shapes.

Each shape is compiled anew. Points are padded to a tile, and groups to a round number, so that
there are few shapes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import IntArray
from quorate.errors import BadInputError

_LEAST, _GROWTH = 16, 4  # points of the smallest tile, and times those of the next
_ON_PROCESSORS = 64e6  # bytes of the arrays of a tile
_ON_DEVICES = 4e9
_SHARE = 0.25  # of the free memory of a device
_DIGITS = 4  # binary digits of a round number
_NO_MEMORY = "RESOURCE_EXHAUSTED"

T = TypeVar("T")


def round_number(n: int) -> int:
    """n, rounded up to a number with few binary digits."""
    unit = 1 << max(n.bit_length() - _DIGITS, 0)
    return -(-n // unit) * unit


def points_of_tile(bytes_of_point: float) -> int:
    """How many points, a power of two, the device works on at once."""
    most = int(_free_bytes() / max(bytes_of_point, 1.0))
    return 1 << max(most.bit_length() - 1, 0)


def _free_bytes() -> float:
    device = jax_in_float64().devices()[0]
    if device.platform == "cpu":
        return _ON_PROCESSORS
    seen = device.memory_stats() or {}
    free = seen.get("bytes_limit", _ON_DEVICES / _SHARE) - seen.get("bytes_in_use", 0)
    return float(min(_ON_DEVICES, _SHARE * free))


def in_tiles(
    n_points: int, n_tile: int, evaluate: Callable[[IntArray], T]
) -> list[tuple[slice, T]]:
    """The points of each tile, and what `evaluate` finds at them.

    It is given positions of points, as many as a tile has: the last one is repeated. So its results
    may have more entries than there are points, see `on_host`. Where the memory of the device is
    not enough, tiles are made smaller.
    """
    jax = jax_in_float64()
    try:
        found = [(at, evaluate(places)) for at, places in _tiles(n_points, n_tile)]
        jax.block_until_ready([results for _, results in found])
        return found
    except jax.errors.JaxRuntimeError as error:
        if _NO_MEMORY not in str(error):
            raise
        if n_tile == 1:
            raise BadInputError(
                "The device has too little memory for the rows of a shard at one point. Use more "
                "workers, so that shards are smaller, or run on CPUs."
            ) from error
    return in_tiles(n_points, n_tile // 2, evaluate)


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
