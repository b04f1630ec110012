"""Pareto smoothing gives what arviz-stats gives."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from quorate.numerics.criteria import criteria
from quorate.numerics.pareto import pareto_smoothed


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(30, 3000),
    degrees=st.integers(2, 30),
    scale=st.floats(0.1, 2),
    r_eff=st.floats(0.1, 2),
)
def test_weights_and_shape_are_those_of_arviz(seed, n, degrees, scale, r_eff):
    log_ratios = scale * np.random.default_rng(seed).standard_t(degrees, n)
    with np.errstate(all="ignore"):
        expected, k_hat = array_stats.psislw(-log_ratios, r_eff=r_eff)
    weights, found = pareto_smoothed(log_ratios, r_eff)
    if np.isfinite(expected).all():
        np.testing.assert_allclose(weights, expected, atol=1e-8)
        assert found == pytest.approx(k_hat, abs=1e-8)
    else:  # one weight is all: ArviZ has no weights then
        assert found == np.inf
        np.testing.assert_allclose(weights, log_ratios - logsumexp(log_ratios))


@pytest.mark.parametrize("n", [1, 4, 24, 300])
def test_equal_weights_stay_equal_and_have_no_shape(n):
    weights, k_hat = pareto_smoothed(np.full(n, 3.0))
    np.testing.assert_allclose(weights, -np.log(n))
    assert k_hat == np.inf


def test_an_item_that_is_impossible_at_a_draw(rng):
    """Without the item, all weight is on that draw, where the item has probability 0."""
    values = rng.normal(size=(200, 3))
    values[7, 1] = -np.inf
    values[:, 2] = -np.inf
    found = criteria(values, 1.0)
    for of in found:
        assert not np.isnan(of).any()
        assert np.isfinite(of[0])
    assert found.elpd[1] == found.elpd[2] == -np.inf
    assert found.pareto_k[1] == found.variance[1] == np.inf
    assert np.isfinite(found.lppd[1])
    assert found.lppd[2] == -np.inf


def test_a_heavier_tail_has_a_larger_shape(rng):
    """The shapes are .2 and .9, and the sds of their estimates .05 and .08."""
    uniforms = rng.uniform(size=40_000)
    light, heavy = (pareto_smoothed(-shape * np.log(uniforms))[1] for shape in (0.2, 0.9))
    assert light < 0.5 < heavy
