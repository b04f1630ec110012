"""The one-way model of `helpers.grouped` as NumPyro and PyMC programs."""

import numpyro
import numpyro.distributions as dist

from helpers.grouped import SIGMA

SPLIT = {"g": 0, "x": 0, "y": 0}


def rows_of(shard, family):
    """The arrays that programs take, and the codes of groups."""
    response = {"gaussian": "y", "logistic": "late"}[family]
    return {name: shard[name] for name in ("g", "x", "group")} | {"y": shard[response]}


def _globals():
    mu, b = (numpyro.sample(name, dist.Normal(0, 5)) for name in ("mu", "b"))
    return mu, b, numpyro.sample("tau", dist.HalfNormal(1))


def _observe(eta, y, family):
    rows = dist.Normal(eta, SIGMA) if family == "gaussian" else dist.Bernoulli(logits=eta)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", rows, obs=y)


def centred(g, x, y, n_groups, family):
    mu, b, tau = _globals()
    with numpyro.plate("group", n_groups):
        z = numpyro.sample("z", dist.Normal(mu, tau))
    _observe(z[g] + b * x, y, family)


def non_centred(g, x, y, n_groups, family):
    mu, b, tau = _globals()
    with numpyro.plate("group", n_groups):
        raw = numpyro.sample("raw", dist.Normal(0, 1))
    z = numpyro.deterministic("z", mu + tau * raw)
    _observe(z[g] + b * x, y, family)


def of_fixed_size(g, x, y, family):
    mu, b, tau = _globals()
    with numpyro.plate("group", 12):
        z = numpyro.sample("z", dist.Normal(mu, tau))
    _observe(z[g] + b * x, y, family)
