"""ESS and R-hat: as ArviZ computes them, and as they are known for autoregressions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.signal import lfilter
from scipy.special import ndtri
from scipy.stats import rankdata

from quorate.numerics import ess
from quorate.numerics.ess import (
    _autocovariances,
    _rank_normalised,
    _ranks,
    _sorted,
    _time,
    _variances,
    bulk_ess,
    ess_of_chains,
    in_chains,
    mean_ess,
    nested_rhat,
    split_rhat,
)


def autoregressive(rng, coefficient, shape):
    """Chains (chains, n, ...) of variance 1 whose lag-k correlation is coefficient**k."""
    noise = rng.standard_normal(shape)
    draws = np.empty(shape)
    draws[:, 0] = noise[:, 0]
    for i in range(1, shape[1]):
        draws[:, i] = coefficient * draws[:, i - 1] + np.sqrt(1 - coefficient**2) * noise[:, i]
    return draws


# Of ArviZ 0.23.4 on the same arrays: ess(method="bulk"), ess(method="mean"), rhat(method="rank")
ARVIZ = [
    (-0.6, 4764.136888583522, 2415.2336302026456, 0.9986023617260062),
    (0.0, 1338.952500765723, 1504.6541896281558, 0.9995897261624017),
    (0.6, 369.0174277252897, 524.0031600369268, 1.0039972634094754),
    (0.95, 42.557906306660186, 63.92404067836795, 1.050339175088335),
]


@pytest.mark.parametrize(("coefficient", "bulk", "mean", "rhat"), ARVIZ)
def test_agrees_with_arviz(coefficient, bulk, mean, rhat):
    draws = np.exp(autoregressive(np.random.default_rng(5), coefficient, (3, 501)))
    np.testing.assert_allclose(bulk_ess(draws), bulk, rtol=1e-9)
    np.testing.assert_allclose(mean_ess(draws), mean, rtol=1e-9)
    np.testing.assert_allclose(split_rhat(draws), rhat, rtol=1e-9)


@pytest.mark.parametrize("coefficient", [-0.5, 0.0, 0.5, 0.9, 0.999])
def test_ess_of_many_draws_is_that_of_all_lags(rng, coefficient):
    """Many draws are judged by their first lags, where these are enough: see `_FIRST_LAGS`."""
    noise = rng.standard_normal(2**18 + 2)
    draws = lfilter([1.0], [1.0, -coefficient], noise)[None]
    halves = np.stack(np.split(draws[0], 2))
    all_lags = (
        1
        - (halves.var(axis=1, ddof=1).mean() - _autocovariances(halves).mean(axis=0))
        / (_variances(halves)[1])
    )
    expected = draws.size / max(_time(all_lags)[0], 1 / np.log10(draws.size))
    np.testing.assert_allclose(mean_ess(draws), expected, rtol=1e-9)


def test_ess_of_many_independent_draws_needs_no_fourier_transform(rng, monkeypatch):
    monkeypatch.delattr(ess, "rfft")
    found = mean_ess(rng.standard_normal((1, 2**18 + 2)))
    assert found > 2**17
    with pytest.raises(NameError):  # the control: few draws are still judged by all lags
        mean_ess(rng.standard_normal((1, 2**18)))


@pytest.mark.parametrize("coefficient", [-0.5, 0.0, 0.5, 0.9])
def test_ess_of_an_autoregression_is_known(rng, coefficient):
    """Half of 21 estimates are within a factor of 1.16.

    One is further off in at most 7.2 % of cases (2,000 repetitions), so 11 are once in 10⁷. Chains
    of another correlation are the control.
    """

    def median_factor(of_chains):
        draws = autoregressive(rng, of_chains, (4, 5000, 21))
        expected = 20_000 * (1 - coefficient) / (1 + coefficient)
        return np.exp(np.median(np.abs(np.log(bulk_ess(draws) / expected))))

    assert median_factor(coefficient) < 1.16
    assert median_factor(coefficient - 0.2) > 1.16


def test_coordinates_are_treated_alike(rng):
    draws = rng.standard_normal((2, 200, 3)).cumsum(axis=1)
    for function in (bulk_ess, mean_ess, split_rhat):
        together = function(draws)
        np.testing.assert_allclose(together, [function(draws[..., i]) for i in range(3)])


def test_rhat_sees_chains_that_differ_in_location_or_in_spread(rng):
    """For 8 halves of 500 independent draws R² - 1 is about (χ²₇ / 7 - 1) / 500.

    It exceeds 1.01² - 1 where χ²₇ exceeds 77, once in 10¹³.
    """
    draws = rng.standard_normal((4, 1000))
    assert split_rhat(draws) < 1.01
    assert split_rhat(draws + np.array([[0], [0], [0], [2.0]])) > 1.1
    assert split_rhat(draws * np.array([[1], [1], [1], [4.0]])) > 1.1


def test_a_coordinate_that_never_moves_has_no_ess():
    assert np.isnan(bulk_ess(np.ones((1, 100))))


@given(arrays(np.float64, array_shapes(max_dims=3), elements=st.sampled_from([-1, 0, 0.5, np.inf])))
def test_ranks_are_those_of_scipy(values):
    np.testing.assert_array_equal(_ranks(values, *_sorted(values)), rankdata(values, axis=0))


def test_what_is_not_a_number_has_no_rank():
    values = np.array([[1.0, 2], [np.nan, 1]])
    np.testing.assert_array_equal(_ranks(values, *_sorted(values)), [[np.nan, 2], [np.nan, 1]])


@pytest.mark.parametrize("n_equal", [0, 1, 500])
def test_scores_are_those_of_ranks(n_equal, rng):
    """Draws that all differ take a shorter way."""
    draws = rng.standard_normal((4, 1000))
    draws[0, :n_equal] = draws[1, 0]
    ranks = rankdata(draws).reshape(draws.shape)
    np.testing.assert_array_equal(
        _rank_normalised(draws), ndtri((ranks - 0.375) / (draws.size + 0.25))
    )


# ---------------------------------------------------------------- chains in turn


def test_draws_in_turn_are_those_of_chains(rng):
    chains = rng.standard_normal((5, 7, 2))
    draws = np.swapaxes(chains, 0, 1).reshape(-1, 2)
    np.testing.assert_array_equal(in_chains(draws, 5), chains)
    np.testing.assert_array_equal(in_chains(draws[:-1], 5), chains[:, :6])  # a row that lacks one
    np.testing.assert_array_equal(in_chains(draws[:4], 5), np.empty((5, 0, 2)))
    np.testing.assert_array_equal(in_chains(draws[:, 0], 5), chains[..., 0])


def test_ess_of_draws_in_turn_is_that_of_their_chains(rng):
    chains = autoregressive(rng, 0.5, (6, 100, 3))
    draws = np.swapaxes(chains, 0, 1).reshape(-1, 3)
    np.testing.assert_array_equal(ess_of_chains(draws, 6), bulk_ess(chains))
    assert np.all(ess_of_chains(draws, 1) != bulk_ess(chains))
    short = ess_of_chains(draws[:18], 6)  # three draws of each
    assert short.shape == (3,)
    assert np.isnan(short).all()


def test_nested_rhat_of_independent_chains_is_near_1(rng):
    """Of 128 chains of 40 draws, in 8 groups.

    The later half counts: means of groups have variance 1/320, and R² - 1 is about χ²₇ / 7 / 320.
    It exceeds 1.01² - 1 where χ²₇ exceeds 45, once in 10⁷. Chains that stay near their starts are
    the control.
    """
    draws = rng.standard_normal((128, 40, 3))
    found = nested_rhat(draws)
    assert found.shape == (3,)
    assert np.all((found >= 1) & (found < 1.01))
    slow = 0.9 * draws[:, :1] + np.sqrt(1 - 0.81) * draws
    assert np.all(nested_rhat(slow) > 1.2)


def test_nested_rhat_of_chains_that_never_move_is_large(rng):
    stuck = np.repeat(rng.standard_normal((64, 1, 2)), 20, axis=1)
    assert np.all(nested_rhat(stuck) > 1.5)


def test_nested_rhat_forgives_a_start_that_was_forgotten(rng):
    """Only the later half counts; a start that is remembered in it is the control."""
    draws = rng.standard_normal((128, 40))
    starts = 10 * rng.standard_normal((128, 1))
    forgotten, remembered = draws.copy(), draws.copy()
    forgotten[:, :5] += starts
    remembered += starts
    assert nested_rhat(forgotten) < 1.02 < 2 < nested_rhat(remembered)


@pytest.mark.parametrize("shape", [(3, 100), (128, 3), (1, 100)])
def test_too_few_or_too_short_chains_have_no_nested_rhat(rng, shape):
    assert np.isnan(nested_rhat(rng.standard_normal(shape)))
    for enough in ((4, 100), (128, 4)):
        assert np.isfinite(nested_rhat(rng.standard_normal(enough)))
