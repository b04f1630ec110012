"""One run of Stan's NUTS over `reduce_sum`: `reduce_sum.py DATA rows|grouped WARM_UP DRAWS`.

Started by `why_not.py`, with the number of threads in STAN_NUM_THREADS. What is printed last is
JSON. The posterior is made round by the mode and the curvature there, in place of a metric.
"""

import json
import resource
import sys
import time
from typing import Any

import httpstan.services_stub
import numpy as np
import stan

PROGRAM = """
functions {
  real part_lpmf(array[] int y, int first, int last,
                 array[] int n, matrix X, vector beta, int alike) {
    if (alike) return binomial_logit_lupmf(y | n[first:last], X[first:last] * beta);
    return bernoulli_logit_glm_lupmf(y | X[first:last], 0, beta);
  }
}
data {
  int few, many, d, alike;
  matrix[few, d] distinct;
  array[many] int which, n, y;
  vector[d] mode;
  matrix[d, d] factor;
}
transformed data { matrix[many, d] X = distinct[which]; }
parameters { vector[d] z; }
transformed parameters { vector[d] beta = mode + factor * z; }
model {
  target += normal_lupdf(beta | 0, 2.5);
  target += reduce_sum(part_lupmf, y, 1, n, X, beta, alike);
}
"""


def data_of(path: str, kind: str) -> dict[str, Any]:
    """For the program: rows that differ, or each as often as it is there."""
    kept = np.load(path)
    n, y = kept["n"].astype(int), kept["y"].astype(int)
    few = len(n)
    data = {"few": few, "d": len(kept["mode"]), "distinct": kept["X"], "mode": kept["mode"]}
    data |= {"factor": np.linalg.cholesky(kept["cov"]), "alike": int(kind == "grouped")}
    if kind == "grouped":
        return data | {"many": few, "which": np.arange(few) + 1, "n": n, "y": y}
    outcomes = np.repeat(np.tile([1, 0], few), np.column_stack([y, n - y]).ravel())
    which = np.repeat(np.arange(few) + 1, n)
    return data | {"many": n.sum(), "which": which, "n": np.ones(n.sum(), int), "y": outcomes}


def main() -> None:
    """Build, draw, tell."""
    path, kind, n_warm_up, n_draws = *sys.argv[1:3], *map(int, sys.argv[3:5])
    data = data_of(path, kind)
    posterior = stan.build(PROGRAM, data=data)
    before, start = cpu_of_children(), time.perf_counter()
    options = {"num_chains": 1, "num_warmup": n_warm_up, "num_samples": n_draws, "stepsize": 0.5}
    fit = posterior.sample(init=[{"z": [0.0] * data["d"]}], save_warmup=True, **options)
    wall = time.perf_counter() - start
    httpstan.services_stub.executor.shutdown()
    leapfrogs = fit["n_leapfrog__"].ravel()
    told = {"wall": wall, "cpu": cpu_of_children() - before, "leapfrogs": leapfrogs.tolist()}
    print(json.dumps(told | {"draws": fit["beta"][:, n_warm_up:].T.tolist()}))


def cpu_of_children() -> float:
    """Seconds of those that have ended: the compiler before, the chain after."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
