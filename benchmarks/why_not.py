"""Other ways to the flights posterior: what they cost, and how far off they are.

NUTS on equal rows kept once, variational inference, stochastic-gradient MCMC and Stan's
`reduce_sum`, beside ours, in one run; NUTS on all rows is in `flights_to_ess.py`. All are handed
the mode, and samplers the curvature there, at no charge; those with a step size are given the best
of several. Errors are those of posterior means, in posterior sds, and of sds, as factors, against
a long run of NUTS. Compiling is not counted.

Then what a Laplace fit and a merge get wrong on six real posteriors, and exact draws do not.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import quorate
from flights_to_ess import (
    METHODS,
    N_WARM_UP,
    WANTED,
    Chain,
    Cost,
    least_ess,
    now,
    ours,
    program,
    regression,
)
from quorate.models.regressions.families import distinct
from quorate.models.subposterior import Target
from quorate.samplers.laplace import LaplaceFit, laplace_fit

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.cases import FOLDER, MODELS, REFERENCE

N_SHORT, N_REFERENCE = 100, 5_000
ONE_SD = float(norm.cdf(1))
RATES, STEPS = (0.003, 0.01, 0.03), (1_000, 10_000)  # of ADVI
BATCH, N_STEPS, THIN = 1_000, 20_000, 20  # of stochastic-gradient MCMC
STEP_SIZES = {"SGLD": (3e-4, 1e-3, 3e-3), "SGLD, control variates": (0.03, 0.1, 0.3)}
STAN_PYTHON = os.environ.get("STAN_PYTHON", sys.executable)  # one that has pystan
STAN_STEPS = {"grouped": (100, 500), "rows": (20, 10)}  # warm-up and draws


@dataclass(frozen=True)
class Reference:
    """Means and sds to be compared with."""

    mean: np.ndarray
    sd: np.ndarray

    def error(self, mean: np.ndarray, sd: np.ndarray) -> "Error":
        """Of other means and sds."""
        return Error((mean - self.mean) / self.sd, sd / self.sd)

    def error_of(self, draws: np.ndarray) -> "Error":
        """Of the means and sds of draws."""
        return self.error(draws.mean(axis=0), draws.std(axis=0))


@dataclass(frozen=True)
class Error:
    """Of every coefficient: means in sds, sds as factors."""

    means: np.ndarray
    sds: np.ndarray

    def score(self) -> float:
        """One number to choose the best by."""
        off = np.concatenate([self.means, self.sds - 1])
        score = float(np.sqrt(np.mean(off**2)))
        return score if np.isfinite(score) else np.inf

    def __str__(self) -> str:
        rms, most = np.sqrt(np.mean(self.means**2)), np.abs(self.means).max()
        return f"{rms:7.3f} {most:7.3f}   {self.sds.min():5.2f} to {self.sds.max():5.2f}"


def show(name: str, cost: Cost, error: Error, more: str = "") -> None:
    """One line of the table."""
    print(f"{name:44} {cost}  {error}  {more}", flush=True)


def grouped(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Equal rows once, with their number and the sum of their outcomes."""
    return dict(zip(("X", "n", "y"), distinct(rows["X"], rows["y"]), strict=True))


def nuts(rows: dict[str, np.ndarray], fit: LaplaceFit) -> tuple[Cost, Reference]:
    """What NUTS takes to 1,000 effective draws, from a short and a long run; and what it found.

    The difference between the two is free of compiling.
    """
    costs = []
    for n_draws in (N_SHORT, N_REFERENCE):
        chain = Chain.on(rows, fit, n_draws)
        chain.steps(chain.sampler.warmup)
        costs.append(chain.steps(chain.sampler.run))
    draws = np.asarray(chain.sampler.get_samples()["beta"])
    each = (costs[1] - costs[0]).times(1 / (N_REFERENCE - N_SHORT))
    ess = least_ess(draws)
    print(f"reference: {N_REFERENCE:,} draws of NUTS, least ESS {ess:,.0f}")
    cost = each.times(N_WARM_UP + WANTED * N_REFERENCE / ess)
    return cost, Reference(draws.mean(axis=0), draws.std(axis=0))


def timed(work: Callable[[], Any]) -> tuple[Any, Cost]:
    """What compiled work gives, and its cost."""
    start = now()
    result = jax.block_until_ready(work())
    return result, now() - start


def best(found: Iterable[tuple[str, Cost, Error]]) -> tuple[str, Cost, Error]:
    """The one with the least error."""
    return min(found, key=lambda one: one[2].score())


def advi(rows: dict[str, np.ndarray], fit: LaplaceFit, truth: Reference) -> None:
    """Two guides, two numbers of steps, the best of three rates each."""
    from numpyro.infer import init_to_value
    from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

    start = init_to_value(values={"beta": fit.mode})
    for guide_class in (AutoNormal, AutoMultivariateNormal):
        guide = guide_class(program, init_loc_fn=start, init_scale=0.03)
        climb = ascent(guide, rows)
        for n_steps in STEPS:
            tried = []
            for rate in RATES:
                params, cost = timed(lambda climb=climb, rate=rate, n=n_steps: climb(rate, n))
                mean, above = np.asarray(guide.quantiles(params, [0.5, ONE_SD])["beta"])
                tried.append((f"rate {rate:g}", cost, truth.error(mean, above - mean)))
            chosen, cost, error = best(tried)
            show(f"ADVI, {guide_class.__name__}, {n_steps:,} steps", cost, error, chosen)


def ascent(guide: Any, rows: dict[str, np.ndarray]) -> Callable[[float, int], Any]:
    """Compiled: so many steps of Adam, with a rate that falls to a hundredth."""
    from numpyro import optim
    from numpyro.infer import SVI, Trace_ELBO

    data = {name: jnp.asarray(array) for name, array in rows.items()}
    state = SVI(program, guide, optim.Adam(0.01), Trace_ELBO()).init(jax.random.PRNGKey(1), **data)

    @jax.jit
    def run(rate: Any, n_steps: Any) -> Any:
        falling = optim.Adam(lambda step: rate * 0.01 ** (step / n_steps))
        svi = SVI(program, guide, falling, Trace_ELBO())
        svi.init(jax.random.PRNGKey(1), **data)
        end = jax.lax.fori_loop(0, n_steps, lambda _, now: svi.update(now, **data)[0], state)
        return svi.get_params(end)

    run(0.01, 1)
    return run


def stochastic_gradients(rows: dict[str, np.ndarray], fit: LaplaceFit, truth: Reference) -> None:
    """SGLD with and without control variates, in coordinates in which the posterior is round."""
    import blackjax
    from blackjax.sgmcmc import gradients

    factor = jnp.asarray(np.linalg.cholesky(fit.cov))
    columns, late = jnp.asarray(rows["X"]), jnp.asarray(rows["y"])

    def log_prior(z: Any) -> Any:
        return -0.5 * jnp.sum(((fit.mode + factor @ z) / 2.5) ** 2)

    def log_likelihood(z: Any, row: Any) -> Any:
        eta = row[0] @ (fit.mode + factor @ z)
        return row[1] * eta - jax.nn.softplus(eta)

    plain = gradients.grad_estimator(log_prior, log_likelihood, len(late))
    centre = jnp.zeros(len(fit.mode))
    known = gradients.control_variates(plain, centre, (columns, late))
    for name, estimator in (("SGLD", plain), ("SGLD, control variates", known)):
        kernel = blackjax.sgld(estimator)

        def step(z: Any, key: Any, size: Any, kernel: Any = kernel) -> tuple[Any, None]:
            which, noise = jax.random.split(key)
            chosen = jax.random.randint(which, (BATCH,), 0, len(late))
            return kernel.step(noise, z, (columns[chosen], late[chosen]), size), None

        @jax.jit
        def run(size: Any, step: Any = step) -> Any:
            def some(z: Any, keys: Any) -> tuple[Any, Any]:
                z, _ = jax.lax.scan(lambda z, key: step(z, key, size), z, keys)
                return z, z

            keys = jax.random.split(jax.random.PRNGKey(1), (N_STEPS // THIN, THIN))
            return jax.lax.scan(some, centre, keys)[1]

        compiled = run.lower(0.1).compile()
        tried = []
        for size in STEP_SIZES[name]:
            zs, cost = timed(lambda size=size, compiled=compiled: compiled(size))
            draws = np.asarray(fit.mode + zs @ factor.T)
            error = truth.error_of(draws)
            ess = f", ESS {least_ess(draws):,.0f}" if np.isfinite(draws).all() else ""
            tried.append((f"step {size:g}{ess}", cost, error))
            show(f"  {name}, step {size:g}", cost, error, ess[2:])
        chosen, cost, error = best(tried)
        show(f"{name}, best of {len(tried)} steps", cost, error, chosen)


def stan(few: dict[str, np.ndarray], fit: LaplaceFit, truth: Reference) -> None:
    """Stan's NUTS over `reduce_sum`, with one thread and with two."""
    found = subprocess.run([STAN_PYTHON, "-c", "import stan"], capture_output=True)  # noqa: S603
    if found.returncode:
        print("Stan: not installed (pip install pystan; STAN_PYTHON names another Python)")
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, mode=fit.mode, cov=fit.cov, **few)
        for kind, steps in STAN_STEPS.items():
            for threads in (1, 2):
                name = f"Stan, {kind}, threads: {threads}, {steps[1]:,} draws"
                told = stan_run(data, kind, steps, threads)
                draws, leapfrogs = np.array(told["draws"]), np.sum(told["leapfrogs"])
                ess = least_ess(draws)
                cost = Cost(told["wall"], told["cpu"])
                each = cost.times(1000 / leapfrogs)
                more = f"ESS {ess:,.0f}; a gradient {each.wall:.2f} ms, CPU {each.cpu:.2f} ms"
                show(name, cost, truth.error_of(draws), more)


def stan_run(data: Path, kind: str, steps: tuple[int, int], threads: int) -> dict[str, Any]:
    """In a process of its own, which knows the number of threads from its environment."""
    script = Path(__file__).resolve().with_name("reduce_sum.py")
    command = [STAN_PYTHON, str(script), str(data), kind, *map(str, steps)]
    environment = os.environ | {"STAN_NUM_THREADS": str(threads)}
    told = {"capture_output": True, "text": True, "check": True}
    done = subprocess.run(command, env=environment, cwd=data.parent, **told)  # noqa: S603
    return json.loads(done.stdout.splitlines()[-1])


def on_cases() -> None:
    """Errors on real posteriors that are less Gaussian, with eight shards."""
    print(f"{'':44} means: RMS, most   sds, times")
    for case, model in MODELS.items():
        known = REFERENCE[case]
        truth = Reference(np.array(known["mean"]), np.array(known["sd"]))
        with np.load(FOLDER / f"{case}.npz") as kept:
            rows = dict(kept)
        fit = laplace_fit(Target(model, rows, 1))
        laplace = truth.error(fit.mode, np.sqrt(np.diag(fit.cov)))
        print(f"{case + ', Laplace':44} {laplace}", flush=True)
        for method in METHODS:
            print(f"{case + ', ' + method:44} {eighths(model, rows, truth, method)}", flush=True)


def eighths(model: Any, rows: dict[str, np.ndarray], truth: Reference, method: str) -> str:
    """The error with eight shards, and the verdict; or why there is no answer."""
    options = {"method": method, "workers": 8, "engine": quorate.Processes(2), "progress": False}
    try:
        result = quorate.sample(model, rows, draws=4000, seed=1, **options)
    except quorate.errors.QuorateError as error:
        return str(error).partition(".")[0]
    return f"{truth.error_of(result.unconstrained)}  {result.verdict.in_short}"


def main() -> None:
    """All of it."""
    model, rows = regression()
    start = now()
    fit = laplace_fit(Target(model, rows, 1))
    fitting = now() - start
    few = grouped(rows)
    print(
        f"{len(rows['y']):,} flights, {model.dim} coefficients; {len(few['y']):,} rows that differ"
    )
    cost, truth = nuts(few, fit)
    print(f"{'':44}   wall s    CPU s   means: RMS, most   sds, times")
    print(f"{'NUTS, equal rows once':44} {cost}  to {WANTED:,} effective draws")
    for method in METHODS:
        cost, draws = ours(model, rows, method)
        show(f"quorate, {method}, 2 processes", cost, truth.error_of(draws))
    sds = np.sqrt(np.diag(fit.cov))
    show("Laplace", fitting, truth.error(fit.mode, sds))
    narrow = 1 / np.sqrt(np.diag(np.linalg.inv(fit.cov))) / sds
    print(f"sds of a mean field at its optimum: {narrow.min():.2f} to {narrow.max():.2f}", end="")
    print(f" of what they should be, median {np.median(narrow):.2f}")
    advi(few, fit, truth)
    stochastic_gradients(rows, fit, truth)
    stan(few, fit, truth)
    on_cases()


if __name__ == "__main__":
    main()
