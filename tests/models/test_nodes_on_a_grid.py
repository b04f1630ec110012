"""exp η on a grid of nodes is a product: sums over rows are those of the nodes one by one."""

import numpy as np
import pytest
from scipy.special import expit

from quorate.models.groups.quadrature import Places, rule_of
from quorate.models.groups.regressions.kernels import FURTHEST, Rows

N_POINTS, N_GROUPS = 3, 4


def rows_of(rng, size, q, *, has_ones, count_once):
    """Rows with a shape (size, N_POINTS, N_GROUPS), of which the last group has one row less."""
    offsets = rng.normal(size=(size, N_POINTS, N_GROUPS))
    offsets[-1, :, -1] = -np.inf
    counts = np.ones((size, N_GROUPS)) if count_once else rng.integers(1, 5, (size, N_GROUPS))
    weights = np.broadcast_to(counts[:, None] * 1.0, offsets.shape).copy()
    weights[-1, :, -1] = 0
    varying = rng.normal(size=(size, q, N_GROUPS))
    if has_ones:
        varying[:, 0] = 1
    response = rng.random((size, N_GROUPS))
    return Rows("softplus", offsets, weights, response, varying, has_ones, count_once)


def places_of(rng, q, n_nodes, spread=1.0):
    upper = [[0.0] * q for _ in range(q)]
    for i in range(q):
        for j in range(i, q):
            upper[i][j] = spread * rng.random((N_POINTS, N_GROUPS))
    return Places(rng.normal(size=(q, N_POINTS, N_GROUPS)), upper, rule_of(n_nodes, q))


@pytest.mark.parametrize("q", [2, 3])
@pytest.mark.parametrize("size", [2, 400])
@pytest.mark.parametrize("has_ones", [True, False])
@pytest.mark.parametrize("count_once", [True, False])
def test_a_grid_gives_the_sums_of_its_nodes(q, size, has_ones, count_once, seed):
    rng = np.random.default_rng(seed)
    rows = rows_of(rng, size, q, has_ones=has_ones, count_once=count_once)
    places = places_of(rng, q, 4)
    grid, one_by_one = rows.at_places(places), rows.at_local(places.local)
    assert grid.along is not None
    eta = rows.eta(places.local, slice(None))
    expected = np.einsum("smpg,spg->mpg", np.logaddexp(0.0, eta), rows.weights)
    np.testing.assert_allclose(rows.sums(grid), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(rows.sums(one_by_one), expected, rtol=1e-11, atol=1e-11)
    shares = rng.random(grid.shape)
    pulls = rows.weights * np.einsum("smpg,mpg->spg", 1 / (1 + np.exp(-eta)), shares)
    np.testing.assert_allclose(rows.expectations(grid, shares)[0], pulls, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        rows.expectations(one_by_one, shares)[0], pulls, rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("count_once", [True, False])
def test_derivatives_stay_finite_however_far_out(count_once, rng):
    """Where a linear predictor is too large for its exponential, a row pulls with its weight."""
    rows = rows_of(rng, 50, 2, has_ones=True, count_once=count_once)
    rows.varying[:, 1] *= 4
    far = np.full((2, N_POINTS, N_GROUPS), 400.0)
    with np.errstate(over="ignore"):
        slopes, curvatures = rows.slopes_and_curvatures(far)
    assert np.isfinite(slopes).all()
    assert np.isfinite(curvatures).all()
    eta = np.einsum("sqg,qpg->spg", rows.varying, np.clip(far, -FURTHEST, FURTHEST)) + rows.offsets
    pulls = np.where(eta > 700, rows.weights, rows.weights * expit(eta))
    assert (eta > 710).any()  # exp(eta) is infinite
    np.testing.assert_allclose(slopes, rows.response[:, None] - pulls, rtol=1e-11, atol=1e-11)


def test_nodes_so_far_out_that_products_overflow_are_taken_one_by_one(seed):
    rng = np.random.default_rng(seed)
    rows = rows_of(rng, 3, 2, has_ones=True, count_once=True)
    places = places_of(rng, 2, 4, spread=1e4)
    assert rows.at_places(places).along is None


def test_a_rule_without_some_of_its_nodes_is_no_grid():
    whole, some = rule_of(5, 2), rule_of(13, 2)
    rebuilt = whole.across + whole.along[:, None, None] * np.array([1.0, 0.0])
    np.testing.assert_array_equal(rebuilt.reshape(-1, 2), whole.nodes)
    np.testing.assert_array_equal(some.across, some.nodes)
    np.testing.assert_array_equal(some.along, [0.0])
