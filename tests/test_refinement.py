"""Fits refined in warm-up where the curvature at the mode misleads."""

import numpy as np
import pytest

from cases import subposterior_moments, targets
from quorate.samplers import EllipseSampler, fit_of
from quorate.samplers.base import Base
from quorate.samplers.laplace import laplace_fit
from quorate.samplers.refinement import refined
from quorate.target import Target
from targets import Density, gaussian, log_gamma, stream


def refined_fit(target):
    return refined(target, Base.around(laplace_fit(target)))


def worst_ratio(found, expected):
    """Largest logarithm of a ratio of variances, over all directions."""
    return np.abs(np.log(np.linalg.eigvals(np.linalg.solve(expected, found)).real)).max()


def counted(density, places):
    def count(x):
        places.append(x)
        return density(x)

    return count


def student(x, degrees=9.0):
    """Of variance 9/7 along every coordinate; curved at the mode as if of 9/11."""
    return -(degrees + len(x)) / 2 * float(np.log1p(x @ x / degrees))


def bent(x, by):
    """x[1] follows `by` x[0]²: a banana."""
    return -float(x[0] ** 2 + (x[1] - by * x[0] ** 2) ** 2) / 2


def test_a_gaussian_costs_two_evaluations_per_dimension():
    cov = np.array([[4.0, 1.9, 0.0], [1.9, 1.0, 1e-4], [0.0, 1e-4, 1e-6]])
    target = gaussian(np.ones(3), cov)
    base, places = Base.around(laplace_fit(target)), []
    at = Target(Density(3, counted(target.log_density, places)), {}, 1)
    assert refined(at, base) == {}
    assert len(places) == 2 * 3 + 1


def test_many_dimensions_are_left_alone():
    places = []
    target = Target(Density(20, counted(student, places)), {}, 1)
    assert refined(target, Base.standard(np.zeros(20))) == {}
    assert not places


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_heavy_tails_are_seen(dim):
    target = Target(Density(dim, student), {}, 1)
    base = Base.around(laplace_fit(target))
    found, cov = refined(target, base), 9 / 7 * np.eye(dim)
    assert worst_ratio(found["fit_covariance"], cov) < 0.1
    assert worst_ratio(base.covariance, cov) > 0.25
    assert found["fit_noise"] > 1


def test_skewness_is_seen():
    """Logarithms of gamma variates of shape 3 have variance ψ'(3); the curvature says 1/3."""
    target = log_gamma(np.array([3.0, 3.0]))
    found = refined_fit(target)["fit_covariance"]
    assert worst_ratio(found, (np.pi**2 / 6 - 1.25) * np.eye(2)) < 0.05


def test_a_banana_is_followed():
    """Var x[1] is 1 + 2 by², Var x[0] is 1; the curvature says 1 for both."""
    target = Target(Density(2, lambda x: bent(x, 0.5)), {}, 1)
    assert worst_ratio(refined_fit(target)["fit_covariance"], np.diag([1.0, 1.5])) < 0.1


def test_where_few_points_are_effective_the_curvature_is_kept():
    assert refined_fit(log_gamma(np.full(16, 0.1))) == {}


def test_all_is_lost_next_to_edges():
    """The density is 0 beyond a hundredth of a standard deviation: all points have weight 0."""

    def boxed(x):
        return -float(x @ x) / 2 if np.abs(x).max() < 1e-3 else -np.inf

    assert refined(Target(Density(8, boxed), {}, 1), Base.standard(np.zeros(8))) == {}


def test_overflow_far_out_is_no_error():
    def fragile(x):
        return student(x) if np.abs(x).max() < 30 else float("nan")

    found = refined_fit(Target(Density(2, fragile), {}, 1))
    assert worst_ratio(found["fit_covariance"], 9 / 7 * np.eye(2)) < 0.1


def test_units_do_not_matter(tmp_path):
    target, units = targets("capture_Mt", 4, tmp_path / "shards")[1], 2.0 ** np.array([3, 0, -9, 1])
    scaled = Target(Density(4, lambda x: target.log_density(x / units)), {}, 1)
    base = Base.around(laplace_fit(target))
    found = refined(target, base)
    again = refined(scaled, Base(base.mean * units, base.lower * units[:, None]))
    np.testing.assert_allclose(
        again["fit_covariance"], found["fit_covariance"] * np.outer(units, units), rtol=1e-9
    )
    np.testing.assert_allclose(again["fit_noise"], found["fit_noise"], rtol=1e-3)


def test_the_tails_of_a_real_posterior(tmp_path):
    """The curvature is wrong by a factor of 16 in one shard, of 5 in another."""
    covs = subposterior_moments("capture_Mt")[1]
    for target, cov in zip(targets("capture_Mt", 4, tmp_path / "shards"), covs, strict=True):
        assert worst_ratio(refined_fit(target)["fit_covariance"], cov) < 0.25
    base = Base.around(laplace_fit(targets("capture_Mt", 4, tmp_path / "again")[1]))
    assert worst_ratio(base.covariance, covs[1]) > 2


def test_all_chains_of_a_shard_have_the_same_fit(seed, tmp_path):
    """And it is bits that are the same. The base, and so the draws, do not depend on it."""
    target = targets("capture_Mt", 4, tmp_path / "shards")[3]
    states = [EllipseSampler(warns=False).warm_up(target, stream(seed, chain=c)) for c in (0, 1)]
    base, found = Base.around(laplace_fit(target)), refined_fit(target)
    for state in states:
        np.testing.assert_array_equal(state["lower"], base.lower)
        np.testing.assert_array_equal(state["mean"], base.mean)
        np.testing.assert_array_equal(state["fit_covariance"], found["fit_covariance"])
        fit = fit_of(state)
        np.testing.assert_array_equal(fit.covariance, found["fit_covariance"])
        assert fit.noise == found["fit_noise"] > 10
