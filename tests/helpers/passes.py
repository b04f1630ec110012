"""Log posteriors in closed form, at many points at once, and inquiries that ask for them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import multivariate_normal, t

from quorate.passes.centring import Centring, n_points, recentred, spread
from quorate.passes.inquiry import Inquiry
from quorate.samplers.base import Base


@dataclass
class Posterior:
    """Log density (n,) at points (n, d), and its gradient (n, d)."""

    dim: int
    values: Callable
    gradients: Callable | None = None

    def shifted(self, constant):
        return Posterior(self.dim, lambda x: self.values(x) + constant, self.gradients)

    def where(self, has_density):
        """The same where `has_density` of the points, and no density elsewhere."""
        cut = lambda x: np.where(has_density(x), self.values(x), -np.inf)  # noqa: E731
        return Posterior(self.dim, cut, self.gradients)


def gaussian(mean, cov):
    """N(mean, cov), normalised."""
    precision = np.linalg.inv(cov)
    law = multivariate_normal(mean, cov)
    return Posterior(
        len(mean), lambda x: np.atleast_1d(law.logpdf(x)), lambda x: -(x - mean) @ precision
    )


def random_gaussian(rng, dim, scale=1.0):
    """A mean and a covariance whose axes differ in length by up to a factor of 10."""
    axes, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
    lengths = scale * 10 ** rng.uniform(-0.5, 0.5, dim)
    return 5 * scale * rng.standard_normal(dim), (axes * lengths**2) @ axes.T


def skewed():
    """y = log of a Gamma(2) variable, x ~ N(exp(y) / 2, 1): skewed, and bent."""

    def values(points):
        x, y = points.T
        return 2 * y - np.exp(y) - 0.5 * (x - np.exp(y) / 2) ** 2 - 0.5 * np.log(2 * np.pi)

    def gradients(points):
        x, y = points.T
        gap = x - np.exp(y) / 2
        return np.stack([-gap, 2 - np.exp(y) + gap * np.exp(y) / 2], axis=1)

    return Posterior(2, values, gradients)


def student(degrees=3):
    return Posterior(1, lambda x: t(degrees).logpdf(x[:, 0]))


def standing(posterior, base, streams, *, with_gradient, most=40):
    """The fit after as many passes as it takes to stand."""
    fit, n = Centring(base), n_points(posterior.dim, with_gradient=with_gradient)
    while not fit.stands and fit.n_passes < most:
        z = spread(streams, fit.n_passes, n, posterior.dim)
        points = fit.base.points(z)
        gradients = posterior.gradients(points) if with_gradient else None
        fit = recentred(fit, z, posterior.values(points), gradients)
    return fit


def inquired(posterior, n_draws, seed, **options):
    """An inquiry with all its answers."""
    inquiry = begun(posterior, n_draws, seed, **options)
    answer_all(inquiry, posterior)
    return inquiry


def begun(posterior, n_draws, seed, *, with_gradient=None, start=None, surveys=None):
    """An inquiry that has asked its first question."""
    if with_gradient is None:
        with_gradient = posterior.gradients is not None
    start = np.zeros(posterior.dim) if start is None else start
    names = [f"x[{i}]" for i in range(posterior.dim)]
    inquiry = Inquiry(start, names, n_draws, seed, has_gradient=with_gradient)
    inquiry.begin({0: {}} if surveys is None else surveys)
    return inquiry


def answer_all(inquiry, posterior, until=lambda: False):
    """Answer the questions, of both lanes in turn, until there are no more."""
    while inquiry.open and not until():
        for lane in sorted(inquiry.open):
            answer(inquiry, posterior, lane)


def answer(inquiry, posterior, lane):
    """Answer the open question of a lane; returns it."""
    asked = inquiry.open[lane]
    gradients = None if asked.scales is None else posterior.gradients(asked.points)
    inquiry.take(lane, posterior.values(asked.points), gradients)
    return asked


def far_off(mean, cov, rng, n_sds=8.0):
    """A base `n_sds` off in a random direction, with sds as many times too large."""
    lower = np.linalg.cholesky(cov)
    direction = rng.standard_normal(len(mean))
    direction /= np.linalg.norm(direction)
    return Base(mean + n_sds * lower @ direction, n_sds * lower)
