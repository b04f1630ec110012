"""Evenly spread points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats.qmc import Sobol

from quorate.samplers.sobol import _RECURRENCES, DIGITS, shifted_points


@pytest.mark.parametrize("dim", range(1, len(_RECURRENCES) + 2))
def test_points_are_those_of_scipy_to_the_bit(dim):
    expected = Sobol(dim, scramble=False, bits=DIGITS).random_base2(13)
    found = shifted_points(2**13, np.zeros(dim)) - 0.5 / 2**DIGITS
    np.testing.assert_array_equal(found, expected)
    for n in (1, 2, 3, 100):
        np.testing.assert_array_equal(shifted_points(n, np.zeros(dim)) - 0.5 / 2**DIGITS, found[:n])


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=17), st.integers(0, 7))
def test_shifted_points_are_as_even(shift, rounds):
    """Of any 256 from a multiple of 256 on, each 1/256 of the range of a coordinate has one."""
    points = shifted_points(8 * 256, np.array(shift))[rounds * 256 :][:256]
    assert ((points > 0) & (points < 1)).all()
    slots = np.sort((points * 256).astype(int), axis=0)
    np.testing.assert_array_equal(slots, np.arange(256)[:, None].repeat(len(shift), axis=1))
