"""Evenly spread points: the sequence of Sobol' (1967), with the numbers of Joe & Kuo (2008).

Any 2ᵏ consecutive points, from a multiple of 2ᵏ on, are as evenly spread as 2ᵏ points can be in
many ways at once. The bits are those of `scipy.stats.qmc`, whose import takes longer than all this.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array

DIGITS = 30  # binary, of every coordinate
# For every coordinate but the first: inner coefficients of a primitive polynomial modulo 2, as the
# bits of a number, and the first numbers of its recurrence, as many as its degree
_RECURRENCES = (
    (0, (1,)),
    (1, (1, 3)),
    (1, (1, 3, 1)),
    (2, (1, 1, 1)),
    (1, (1, 1, 3, 3)),
    (4, (1, 3, 5, 13)),
    (2, (1, 1, 5, 5, 17)),
    (4, (1, 1, 5, 5, 5)),
    (7, (1, 1, 7, 11, 19)),
    (11, (1, 1, 5, 1, 1)),
    (13, (1, 1, 1, 3, 11)),
    (14, (1, 3, 5, 5, 31)),
    (1, (1, 3, 3, 9, 7, 49)),
    (13, (1, 1, 1, 15, 21, 21)),
    (16, (1, 3, 1, 13, 27, 49)),
    (19, (1, 1, 1, 15, 7, 5)),
)
MOST_DIMENSIONS = len(_RECURRENCES) + 1


def shifted_points(n: int, shift: Array) -> Array:
    """The first `n` points, shape (n, d), inside the unit cube.

    Parameters
    ----------
    shift
        A point (d,) of the unit cube. Its binary digits are added to those of every point, without
        carry. The points stay as evenly spread. If `shift` is uniform, so is each point.
    """
    moved = _points(n, len(shift)) ^ (shift * 2.0**DIGITS).astype(np.int64)
    return np.asarray((moved + 0.5) / 2.0**DIGITS)


@cache
def _points(n: int, dim: int) -> NDArray[np.int64]:
    """The first n points as integers, in Gray code order (neighbours differ in one digit)."""
    index = np.arange(n)
    index ^= index >> 1
    points = np.zeros((n, dim), dtype=np.int64)
    for i, direction in enumerate(_directions(dim)[: n.bit_length()]):
        points ^= np.where(index[:, None] >> i & 1, direction, 0)
    return points


def _directions(dim: int) -> NDArray[np.int64]:
    """Contribution of the i-th digit of the index, shape (DIGITS, d)."""
    columns = [[1] * DIGITS]
    for inner, start in _RECURRENCES[: dim - 1]:
        numbers, degree = list(start), len(start)
        while len(numbers) < DIGITS:
            number = numbers[-degree] ^ numbers[-degree] << degree
            for j in range(1, degree):
                if inner >> (degree - 1 - j) & 1:
                    number ^= numbers[-j] << j
            numbers.append(number)
        columns.append(numbers[:DIGITS])
    return np.array(columns, dtype=np.int64).T << np.arange(DIGITS - 1, -1, -1)[:, None]
