"""Time until the flights regression has 1,000 effective draws of all its 31 coefficients.

Ours on two worker processes, then NumPyro's NUTS on all rows at once, in the same run. Both draw
from the same density. NUTS takes long to find its feet on so many rows, so it is handed the mode
and the curvature there, at no charge, and a tenth of its usual warm-up; and it is given a budget:
what it did not reach within it is extrapolated from its effective draws per second, and said to be.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import quorate
from quorate.data.write import write_shards
from quorate.models import design, logistic
from quorate.models.subposterior import Target
from quorate.numerics.ess import bulk_ess
from quorate.samplers.laplace import LaplaceFit, laplace_fit

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from flights import FORMULA, flights

METHODS = ("exact", "merge")
WANTED = 1000
N_WARM_UP = 100  # steps that NUTS adapts in
BLOCK = 50  # draws between looks at its ESS
BUDGET = float(os.environ.get("NUTS_SECONDS", "240"))


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, and of all processors together."""

    wall: float
    cpu: float

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.wall - other.wall, self.cpu - other.cpu)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.wall + other.wall, self.cpu + other.cpu)

    def times(self, factor: float) -> "Cost":
        """As much as `factor` of them."""
        return Cost(self.wall * factor, self.cpu * factor)

    def __str__(self) -> str:
        return f"{self.wall:8.1f} {self.cpu:8.1f}"


def cpu(who: int) -> float:
    """Seconds of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def now() -> Cost:
    """Of this process and its children that have ended."""
    return Cost(time.perf_counter(), cpu(resource.RUSAGE_SELF) + cpu(resource.RUSAGE_CHILDREN))


def least_ess(draws: np.ndarray) -> float:
    """Of the coefficient that has fewest."""
    return float(np.min(bulk_ess(draws[None])))


def ours(model: Any, rows: dict[str, np.ndarray], method: str) -> tuple[Cost, np.ndarray]:
    """Two processes until there are enough, and draws; cutting rows into shards is counted."""
    start = now()
    options = {"method": method, "redundancy": 1, "draws": 10**6, "until": f"ess:{WANTED}"}
    options |= {"check": False, "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        result = quorate.sample(model, rows, workers=2, run_dir=Path(folder) / "run", **options)
    spent = now() - start
    ess = min(row["ess"] for row in result.summary_rows().values())
    name = f"quorate, {method}, 2 processes"
    print(f"  {name:34} {spent}   ESS {ess:,.0f} of {result.n_draws} draws")
    return spent, result.unconstrained


def program(X: Any, y: Any, n: Any = None) -> None:  # noqa: N803
    """The model for NumPyro; where `n` says how many rows each row stands for, `y` is their sum."""
    import jax
    import numpyro

    wide = numpyro.distributions.Normal(0.0, 2.5).expand([X.shape[1]]).to_event(1)
    eta = X @ numpyro.sample("beta", wide)
    if n is None:
        numpyro.sample("y", numpyro.distributions.BernoulliLogits(eta), obs=y)
    else:
        numpyro.factor("y", y @ eta - n @ jax.nn.softplus(eta))


@dataclass
class Chain:
    """NumPyro's NUTS, with what it has cost so far."""

    sampler: Any
    rows: dict[str, np.ndarray]
    compiling: float = 0.0

    @classmethod
    def on(cls, rows: dict[str, np.ndarray], fit: LaplaceFit, n_draws: int = BLOCK) -> "Chain":
        """A chain at the mode that knows the curvature there."""
        import jax
        import numpyro
        from numpyro.infer import MCMC, NUTS, init_to_value

        numpyro.enable_x64()

        start = init_to_value(values={"beta": fit.mode})
        known = {"inverse_mass_matrix": fit.cov, "adapt_mass_matrix": False}
        kernel = NUTS(program, init_strategy=start, dense_mass=True, **known)
        sampler = MCMC(kernel, num_warmup=N_WARM_UP, num_samples=n_draws, progress_bar=False)
        chain = cls(sampler, rows)
        jax.monitoring.register_event_duration_secs_listener(chain.listen)
        return chain

    def listen(self, event: str, seconds: float, **more: Any) -> None:
        """Add up what JAX says of tracing, lowering and compiling."""
        if event.startswith("/jax/core/compile/"):
            self.compiling += seconds

    def steps(self, go: Callable[..., None]) -> Cost:
        """What some more steps cost."""
        import jax

        start = now()
        go(jax.random.PRNGKey(1), **self.rows)
        jax.block_until_ready(self.sampler.last_state)
        return now() - start


def theirs(rows: dict[str, np.ndarray], fit: LaplaceFit) -> tuple[Cost, np.ndarray]:
    """NUTS until there are enough, or its time is up, without what was compiled; and its draws."""
    chain = Chain.on(rows, fit)
    warm_up = chain.steps(chain.sampler.warmup)
    drawing, blocks = Cost(0.0, 0.0), []
    while not blocks or (drawing + warm_up).wall < BUDGET:
        chain.sampler.post_warmup_state = chain.sampler.last_state
        drawing += chain.steps(chain.sampler.run)
        blocks.append(np.asarray(chain.sampler.get_samples()["beta"]))
        ess = least_ess(np.concatenate(blocks))
        if ess >= WANTED:
            break
    compiled = Cost(chain.compiling, chain.compiling)
    n_draws = sum(map(len, blocks))
    print(f"  NUTS, {N_WARM_UP} steps of warm-up          {warm_up}   with compiling")
    print(f"  NUTS, drawing                      {drawing}   ESS {ess:,.0f} of {n_draws} draws")
    print(f"  of these, compiling                {compiled}   by the clock of JAX")
    total = warm_up + drawing.times(max(WANTED / ess, 1.0))
    said = "" if ess >= WANTED else f"   drawing extrapolated, {WANTED / ess:.1f} times as long"
    print(f"  NUTS to {WANTED:,}, compiling counted     {total}{said}")
    print(f"  NUTS to {WANTED:,}, not counted           {total - compiled}")
    return total - compiled, np.concatenate(blocks)


def overhead(model: Any, rows: dict[str, np.ndarray]) -> float:
    """CPU of the coordinator as a share of its workers', on six workers as in the demo."""
    with tempfile.TemporaryDirectory() as folder:
        start = cpu(resource.RUSAGE_SELF)
        write_shards(rows, 6, Path(folder) / "alone", seed=1)
        sharding = cpu(resource.RUSAGE_SELF) - start
        before = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN)
        options = {"method": "merge", "redundancy": 2, "draws": 1000, "seed": 1}
        options |= {"check": False, "progress": False}
        quorate.sample(model, rows, workers=6, run_dir=Path(folder) / "run", **options)
        coordinator = cpu(resource.RUSAGE_SELF) - before[0] - sharding
        workers = cpu(resource.RUSAGE_CHILDREN) - before[1]
    print(f"CPU seconds of 1,000 draws on six workers, r = 2: workers {workers:.1f}, coordinator")
    print(f"  {coordinator:.2f} beside {sharding:.2f} for cutting rows into shards", end="; ")
    print(f"{coordinator / workers:.1%} of the workers' (target: under 3 %)")
    return coordinator / workers


def regression() -> tuple[Any, dict[str, np.ndarray]]:
    """The model and all its rows."""
    table = flights()
    encoding = design(FORMULA, table)
    rows = {name: array.copy() for name, array in encoding.arrays(table).items()}
    for array in rows.values():
        array.flags.writeable = False  # what is worked out from them once is then kept
    return logistic(encoding.names), rows


def main() -> None:
    """All of it."""
    model, rows = regression()
    print(f"{len(rows['y']):,} flights, {model.dim} coefficients: until each has ESS {WANTED:,}")
    print("                                         wall s    CPU s")
    mine = {method: ours(model, rows, method)[0] for method in METHODS}
    nuts, _ = theirs(rows, laplace_fit(Target(model, rows, 1)))
    for method, cost in mine.items():
        clock, work = nuts.wall / cost.wall, nuts.cpu / cost.cpu
        print(f"  times as long as {method} for NUTS, without compiling: ", end="")
        print(f"wall {clock:.1f}, CPU {work:.1f}")
    overhead(model, rows)


if __name__ == "__main__":
    main()
