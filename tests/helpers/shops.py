"""A logistic regression with an intercept for each of 60 shops, as formulas say it."""

import numpy as np
from scipy.special import expit

import quorate
from quorate.models import design, logistic

N_SHOPS, N_ROWS, DRAWS = 60, 1500, 300


def table(seed):
    """Rows of text groups, whose sizes differ."""
    rng = np.random.default_rng([seed, N_SHOPS])
    shop = rng.choice(N_SHOPS, N_ROWS, p=rng.dirichlet(np.full(N_SHOPS, 4.0)))
    x = rng.normal(size=N_ROWS)
    eta = 0.3 + 0.5 * x + 0.8 * rng.normal(size=N_SHOPS)[shop]
    y = (rng.random(N_ROWS) < expit(eta)).astype(float)
    return {"y": y, "x": x, "g": np.array([f"shop {number:02}" for number in shop])}


def model(rows):
    """The regression for such rows."""
    return logistic(design("y ~ x + (1 | g)", rows))


def sample(run, seed, progress=False):
    """An exact run of it on four workers, each of which holds two shards."""
    rows = table(seed)
    options = {"workers": 4, "redundancy": 2, "draws": DRAWS, "check": False, "every": 0.0}
    return quorate.sample(model(rows), rows, run_dir=run, seed=seed, progress=progress, **options)
