"""The JAX device of this process: how much it is given at a time, and how it is padded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.errors import DeviceMemoryError

T = TypeVar("T")

SIZES = (1, 64, 512, 4096)  # numbers of points that an accelerator is asked for
_LEAST = 16  # points that a core is asked for; fewer are padded
ON_A_CORE = 16e6  # bytes of one number for each row and point at a time
_SHARE = 1 / 16  # of an accelerator's memory, for the same: a model has several such arrays
_MOST = 1e9  # bytes, for the same
_NO_MEMORY = "RESOURCE_EXHAUSTED"  # in an error of JAX


def is_accelerator() -> bool:
    """Whether JAX computes on something else than cores here."""
    return bool(jax_in_float64().default_backend() != "cpu")


def padded(points: Array) -> Array:
    """Points (n, d), the last one repeated up to one of few sizes, so that few are compiled.

    The size is a power of two on a core, and one of `SIZES` or a multiple of the last on an
    accelerator. Without points there are zeros.
    """
    n, dim = points.shape
    wanted = _size(n) if is_accelerator() else max(_LEAST, 1 << max(n - 1, 0).bit_length())
    if n == 0:
        return np.zeros((wanted, dim))
    return np.concatenate([points, np.broadcast_to(points[-1:], (wanted - n, dim))])


def _size(n: int) -> int:
    most = SIZES[-1]
    return next((size for size in SIZES if size >= n), most * -(-n // most))


class Memory:
    """How many bytes one number for each row and point may take at a time."""

    def __init__(self) -> None:
        self._limit: float | None = None

    @property
    def limit(self) -> float:
        """Bytes, from what memory the device has free; less after it was too much."""
        if self._limit is None:
            self._limit = _free() if is_accelerator() else ON_A_CORE
        return self._limit

    def fit(self, evaluate: Callable[[float], T]) -> T:
        """What `evaluate(limit)` returns, with a smaller limit if memory does not suffice."""
        while True:
            try:
                with lack_of_memory_in_words():
                    return evaluate(self.limit)
            except DeviceMemoryError:
                if self.limit / 2 < ON_A_CORE:
                    raise
                self._limit = self.limit / 2


MEMORY = Memory()


@contextmanager
def lack_of_memory_in_words() -> Iterator[None]:
    """Raise `DeviceMemoryError` if JAX finds too little memory on the device."""
    try:
        yield
    except jax_in_float64().errors.JaxRuntimeError as error:
        if _NO_MEMORY not in str(error):
            raise
        raise DeviceMemoryError(device_name()) from error


def on_device(arrays: T) -> T:
    """A tree of arrays, copied to the device."""
    with lack_of_memory_in_words():
        copied: T = jax_in_float64().device_put(arrays)
        return copied


def device_name() -> str:
    """The device that JAX uses by default in this process."""
    device = _device()
    return f"{device.platform}:{device.id} ({device.device_kind})"


def _device() -> Any:
    jax = jax_in_float64()
    return jax.config.jax_default_device or jax.devices()[0]


def _free() -> float:
    known = _device().memory_stats() or {}
    free = known.get("bytes_limit", 16 * _MOST) - known.get("bytes_in_use", 0)
    return max(min(float(free) * _SHARE, _MOST), ON_A_CORE)
