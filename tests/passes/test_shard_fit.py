"""Fits of shards by passes over them alone, where a search for the mode does not converge."""

import numpy as np
import pytest

from helpers import kinked
from helpers.passes import Posterior, answer_all, begun
from quorate.engines.workers.worker import surveyed
from quorate.errors import NotConvergedError
from quorate.models import Real, from_functions
from quorate.models.subposterior import Target, densities_and_gradients
from quorate.passes.shard_fit import fit_of_shard
from quorate.samplers.laplace import laplace_fit


def test_a_posterior_with_kinks_has_a_fit(rng):
    """Newton's method has none. Passes find means and sds within a fifth of a posterior sd.

    A Gaussian fit of these laws is off by up to .1 for means, .13 for sds.
    """
    data = kinked.rows(rng)
    target = Target(kinked.model(), data, 1)
    with pytest.raises(NotConvergedError, match="still rises"):
        laplace_fit(target, 15)
    fit = fit_of_shard(target)
    mean, sd = kinked.moments(data)
    assert np.abs((fit.mean - mean) / sd).max() < 0.2
    assert np.abs(np.log(np.sqrt(np.diag(fit.lower @ fit.lower.T)) / sd)).max() < 0.2


def test_the_fit_is_a_function_of_the_shard(rng):
    target = Target(kinked.model(), kinked.rows(rng), 4)
    first, again = fit_of_shard(target), fit_of_shard(target)
    np.testing.assert_array_equal(first.mean, again.mean)
    np.testing.assert_array_equal(first.lower, again.lower)


def n_fitting(target, seed, surveys):
    """Passes until the fit of the posterior stands, and how far off its mean then is."""
    both = lambda x: densities_and_gradients(target, x)  # noqa: E731
    posterior = Posterior(target.dim, lambda x: both(x).values, lambda x: both(x).gradients)
    inquiry = begun(posterior, 64, seed, surveys=surveys)
    answer_all(inquiry, posterior, lambda: inquiry.phase != "fit")
    mean, sd = kinked.moments(target.shard)
    return inquiry.fit.n_passes, np.abs((inquiry.fit.base.mean - mean) / sd).max()


def test_surveys_of_shards_with_kinks_begin_the_fit(rng, seed):
    """Three passes more are usual. From the start of the model it takes 18."""
    data = kinked.rows(rng)
    parts = [{name: rows[s::4] for name, rows in data.items()} for s in range(4)]
    surveys = {s: surveyed(Target(kinked.model(), part, 4)) for s, part in enumerate(parts)}
    whole = Target(kinked.model(), data, 1)
    n_passes, error = n_fitting(whole, seed, surveys)
    n_without, _ = n_fitting(whole, seed, {s: {} for s in range(4)})
    assert n_passes <= 5
    assert error < 0.2
    assert n_without >= 2 * n_passes


@pytest.mark.parametrize("rise", [0.0, 1.0])
def test_a_density_that_never_falls_has_no_fit(rise):
    """Flat, or rising, along the second coordinate."""
    model = from_functions(
        lambda x: 0.0, lambda x, shard: -0.5 * x[0] ** 2 + rise * np.arctan(x[1]), Real(2)
    )
    assert fit_of_shard(Target(model, {"y": np.zeros(3)}, 1)) is None
