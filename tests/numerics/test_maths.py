"""Moments, solves, consensus weights and subposteriors: identities to rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.assertions import assert_covariance, assert_mean
from quorate.errors import BadInputError, SingularCovarianceError
from quorate.lab.error import relative_error, second_moment
from quorate.merging.consensus import consensus_weights, merge
from quorate.models.gaussian import GaussianSubposteriors, gaussian_mean_model, paper_subposteriors
from quorate.numerics.linalg import spd_inverse, spd_solve
from quorate.numerics.moments import _WIDE, Moments, running_covariances
from quorate.numerics.streams import Streams


def covariance_of_eq_7(draws, ridge):
    """Eqs (7), (9) and (11), term by term."""
    mean = sum(draws) / len(draws)
    scatter = sum(np.outer(draw - mean, draw - mean) for draw in draws)
    return ridge * np.eye(draws.shape[1]) + scatter / len(draws)


def random_spd(rng, *shape, dim):
    root = rng.standard_normal((*shape, dim, dim))
    return root @ np.swapaxes(root, -1, -2) + np.eye(dim)


# ---------------------------------------------------------------- moments


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_moments_are_those_of_the_paper(n, rng):
    draws = rng.standard_normal((n, 4)) + 3
    moments = Moments.of(draws)
    np.testing.assert_allclose(moments.mean, draws.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(
        moments.covariance(0.5), covariance_of_eq_7(draws, 0.5), rtol=1e-12, atol=1e-13
    )


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 100))
def test_merging_parts_gives_the_whole(sizes, seed):
    draws = np.random.default_rng(seed).standard_normal((sum(sizes), 3)) + 10
    merged, start = Moments.none(3), 0
    for size in sizes:
        if size:
            merged = merged.merge(Moments.of(draws[start : start + size]))
        start += size
    assert merged.count == len(draws)
    if len(draws):
        np.testing.assert_allclose(merged.scatter, Moments.of(draws).scatter, atol=1e-11)
    assert Moments.none(3).merge(Moments.none(3)).count == 0


def test_running_covariances_of_many_sequences_have_the_bits_of_each_alone(seed):
    """Many sequences are summed draw by draw, few one after the other."""
    draws = np.random.default_rng(seed).normal(size=(40, 7, 5))
    assert draws[:, 0].size * 5 >= _WIDE > 5 * 5
    together, after = running_covariances(draws)
    for i, alone in enumerate(draws):
        covs, moments = running_covariances(alone)
        np.testing.assert_array_equal(together[i], covs)
        np.testing.assert_array_equal(after.scatter[i], moments.scatter)


@given(st.integers(1, 20), st.integers(0, 19), st.integers(0, 100))
def test_running_covariances_are_those_of_the_first_draws(n, cut, seed):
    draws = np.random.default_rng(seed).standard_normal((2, n, 3)) - 5
    expected = np.array([[covariance_of_eq_7(x[: i + 1], 0) for i in range(n)] for x in draws])
    whole, after = running_covariances(draws)
    np.testing.assert_allclose(whole, expected, atol=1e-11)
    np.testing.assert_allclose(after.mean, draws.mean(axis=1), rtol=1e-12)
    if 0 < cut < n:
        start, between = running_covariances(draws[:, :cut])
        end, _ = running_covariances(draws[:, cut:], between)
        np.testing.assert_allclose(np.concatenate([start, end], axis=1), whole, atol=1e-11)


def test_moments_far_from_the_origin(rng):
    draws = rng.standard_normal((1000, 2))
    far = draws + 1e8
    centred = far - 1e8  # what is left of the draws at that distance
    expected = covariance_of_eq_7(centred, 0)
    np.testing.assert_allclose(Moments.of(far).covariance(), expected, atol=1e-7)
    np.testing.assert_allclose(running_covariances(far)[0][-1], expected, atol=1e-7)
    naive = far.T @ far / 1000 - np.outer(far.mean(axis=0), far.mean(axis=0))
    assert not np.allclose(naive, expected, rtol=0.1)  # what the stable update is for


# ---------------------------------------------------------------- solves


@pytest.mark.parametrize("dim", [1, 2, 5, 15, 16, 30])
@pytest.mark.parametrize("shape", [(), (3,), (50,), (7, 300)])
def test_solves(dim, shape, rng):
    matrices = random_spd(rng, *shape, dim=dim)
    columns = rng.standard_normal((*shape, dim, 2))
    before = matrices.copy()
    np.testing.assert_allclose(matrices @ spd_solve(matrices, columns), columns, atol=1e-8)
    np.testing.assert_allclose(
        spd_inverse(matrices) @ matrices, np.broadcast_to(np.eye(dim), matrices.shape), atol=1e-8
    )
    np.testing.assert_array_equal(matrices, before)


@pytest.mark.parametrize("n", [1, 100])
def test_singular_matrices_are_refused(n):
    matrices = np.broadcast_to(np.ones((3, 3)), (n, 3, 3))
    with pytest.raises(SingularCovarianceError, match="cov_ridge"):
        spd_inverse(matrices)


# ---------------------------------------------------------------- consensus


def test_weights_of_eq_6(rng):
    covs = random_spd(rng, 6, dim=4)
    weights = consensus_weights(covs)
    total = np.linalg.inv(sum(np.linalg.inv(cov) for cov in covs))
    for weight, cov in zip(weights, covs, strict=True):
        np.testing.assert_allclose(weight, total @ np.linalg.inv(cov), atol=1e-11)
    np.testing.assert_allclose(weights.sum(axis=0), np.eye(4), atol=1e-12)


def test_merge_of_eq_5(rng):
    weights = consensus_weights(random_spd(rng, 2, 6, dim=3))
    draws = rng.standard_normal((2, 10, 6, 3))
    merged = merge(weights, draws)
    for run in range(2):
        for draw in range(10):
            expected = sum(weights[run, s] @ draws[run, draw, s] for s in range(6))
            np.testing.assert_allclose(merged[run, draw], expected, atol=1e-13)


def test_consensus_is_exact_for_gaussians(seed):
    """With a control: equal weights are not."""
    subposteriors = paper_subposteriors(6)
    lanes = [(shard, 0) for shard in range(6)]
    draws = np.moveaxis(subposteriors.draws(Streams(seed), lanes, 0, 20_000), 0, 1)
    mean, cov = subposteriors.posterior()
    merged = merge(consensus_weights(subposteriors.covs), draws)
    assert_mean(merged, mean)
    assert_covariance(merged, cov)
    with pytest.raises(AssertionError):
        assert_covariance(draws.mean(axis=1), cov)


# ---------------------------------------------------------------- subposteriors


def test_the_subposteriors_of_the_paper():
    subposteriors = paper_subposteriors(5)
    for shard, cov in enumerate(subposteriors.covs):
        rho = shard / 5  # ρ_s = (s-1)/K, counting from 1
        expected = [[rho ** abs(i - j) for j in range(5)] for i in range(5)]
        np.testing.assert_allclose(cov, expected)
    assert np.all(subposteriors.means == 0)


@pytest.mark.parametrize("n_shards", [1, 2, 3, 7, 20])
def test_product_of_subposteriors_is_the_posterior(n_shards, rng):
    """Eqs (1) and (2): the prior is counted once, however many shards there are."""
    rows = rng.standard_normal((20, 3)) + 1
    noise, prior = random_spd(rng, dim=3), random_spd(rng, dim=3)
    precision = np.linalg.inv(prior) + 20 * np.linalg.inv(noise)
    cov = np.linalg.inv(precision)
    mean = cov @ np.linalg.inv(noise) @ rows.sum(axis=0)
    got_mean, got_cov = gaussian_mean_model(rows, n_shards, noise, prior).posterior()
    np.testing.assert_allclose(got_mean, mean, rtol=1e-10)
    np.testing.assert_allclose(got_cov, cov, rtol=1e-10)


def test_fewer_rows_than_shards(rng):
    with pytest.raises(BadInputError, match="at most 3 shards"):
        gaussian_mean_model(rng.standard_normal((3, 2)), 4, np.eye(2), np.eye(2))


def test_draws_of_subposteriors(seed, rng):
    cov = random_spd(rng, dim=3)
    subposteriors = GaussianSubposteriors(np.array([[1.0, 2, 3], [0, 0, 0]]), np.array([cov, cov]))
    draws = subposteriors.draws(Streams(seed), [(1, 0), (0, 2)], 0, 20_000)
    assert_mean(draws[1], subposteriors.means[0])
    assert_covariance(draws[0], cov)
    with pytest.raises(AssertionError, match=r"\|z\|"):  # the other shard's
        assert_mean(draws[0], subposteriors.means[0])
    with pytest.raises(AssertionError, match=r"\|z\|"):
        assert_covariance(draws[0], 1.2 * cov)


# ---------------------------------------------------------------- error


def test_error_of_eq_3():
    draws = np.array([[1.0, 2.0], [3.0, 1.0]])
    expected = np.array([[4.0, 2.0], [2.0, 5.0]])
    # f_00: (1+9)/2 = 5, f_01 = f_10: (2+3)/2 = 2.5, f_11: (4+1)/2 = 2.5
    by_hand = (1 / 4 + 0.5 / 2 + 0.5 / 2 + 2.5 / 5) / 4
    assert relative_error(second_moment(draws), expected) == pytest.approx(by_hand)


def test_functions_without_an_expectation_have_no_relative_error():
    moments, expected = np.array([[2.0, 9.0], [9.0, 3.0]]), np.diag([1.0, 2.0])
    assert relative_error(moments, expected) == pytest.approx((1.0 + 0.5) / 2)
