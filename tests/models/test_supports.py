"""Bijections to unconstrained space: there and back, and exact log-Jacobians."""

import jax
import numpy as np
import pytest

from quorate.errors import BadInputError
from quorate.models.supports import Correlation, Ordered, Positive, Real, Simplex, UnitInterval

SUPPORTS = [
    Real(),
    Real((2, 3)),
    Positive(),
    Positive(3),
    UnitInterval(),
    UnitInterval((2, 2)),
    Simplex(2),
    Simplex(5),
    Simplex((2, 3)),
    Ordered(4),
    Ordered((2, 3)),
    Correlation(2),
    Correlation(4),
    Correlation((2, 3, 3)),
]


def free_entries(support, value):
    """The coordinates that the density is of: all but what the others determine."""
    if isinstance(support, Simplex):
        return value[..., :-1].ravel()
    if isinstance(support, Correlation):
        rows, columns = np.tril_indices(support.shape[-1], -1)
        return value[..., rows, columns].ravel()
    return np.asarray(value).ravel()


def numerical_log_jacobian(support, x, step=1e-5):
    def entries(at):
        return free_entries(support, support.constrain(at))

    columns = [
        (entries(x + step * unit) - entries(x - step * unit)) / (2 * step)
        for unit in np.eye(support.dim)
    ]
    return np.linalg.slogdet(np.array(columns))[1]


@pytest.mark.parametrize("support", SUPPORTS, ids=str)
def test_log_jacobian_is_that_of_numerical_differentiation(support, rng):
    for _ in range(5):
        x = rng.standard_normal(support.dim)
        expected = numerical_log_jacobian(support, x)
        assert support.log_jacobian(x) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("support", SUPPORTS, ids=str)
def test_there_and_back_with_leading_axes(support, rng):
    # Further out, a correlation or a share has too few digits left to tell where it came from
    x = np.clip(2 * rng.standard_normal((3, 4, support.dim)), -5, 5)
    value = support.constrain(x)
    assert value.shape == (3, 4, *support.shape)
    assert support.log_jacobian(x).shape == (3, 4)
    np.testing.assert_allclose(support.unconstrain(value), x, atol=1e-7)
    np.testing.assert_allclose(value[1, 2], support.constrain(x[1, 2]), atol=1e-14)
    np.testing.assert_allclose(support.log_jacobian(x)[1, 2], support.log_jacobian(x[1, 2]))


@pytest.mark.parametrize("support", SUPPORTS, ids=str)
def test_jax_gives_what_numpy_gives(support, rng):
    jax.config.update("jax_enable_x64", True)
    x = rng.standard_normal((3, support.dim))
    value = support.constrain(jax.numpy.asarray(x), jax.numpy)
    np.testing.assert_allclose(value, support.constrain(x), atol=1e-13)
    back = support.unconstrain(value, jax.numpy)
    np.testing.assert_allclose(back, x, atol=1e-9)
    log_jacobian = support.log_jacobian(jax.numpy.asarray(x), jax.numpy)
    np.testing.assert_allclose(log_jacobian, support.log_jacobian(x), atol=1e-12)


def test_values_lie_where_they_should(rng):
    x = 3 * rng.standard_normal((50, 6))
    shares = Simplex(7).constrain(x)
    np.testing.assert_allclose(shares.sum(axis=-1), 1)
    assert (shares > 0).all()
    assert (np.diff(Ordered(6).constrain(x), axis=-1) > 0).all()
    matrices = Correlation(4).constrain(x)
    np.testing.assert_allclose(np.diagonal(matrices, axis1=-2, axis2=-1), 1)
    assert (np.linalg.eigvalsh(matrices) > -1e-12).all()  # but for rounding


def test_the_origin_is_the_middle():
    np.testing.assert_allclose(Simplex(4).constrain(np.zeros(3)), 0.25)
    np.testing.assert_allclose(Correlation(3).constrain(np.zeros(3)), np.eye(3))


def test_far_from_the_origin_nothing_overflows():
    for support in SUPPORTS:
        for far in (-700.0, 700.0):
            assert np.isfinite(support.log_jacobian(np.full(support.dim, far)))


def test_labels_say_what_a_coordinate_is():
    assert Positive().labels("s") == ("log(s)",)
    assert Real((1, 2)).labels("b") == ("b[0,0]", "b[0,1]")
    assert Ordered(2).labels("m") == ("m[0]", "log(m[1] - m[0])")
    assert Correlation(3).labels("R")[-1] == "atanh-partial(R[2,1])"
    for support in SUPPORTS:
        assert len(set(support.labels("v"))) == support.dim


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        (Simplex, (), "at least 1 axes"),
        (Simplex, 1, "2 entries or more"),
        (Correlation, (2, 3), "square"),
        (Real, (0,), "at least one entry"),
    ],
)
def test_impossible_shapes(kind, shape, message):
    with pytest.raises(BadInputError, match=message):
        kind(shape)
