"""Arrays of numpy that rows under JAX may index."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64


class Indexable(np.ndarray):
    """An array of numpy that takes traced indices too; the entries are then an array of JAX.

    A program may look up `uranium[county]`, where `county` is an array of rows. Libraries that
    close over all data look that up in numpy. Here rows are traced, which numpy does not take. All
    else stays numpy: sizes and maxima of constants are known when a program is compiled.
    """

    def __getitem__(self, key: Any) -> Any:
        jax = jax_in_float64()
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(one, jax.core.Tracer) for one in keys):
            return jax.numpy.asarray(self.view(np.ndarray))[key]
        return super().__getitem__(key)


def indexable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a program, with arrays of numpy that take traced indices."""
    return {
        name: value.view(Indexable) if type(value) is np.ndarray else value
        for name, value in arguments.items()
    }
