"""CPU time of a log density at 256 points, one by one and at once, for each kind of model.

12,500 rows, 20 columns; the least of 7 repetitions. Compiling is not counted. For one thread:
`OPENBLAS_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false python batched_evaluation.py`.
"""

from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np

from quorate.models import from_functions, linear, logistic, negative_binomial, poisson, student
from quorate.models.protocol import Model
from quorate.models.subposterior import Target, log_densities, log_densities_and_gradients
from timing import cpu_seconds

N_ROWS, N_COLUMNS, N_POINTS, N_SHARDS, REPEAT = 12_500, 20, 256, 8, 7
FAMILIES = (linear, logistic, poisson, negative_binomial, student)


def logistic_in(xp: object) -> tuple[Callable, Callable]:
    """Log prior and log-likelihood of a logistic regression, in numpy or JAX."""

    def log_prior(beta):
        return -0.5 * (beta**2).sum() / 2.5**2

    def log_likelihood(beta, shard):
        eta = shard["X"] @ beta
        return shard["y"] @ eta - xp.logaddexp(0.0, eta).sum()

    return log_prior, log_likelihood


def vectorised_log_prior(betas: np.ndarray) -> np.ndarray:
    """Log prior of each row of `betas`."""
    return -0.5 * (betas**2).sum(axis=1) / 2.5**2


def vectorised_log_likelihood(betas: np.ndarray, shard: dict[str, np.ndarray]) -> np.ndarray:
    """Log-likelihood of each row of `betas`."""
    eta = betas @ shard["X"].T
    return eta @ shard["y"] - np.logaddexp(0.0, eta).sum(axis=1)


def models() -> Iterator[tuple[str, Model, str]]:
    """Each model, with its name and the family of its response."""
    for family in FAMILIES:
        yield family.__name__, family(N_COLUMNS), family.__name__
    yield "logistic, JAX", from_functions(*logistic_in(jnp), N_COLUMNS, backend="jax"), "logistic"
    yield "logistic, numpy", from_functions(*logistic_in(np), N_COLUMNS), "logistic"
    functions = vectorised_log_prior, vectorised_log_likelihood
    yield "the same, vectorised", from_functions(*functions, N_COLUMNS, vectorised=True), "logistic"
    many = {f"b{i}": "positive" for i in range(388)}
    yield "388 scalars, numpy", from_functions(lambda p: 0.0, lambda p, shard: 0.0, many), "linear"


def shard_of(family: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows that cannot change, so that they are prepared once."""
    columns = 0.3 * rng.standard_normal((N_ROWS, N_COLUMNS))
    if family in ("linear", "student"):
        response = rng.standard_normal(N_ROWS)
    elif family == "logistic":
        response = rng.integers(2, size=N_ROWS).astype(float)
    else:
        response = rng.poisson(2.0, N_ROWS).astype(float)
    for array in (columns, response):
        array.flags.writeable = False
    return {"X": columns, "y": response}


def milliseconds(work: Callable[[], object]) -> float:
    """The least CPU time of a piece of work that has been done before."""
    work()  # compiles, and prepares the rows
    return 1e3 * cpu_seconds(work, REPEAT)


def main() -> None:
    """Print a line for each model."""
    rng = np.random.default_rng(0)
    print(f"{'CPU ms, ' + str(N_POINTS) + ' points':22}{'values':>20}{'with gradients':>24}")
    print(f"{'':22}{'one by one':>12}{'at once':>8}{'one by one':>16}{'at once':>8}")
    for name, model, family in models():
        target = Target(model, shard_of(family, rng), N_SHARDS)
        points = 0.3 * rng.standard_normal((N_POINTS, model.dim))
        one = milliseconds(lambda t=target, p=points: [t.log_density(x) for x in p])
        many = milliseconds(lambda t=target, p=points: log_densities(t, p))
        line = f"{name:22}{one:12.1f}{many:8.1f}"
        if target.has_gradient:
            one = milliseconds(
                lambda t=target, p=points: [t.log_density_and_gradient(x) for x in p]
            )
            many = milliseconds(lambda t=target, p=points: log_densities_and_gradients(t, p))
            line += f"{one:16.1f}{many:8.1f}"
        print(line)


if __name__ == "__main__":
    main()
