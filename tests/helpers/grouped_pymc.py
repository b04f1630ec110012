"""The one-way model of `helpers.grouped` as a PyMC model."""

import warnings

from helpers.grouped import SIGMA
from helpers.grouped_programs import rows_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the imports of PyMC
    import pymc as pm


def pymc_one_way(shard, family, *, centred=True, n_groups=12):
    """Of either family; z itself is local, or its distance from mu in sds."""
    with pm.Model(coords={"shop": range(n_groups)}) as model:
        g, x, y = (pm.Data(name, rows_of(shard, family)[name]) for name in ("g", "x", "y"))
        mu, b = pm.Normal("mu", 0, 5), pm.Normal("b", 0, 5)
        tau = pm.HalfNormal("tau", 1)
        if centred:
            z = pm.Normal("z", mu, tau, dims="shop")
        else:
            z = pm.Deterministic("z", mu + tau * pm.Normal("raw", 0, 1, dims="shop"), dims="shop")
        if family == "gaussian":
            pm.Normal("obs", z[g] + b * x, SIGMA, observed=y)
        else:
            pm.Bernoulli("obs", logit_p=z[g] + b * x, observed=y)
    return model
