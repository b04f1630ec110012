"""One regression, `y ~ x + (1 | g)` with the same priors, in each language for models.

Coefficients are N(0, 1.5²), the standard deviation of groups is half-normal(1), and that of the
rows of a linear regression is exponential(1).
"""

import warnings

import numpy as np
from scipy.special import expit

from quorate.models import (
    Positive,
    Real,
    design,
    from_functions,
    from_numpyro,
    from_pymc,
    linear,
    logistic,
)

N_GROUPS, N_ROWS = 40, 400
SPLIT = {"g": 0, "x": 0, "y": 0}
LANGUAGES = ("formula", "functions", "numpyro", "pymc")


def table(family, rng):
    """Rows of the family; groups are whole numbers from 0, as programs want them."""
    g = np.concatenate([np.arange(N_GROUPS), rng.integers(0, N_GROUPS, N_ROWS - N_GROUPS)])
    x = rng.normal(size=N_ROWS)
    eta = 0.3 - 0.5 * x + 0.8 * rng.normal(size=N_GROUPS)[g]
    if family == "linear":
        y = eta + 0.7 * rng.normal(size=N_ROWS)
    else:
        y = (rng.random(N_ROWS) < expit(eta)).astype(float)
    return {"g": g, "x": x, "y": y}


def model(language, family, rows, tau_scale=1.0):
    """The model in a language; its parameters are those of `names`, in some order."""
    return _BUILT[language](family, rows, tau_scale)


def names(language, family):
    """Names of the parameters in a language: intercept, slope, sd of groups, and of rows."""
    if language == "formula":
        found = ("Intercept", "x", "sd_g__Intercept", "sigma")
    else:
        found = ("a", "b", "tau", "sigma")
    return found if family == "linear" else found[:3]


def _formula(family, rows, tau_scale):
    built = design("y ~ x + (1 | g)", rows)
    sd_prior = f"half_normal({tau_scale})"
    if family == "linear":
        return linear(built, "normal(0, 1.5)", scale_prior="exponential(1)", sd_prior=sd_prior)
    return logistic(built, "normal(0, 1.5)", sd_prior=sd_prior)


def _functions(family, rows, tau_scale):
    def log_prior(p):
        scale = p["sigma"] if family == "linear" else 0.0
        return (
            -0.5 * (p["a"] ** 2 + p["b"] ** 2) / 1.5**2 - 0.5 * (p["tau"] / tau_scale) ** 2 - scale
        )

    def log_local(p, local):
        return -0.5 * (local["u"] / p["tau"]) ** 2 - np.log(p["tau"])

    def log_likelihood(p, local, shard):
        eta = p["a"] + p["b"] * shard["x"] + local["u"]
        if family == "linear":
            return -0.5 * ((shard["y"] - eta) / p["sigma"]) ** 2 - np.log(p["sigma"])
        return shard["y"] * eta - np.logaddexp(0.0, eta)

    parameters = {"a": Real(), "b": Real(), "tau": Positive()}
    if family == "linear":
        parameters["sigma"] = Positive()
    return from_functions(
        log_prior,
        log_likelihood,
        parameters,
        local={"u": Real()},
        groups="g",
        log_local=log_local,
    )


def _numpyro(family, rows, tau_scale):
    import numpyro
    import numpyro.distributions as dist

    def program(g, x, y, n_groups):
        a, b = (numpyro.sample(name, dist.Normal(0, 1.5)) for name in ("a", "b"))
        tau = numpyro.sample("tau", dist.HalfNormal(tau_scale))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0)) if family == "linear" else None
        with numpyro.plate("groups", n_groups):
            u = numpyro.sample("u", dist.Normal(0, tau))
        eta = a + b * x + u[g]
        rows = dist.Bernoulli(logits=eta) if sigma is None else dist.Normal(eta, sigma)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("obs", rows, obs=y)

    return from_numpyro(program, split=SPLIT, data=rows | {"n_groups": N_GROUPS}, local="groups")


def _pymc(family, rows, tau_scale):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the imports of PyMC
        import pymc as pm

    with pm.Model(coords={"groups": range(N_GROUPS)}) as program:
        g, x, y = (pm.Data(name, rows[name]) for name in SPLIT)
        a, b = pm.Normal("a", 0, 1.5), pm.Normal("b", 0, 1.5)
        tau = pm.HalfNormal("tau", tau_scale)
        u = pm.Normal("u", 0, tau, dims="groups")
        eta = a + b * x + u[g]
        if family == "linear":
            pm.Normal("obs", eta, pm.Exponential("sigma", 1.0), observed=y)
        else:
            pm.Bernoulli("obs", logit_p=eta, observed=y)
    return from_pymc(program, SPLIT, local="groups")


_BUILT = {
    "formula": _formula,
    "functions": _functions,
    "numpyro": _numpyro,
    "pymc": _pymc,
}
