"""One regression, `y ~ x + (1 | state/county)` with the same priors, by formula and by programs.

Coefficients are N(0, 1.5²), and standard deviations of groups are half-normal(1).
"""

import numpy as np
from scipy.special import expit

from helpers.grouped import frozen
from quorate.models import (
    Positive,
    Real,
    design,
    from_functions,
    from_numpyro,
    from_pymc,
    logistic,
)

N_STATES, N_COUNTIES, N_ROWS = 12, 40, 320
SPLIT = dict.fromkeys(("state", "county", "x", "y"), 0)
LOCAL = {"state": {"u": Real()}, "county": {"v": Real()}}
NAMES = {  # of intercept, slope, and the sds of states and counties
    "formula": ("Intercept", "x", "sd_state__Intercept", "sd_state:county__Intercept"),
    "programs": ("a", "b", "tau", "kappa"),
}


def parents(rng):
    """The state of each county."""
    others = rng.integers(0, N_STATES, N_COUNTIES - N_STATES)
    return rng.permutation(np.concatenate([np.arange(N_STATES), others]))


def table(rng):
    """Rows, and the state of each county."""
    state_of = parents(rng)
    some = rng.integers(0, N_COUNTIES, N_ROWS - N_COUNTIES)
    county = np.concatenate([np.arange(N_COUNTIES), some])
    x = rng.normal(size=N_ROWS)
    eta = 0.3 - 0.5 * x + 0.8 * rng.normal(size=N_STATES)[state_of[county]]
    eta += 0.6 * rng.normal(size=N_COUNTIES)[county]
    y = (rng.random(N_ROWS) < expit(eta)).astype(float)
    return {"state": state_of[county], "county": county, "x": x, "y": y}, state_of


def shard_of(rows, states=None):
    """The rows of some states as a shard of any of the models."""
    some = np.ones(N_ROWS, dtype=bool) if states is None else np.isin(rows["state"], states)
    held = {name: array[some] for name, array in rows.items()}
    ones = np.ones(some.sum())
    columns = {"X": np.column_stack([ones, held["x"]])}
    columns |= {name: ones[:, None].copy() for name in ("Z", "Z_inner")}
    return frozen({**held, **columns, "group": held["state"], "inner": held["county"]})


def by_formula(rows, tau_scale=1.0):
    """The regression."""
    built = design("y ~ x + (1 | state/county)", rows)
    return logistic(built, "normal(0, 1.5)", sd_prior=f"half_normal({tau_scale})")


def by_functions(**changed):
    """The model by JAX functions."""
    import jax.numpy as jnp

    def log_prior(p):
        coefficients = -0.5 * (p["a"] ** 2 + p["b"] ** 2) / 1.5**2
        return coefficients - 0.5 * p["tau"] ** 2 - 0.5 * p["kappa"] ** 2

    def of_states(p, local):
        return -0.5 * (local["u"] / p["tau"]) ** 2 - jnp.log(p["tau"])

    def of_counties(p, local):  # centred at the state of each county
        return -0.5 * ((local["v"] - local["u"]) / p["kappa"]) ** 2 - jnp.log(p["kappa"])

    def log_likelihood(p, local, shard):
        eta = p["a"] + p["b"] * shard["x"] + local["v"]
        return shard["y"] * eta - jnp.logaddexp(0.0, eta)

    def simulate(p, local, shard, rng):
        eta = p["a"] + p["b"] * shard["x"] + local["v"]
        return (rng.random(len(eta)) < expit(eta)).astype(float)

    def draw_prior(rng):
        a, b, tau, kappa = rng.normal(size=4)
        return {"a": 1.5 * a, "b": 1.5 * b, "tau": abs(tau), "kappa": abs(kappa)}

    def draw_states(p, n, rng):
        return {"u": p["tau"] * rng.normal(size=n)}

    def draw_counties(p, outer, n, rng):
        return {"v": outer["u"] + p["kappa"] * rng.normal(size=n)}

    given = {
        "backend": "jax",
        "local": LOCAL,
        "groups": "state/county",
        "log_local": {"state": of_states, "county": of_counties},
        "simulate": simulate,
        "draw_prior": draw_prior,
        "draw_local": {"state": draw_states, "county": draw_counties},
        **changed,
    }
    parameters = {"a": Real(), "b": Real(), "tau": Positive(), "kappa": Positive()}
    return from_functions(log_prior, log_likelihood, parameters, **given)


def _globals():
    import numpyro
    import numpyro.distributions as dist

    a, b = (numpyro.sample(name, dist.Normal(0, 1.5)) for name in ("a", "b"))
    tau, kappa = (numpyro.sample(name, dist.HalfNormal(1)) for name in ("tau", "kappa"))
    return a, b, tau, kappa


def _observe(eta, y):
    import numpyro
    import numpyro.distributions as dist

    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Bernoulli(logits=eta), obs=y)


def centred(state, county, x, y, n_states, n_counties, state_of):
    """A program whose counties know their states, by an argument."""
    import numpyro
    import numpyro.distributions as dist

    a, b, tau, kappa = _globals()
    with numpyro.plate("states", n_states):
        u = numpyro.sample("u", dist.Normal(0, tau))
    with numpyro.plate("counties", n_counties):
        v = numpyro.sample("v", dist.Normal(u[state_of], kappa))
    _observe(a + b * x + v[county], y)


def non_centred(state, county, x, y, n_states, n_counties):
    """A program whose rows know both groups."""
    import numpyro
    import numpyro.distributions as dist

    a, b, tau, kappa = _globals()
    with numpyro.plate("states", n_states):
        raw = numpyro.sample("raw", dist.Normal(0, 1))
    u = numpyro.deterministic("u", tau * raw)
    with numpyro.plate("counties", n_counties):
        v = numpyro.sample("v", dist.Normal(0, kappa))
    _observe(a + b * x + u[state] + v[county], y)


def by_numpyro(program, rows, state_of, local="states/counties"):
    """The model by a NumPyro program."""
    data = {**rows, "n_states": N_STATES, "n_counties": N_COUNTIES}
    data |= {"state_of": state_of} if program is centred else {}
    return from_numpyro(program, split=SPLIT, data=data, local=local)


def by_pymc(rows, state_of, *, centred=True, local="states/counties", names=None):
    """The model by PyMC: counties know their states, or rows know both groups."""
    from helpers.grouped_pymc import pm

    coords = names or {"states": range(N_STATES), "counties": range(N_COUNTIES)}
    with pm.Model(coords=coords) as program:
        state, county, x, y = (pm.Data(name, rows[name]) for name in SPLIT)
        a, b = (pm.Normal(name, 0, 1.5) for name in ("a", "b"))
        tau, kappa = (pm.HalfNormal(name, 1) for name in ("tau", "kappa"))
        if centred:
            u = pm.Normal("u", 0, tau, dims="states")
            parent = pm.Data("state_of", state_of, dims="counties")
            eta = pm.Normal("v", u[parent], kappa, dims="counties")[county]
        else:
            raw = pm.Normal("raw", 0, 1, dims="states")
            u = pm.Deterministic("u", tau * raw, dims="states")
            eta = u[state] + pm.Normal("v", 0, kappa, dims="counties")[county]
        pm.Bernoulli("obs", logit_p=a + b * x + eta, observed=y)
    return from_pymc(program, SPLIT, local=local)
