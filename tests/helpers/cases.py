"""Six real posteriors (posteriordb) that tests and benchmarks share.

In tests/data/cases: the data of each, and `reference.json` with moments of long runs and with what
consensus weights reach with long exact runs. `subposteriors.npz` has means (4, d) and covariances
(4, d, d) of the subposteriors for K = 4, `<case>_mean` and `<case>_cov`: by quadrature for the
linear ones, exactly for capture_Mt, whose subposteriors are mixtures of products of beta
distributions, and by importance sampling at 2¹⁵ quasi-random points for the others.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np

from quorate.data.write import write_shards
from quorate.models import Ordered, Positive, UnitInterval, from_functions, linear, logistic
from quorate.models.subposterior import Target

FOLDER = Path(__file__).parents[1] / "data" / "cases"
REFERENCE = json.loads((FOLDER / "reference.json").read_text())


def mixture_prior(p, xp=np):
    spread = (p["mu"] ** 2).sum() + (p["sigma"] ** 2).sum()
    return -spread / 8 + 4 * (xp.log(p["w"]) + xp.log1p(-p["w"]))


def mixture_likelihood(p, shard, xp=np):
    """Two normals; the logarithm of w N(mu_1, sigma_1) + (1 - w) N(mu_2, sigma_2)."""
    z = (shard["y"][:, None] - p["mu"]) / p["sigma"]
    with np.errstate(divide="ignore"):
        weights = xp.log(xp.array([p["w"], 1 - p["w"]]))
    return xp.sum(xp.logaddexp(*(weights - xp.log(p["sigma"]) - z**2 / 2).T))


def capture_likelihood(p, shard, xp=np):
    """An animal is there with probability omega; one never seen may not be."""
    y = shard["y"]
    with np.errstate(divide="ignore"):
        seen = xp.log(p["omega"]) + y @ xp.log(p["p"]) + (1 - y) @ xp.log1p(-p["p"])
        absent = xp.where(y.any(axis=1), -np.inf, xp.log1p(-p["omega"]))
    return xp.sum(xp.logaddexp(seen, absent))


FUNCTIONS = {
    "gauss_mix": (
        mixture_prior,
        mixture_likelihood,
        {"mu": Ordered(2), "sigma": Positive(2), "w": UnitInterval()},
    ),
    "capture_Mt": (
        lambda p, xp=np: xp.zeros(()),
        capture_likelihood,
        {"omega": UnitInterval(), "p": UnitInterval(3)},
    ),
}
MODELS = {
    "kidscore_interaction": linear(4, "flat", scale_prior="half_cauchy(2.5)"),
    "nes1996": linear(9, "flat", scale_prior="flat"),
    "logmesquite": linear(7, "flat", scale_prior="flat"),
    "wells_dae_inter": logistic(7, "flat"),
    **{case: from_functions(*functions) for case, functions in FUNCTIONS.items()},
}


def with_gradients(case):
    """Regressions have them; functions get theirs from JAX."""
    if case not in FUNCTIONS:
        return MODELS[case]
    import jax.numpy as jnp

    prior, likelihood, parameters = FUNCTIONS[case]
    return from_functions(
        partial(prior, xp=jnp), partial(likelihood, xp=jnp), parameters, backend="jax"
    )


def targets(case, n_shards, folder, model=None):
    """The subposteriors, on the partition of the reference; shards are written to `folder`."""
    model = model or MODELS[case]
    with np.load(FOLDER / f"{case}.npz") as data:
        shards = write_shards(dict(data), n_shards, folder, seed=0)
    return [Target(model, shards.shard(s), n_shards) for s in range(n_shards)]


def subposterior_moments(case):
    """Means and covariances of the four subposteriors for K = 4."""
    with np.load(FOLDER / "subposteriors.npz") as known:
        return known[f"{case}_mean"], known[f"{case}_cov"]
