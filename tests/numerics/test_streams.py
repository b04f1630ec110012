"""Random numbers by key: bits that do not depend on the request, and the right distributions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.assertions import assert_covariance, assert_mean, assert_quantile
from quorate.numerics.streams import Purpose, Streams

lanes = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), min_size=1, unique=True)


@given(lanes=lanes, first=st.integers(0, 100), n=st.integers(1, 60), width=st.integers(1, 9))
def test_bits_do_not_depend_on_what_else_is_asked_for(lanes, first, n, width):
    streams = Streams(seed=3)
    together = streams.uniforms(Purpose.DRAWS, lanes, first, n, width)
    for row, lane in zip(together, lanes, strict=True):
        alone = [
            streams.uniforms(Purpose.DRAWS, [lane], first + i, 1, width)[0, 0] for i in (0, n - 1)
        ]
        np.testing.assert_array_equal(row[[0, -1]], alone)


def test_every_part_of_a_key_matters(seed):
    """Of 320 numbers with 52 random bits each, two sets share one by chance once in 10¹⁰."""
    reference = Streams(seed, 0).uniforms(Purpose.DRAWS, [(0, 0)], 0, 64, 5)
    others = [
        Streams(seed + 1, 0).uniforms(Purpose.DRAWS, [(0, 0)], 0, 64, 5),
        Streams(seed, 1).uniforms(Purpose.DRAWS, [(0, 0)], 0, 64, 5),
        Streams(seed, 0).uniforms(Purpose.TIMES, [(0, 0)], 0, 64, 5),
        Streams(seed, 0).uniforms(Purpose.DRAWS, [(1, 0)], 0, 64, 5),
        Streams(seed, 0).uniforms(Purpose.DRAWS, [(0, 1)], 0, 64, 5),
        Streams(seed, 0).uniforms(Purpose.DRAWS, [(0, 0)], 64, 64, 5),
    ]
    for other in others:
        assert not np.intersect1d(reference, other).size


def test_uniforms_are_uniform_and_open(seed):
    values = Streams(seed).uniforms(Purpose.TIMES, [(k, 0) for k in range(40)], 0, 500, 3)
    assert values.min() > 0
    assert values.max() < 1
    for share in (0.01, 0.3, 0.5, 0.9):
        assert_quantile(values.ravel(), share, share)
    with pytest.raises(AssertionError, match="of 60000 below"):  # a little denser near 0
        assert_quantile(values.ravel() ** 1.1, 0.5, 0.5)


def test_normals_are_standard_and_uncorrelated_between_lanes(seed):
    normals = Streams(seed).normals([(0, 0), (1, 0), (0, 1)], 0, 20_000, 2)
    side_by_side = np.concatenate(normals, axis=1)
    assert_mean(side_by_side, np.zeros(6))
    assert_covariance(side_by_side, np.eye(6))
    normals[1, ::10] = normals[0, ::10]  # lanes that share a tenth of their numbers
    with pytest.raises(AssertionError, match=r"\|z\|"):
        assert_covariance(np.concatenate(normals, axis=1), np.eye(6))


def test_permutation_is_one(seed):
    order = Streams(seed).permutation(Purpose.WHO_IS_SLOW, 30)
    assert sorted(order) == list(range(30))
    assert order != Streams(seed).permutation(Purpose.WHO_IS_DEAD, 30)
