"""Which draws of a run are used where not all of them are."""

import numpy as np

from quorate._types import IntArray
from quorate.errors import require


def spaced(n_all: int, n: int) -> IntArray:
    """`n` of the numbers 0, …, n_all - 1, evenly spaced; all of them if there are no more."""
    n = _number_of(n, n_all)
    return np.asarray((np.arange(n) + 0.5) * n_all / n).astype(np.int64)


def scattered(n_all: int, n: int) -> IntArray:
    """`n` of the numbers 0, …, n_all - 1: a random one in each of n parts of the same length.

    Draws lie in the order of their chains, so every tenth, say, would be of a few chains only. The
    numbers are the same at every call.
    """
    n = _number_of(n, n_all)
    ends = np.arange(n + 1) * n_all // n
    return np.random.default_rng([n_all, n]).integers(ends[:-1], ends[1:])


def _number_of(n: int, n_all: int) -> int:
    require_whole(n)
    require(n_all > 0, "The run has no draws yet. Resume it.")
    return min(n, n_all)


def require_whole(n: object) -> None:
    """Refuse what is no number of draws."""
    require(
        isinstance(n, int | np.integer) and bool(n >= 1),
        f"The number of draws must be a whole number, at least 1, not {n!r}.",
    )
