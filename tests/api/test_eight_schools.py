"""Eight schools: exact runs of a model with local parameters have the posterior of a fine grid."""

import numpy as np
from scipy import stats

import quorate
from quorate.models import Positive, Real, from_functions

DATA = {
    "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    "error": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    "school": np.array(list("ABCDEFGH")),
}
LIMIT = stats.norm.isf(1e-6 / 4)  # of two means: a false alarm in a million runs


def normal(value, mean, sd):
    return -0.5 * ((value - mean) / sd) ** 2 - np.log(sd)


SCHOOLS = from_functions(
    lambda p: normal(p["mu"], 0.0, 5.0) - np.log1p((p["tau"] / 5) ** 2),
    lambda p, local, shard: normal(shard["y"], local["theta"], shard["error"]),
    {"mu": Real(), "tau": Positive()},
    local={"theta": Real()},
    groups="school",
    log_local=lambda p, local: normal(local["theta"], p["mu"], p["tau"]),
)


def on_a_grid():
    """(mu, tau) at points, the points' weights, and the mean of each theta at each point."""
    mu, log_tau = np.meshgrid(np.linspace(-25, 30, 551), np.linspace(-14, 6, 801), indexing="ij")
    tau = np.exp(log_tau)
    log_weights = stats.norm.logpdf(mu, 0, 5) + stats.halfcauchy.logpdf(tau, scale=5) + log_tau
    means = []
    for y, error in zip(DATA["y"], DATA["error"], strict=True):
        log_weights = log_weights + stats.norm.logpdf(y, mu, np.hypot(tau, error))
        means.append((mu / tau**2 + y / error**2) / (1 / tau**2 + 1 / error**2))
    weights = np.exp(log_weights - log_weights.max())
    return np.stack([mu, tau]), weights / weights.sum(), np.stack(means)


def test_eight_schools(seed):
    result = quorate.sample(
        SCHOOLS,
        DATA,
        workers=4,
        engine=quorate.Processes(2),
        draws=1000,
        method="exact",
        seed=seed,
        progress=False,
    )
    points, weights, thetas = on_a_grid()
    means = (points * weights).sum(axis=(1, 2))
    sds = np.sqrt(((points - means[:, None, None]) ** 2 * weights).sum(axis=(1, 2)))
    summary = result.summary().loc[["mu", "tau"]]
    z = (summary["mean"] - means) / summary["mcse"]
    assert np.abs(z).max() < LIMIT
    assert np.allclose(summary["sd"], sds, rtol=0.3)  # five standard errors, at an ESS of 500
    local = result.local.summary()
    assert local.index.get_level_values(0).tolist() == DATA["school"].tolist()
    expected = (thetas * weights).sum(axis=(1, 2))
    spread = ((thetas - expected[:, None, None]) ** 2 * weights).sum(axis=(1, 2))
    # Summaries are over 200 draws of mu and tau, worth half as many that are independent at least.
    assert np.abs((local["mean"] - expected) / np.sqrt(spread / 100)).max() < 1.2 * LIMIT
