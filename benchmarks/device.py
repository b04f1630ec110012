"""Exact runs on a GPU: draws a second, where the time goes, and NumPyro's NUTS beside them.

Run on a machine with a GPU:

    python benchmarks/device.py OUTPUT.json [--parts small,large,cover,groups,mixed] [--scale 1]

It writes one JSON file with the machine, versions and figures after each part, so that a run that
is cut off has the parts before. `--scale 0.01` uses a hundredth of the rows, to try it out; without
a GPU everything runs on cores.

- small: 100,000 x 20, compared with a run on cores and with NUTS on the same device
- large: 10 million x 20, from arrays to ArviZ, with the seconds of each phase
- cover: 400,000 x 55, the shape of Forest CoverType, with NUTS beside it
- groups: 5 million rows in a million groups with intercepts of their own, to 1,000 effective draws
- mixed: one worker on the GPU and four on cores; the GPU's process is killed half-way
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import device_groups
import quorate
from quorate import Grouped, Processes, Result
from quorate.models import logistic
from quorate.models.protocol import Model
from quorate.numerics.ess import bulk_ess, ess_of_chains
from quorate.run.progress import Phase, Progress

SEED = 20261116
SOME = 400_000  # draws from which the ESS is estimated
NUTS_CHAINS, NUTS_WARM_UP, NUTS_DRAWS = 64, 300, 200


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--parts", default="small,large,cover,groups,mixed")
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    found = {"machine": machine(), "scale": given.scale}
    for part in given.parts.split(","):
        print(f"--- {part}", flush=True)
        found[part] = PARTS[part](given.scale)
        print(json.dumps(found[part], indent=1), flush=True)
        given.output.write_text(json.dumps(found, indent=1) + "\n")


def machine() -> dict[str, object]:
    """The machine, and versions of libraries."""
    names = ("quorate", "numpy", "scipy", "jax", "jaxlib", "numpyro")
    return {
        "gpu": _gpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in names},
        "date": time.strftime("%Y-%m-%d"),
    }


def _gpu() -> str:
    command = [
        "nvidia-smi",
        "--query-gpu=name,memory.total,driver_version",
        "--format=csv,noheader",
    ]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# ---------------------------------------------------------------- the parts


def small(scale: float) -> dict[str, object]:
    """100,000 x 20: against cores, and beside NUTS."""
    data = regression(int(100_000 * scale), 20)
    device, on_device = drawn(data, 3_000_000, Processes(devices="gpu"), workers=1)
    cores, on_cores = drawn(data, 20_000, Processes(), workers=min(8, os.cpu_count() or 1))
    return {
        "device": on_device,
        "cores": on_cores,
        "means_apart_in_sds": apart(device, cores),
        "nuts": beside_nuts(data, on_device),
    }


def large(scale: float) -> dict[str, object]:
    """10 million x 20, against all cores."""
    data = regression(int(10_000_000 * scale), 20)
    device, on_device = drawn(data, 60_000, Processes(devices="gpu"), workers=1)
    cores, on_cores = drawn(data, 10_000, Processes(), workers=os.cpu_count() or 1)
    return {
        "device": on_device,
        "cores": on_cores,
        "means_apart_in_sds": apart(device, cores),
    }


def cover(scale: float) -> dict[str, object]:
    """400,000 x 55, beside NUTS."""
    data = regression(int(400_000 * scale), 55)
    _, figures = drawn(data, 1_000_000, Processes(devices="gpu"), workers=1)
    return {"device": figures, "nuts": beside_nuts(data, figures)}


def groups(scale: float) -> dict[str, object]:
    """A million groups, to 1,000 effective draws."""
    rows = device_groups.simulated(scale, SEED)
    model = logistic(device_groups.COLUMNS, groups="g")
    engine = Processes(devices="gpu")
    result, figures = drawn(rows, 4000, engine, model=model, workers=1, until="ess:1000")
    return {"device": figures, "estimates": device_groups.estimates(result)}


def mixed(scale: float) -> dict[str, object]:
    """The GPU is worker 0. It is killed, and not restarted, when half of the draws are there."""
    data = regression(int(100_000 * scale), 20)
    engine = Processes(devices="gpu,cpu,cpu,cpu,cpu", restarts=0)
    setting = {"workers": 5, "scheme": Grouped(redundancy=5)}
    killed: list[dict[str, float]] = []

    def kill(progress: Progress) -> None:
        if progress.draws >= progress.target / 2 and not killed:
            os.kill(worker_process(progress), signal.SIGKILL)
            killed.append({"seconds": progress.seconds, "draws": progress.draws})

    plans: list[dict[str, object]] = []
    undisturbed, plain = drawn(
        data, 120_000, engine, after=lambda run: plans.append(planned(run)), **setting
    )
    result, figures = drawn(data, 120_000, engine, listen=kill, every=0.01, **setting)
    return {
        "undisturbed": plain,
        "planned": plans[0],
        "killed": figures,
        "killed_after": killed,
        "draws": len(result.unconstrained),
        "means_apart_in_sds": apart(result, undisturbed),
        "happened": [f"{t:.1f} s: worker {n.worker} {n.what}" for t, n in result.timeline.notes],
    }


def planned(run: Path) -> dict[str, object]:
    """What `plan` says of r = 2 and r = 5, from the run with r = 5."""
    found = quorate.plan(run=run, workers=[5], schemes=["grouped"], redundancies=[2, 5])
    return {
        "measured": found.explanation[0],
        "seconds": {f"r = {option.redundancy}": option.median for option in found.options},
        "advised": f"r = {found.recommended.redundancy}",
    }


PARTS: dict[str, Callable[[float], dict[str, object]]] = {
    "small": small,
    "large": large,
    "cover": cover,
    "groups": groups,
    "mixed": mixed,
}


# ---------------------------------------------------------------- how


def regression(n: int, p: int) -> dict[str, np.ndarray]:
    """Rows of a logistic regression with an intercept."""
    rng = np.random.default_rng(SEED)
    columns = rng.standard_normal((n, p))
    columns[:, 0] = 1
    beta = rng.standard_normal(p) / np.sqrt(p)
    response = rng.random(n) < 1 / (1 + np.exp(-columns @ beta))
    return {"X": columns, "y": response.astype(np.float64)}


class Phases:
    """When each phase began, and the draws that were there."""

    def __init__(self, listen: Callable[[Progress], None] | None) -> None:
        self.began: dict[str, float] = {}
        self.drawing: list[tuple[float, int]] = []
        self._start = time.perf_counter()
        self._listen = listen

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter() - self._start
        self.began.setdefault(progress.phase, now)
        if progress.phase is Phase.DRAWING:
            self.drawing.append((now, progress.draws))
        if self._listen is not None:
            self._listen(progress)

    def seconds(self, end: float) -> dict[str, float]:
        """Of each phase."""
        names, moments = list(self.began), [*self.began.values(), end]
        return {
            name: round(b - a, 3) for name, a, b in zip(names, moments, moments[1:], strict=False)
        }


def drawn(
    data: dict[str, np.ndarray],
    n_draws: int,
    engine: Processes,
    listen: Callable[[Progress], None] | None = None,
    after: Callable[[Path], None] = lambda run: None,
    model: Model | None = None,
    **settings: object,
) -> tuple[Result, dict[str, object]]:
    """A run, from arrays to ArviZ, and its figures."""
    phases, start = Phases(listen), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = quorate.sample(
            logistic(data["X"].shape[1]) if model is None else model,
            data,
            draws=n_draws,
            method="exact",
            seed=SEED,
            engine=engine,
            run_dir=Path(folder) / "run",
            progress=phases,
            **settings,
        )
        sampled = time.perf_counter() - start
        tree = result.posterior
        done = time.perf_counter() - start
        after(Path(folder) / "run")
    (first, n_first), (last, n_last) = phases.drawing[0], phases.drawing[-1]
    seconds, share = phases.seconds(sampled), ess_per_draw(result)
    rate = (n_last - n_first) / (last - first) if last > first else float("nan")
    return result, {
        "rows": list(data["X"].shape),
        "draws": len(result.unconstrained),
        "chains": result.n_chains,
        "passes": result.n_passes,
        "draws_per_second": round(rate),
        "ess_per_draw": round(share, 3),
        "ess_per_second": round(rate * share),
        "seconds": {**seconds, "to ArviZ": round(done - sampled, 3), "in all": round(done, 3)},
        "verdict": str(result.verdict),
        "variables": len(tree),
    }


def ess_per_draw(result: Result) -> float:
    """The least of all coordinates, from some of the draws."""
    draws = result.unconstrained[:SOME]
    return float(ess_of_chains(draws, result.n_chains).min()) / len(draws)


def apart(a: Result, b: Result) -> dict[str, float]:
    """Differences of means in standard deviations, and what chance would make of them."""
    x, y = a.unconstrained, b.unconstrained
    gaps = np.abs(x.mean(axis=0) - y.mean(axis=0)) / x.std(axis=0)
    fewest = min(ess_per_draw(run) * len(run.unconstrained) for run in (a, b))
    return {
        "largest": float(gaps.max()),
        "root mean square": float(np.sqrt(np.mean(gaps**2))),
        "monte_carlo_error": float(np.sqrt(1 / fewest)),
        "largest_ratio_of_sds": float(np.max(np.abs(np.log(x.std(axis=0) / y.std(axis=0))))),
    }


def worker_process(progress: Progress) -> int:
    """The process of worker 0."""
    pid = progress.workers[0].pid
    assert pid is not None
    return pid


def beside_nuts(data: dict[str, np.ndarray], ours: dict[str, object]) -> dict[str, object]:
    """NumPyro's NUTS with vectorised chains on the same device and data."""
    import jax
    import numpyro
    import numpyro.distributions as dist

    jax.config.update("jax_enable_x64", True)
    columns, response = (jax.device_put(data[name]) for name in ("X", "y"))

    def model(columns: jax.Array, response: jax.Array) -> None:
        prior = dist.Normal(0, 2.5).expand([columns.shape[1]]).to_event(1)
        beta = numpyro.sample("beta", prior)
        numpyro.sample("y", dist.Bernoulli(logits=columns @ beta), obs=response)

    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model, dense_mass=True),
        num_warmup=NUTS_WARM_UP,
        num_samples=NUTS_DRAWS,
        num_chains=NUTS_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    start = time.perf_counter()
    sampler.warmup(jax.random.key(SEED), columns, response)
    jax.block_until_ready(sampler.last_state)
    warm = time.perf_counter()
    sampler.run(sampler.last_state.rng_key, columns, response)
    jax.block_until_ready(sampler.last_state)
    seconds = time.perf_counter() - warm
    draws = np.asarray(sampler.get_samples(group_by_chain=True)["beta"])
    ess = float(bulk_ess(draws).min())
    return {
        "chains": NUTS_CHAINS,
        "warm_up_seconds": round(warm - start, 2),
        "draw_seconds": round(seconds, 2),
        "effective_draws": round(ess),
        "ess_per_second": round(ess / seconds, 1),
        "quorate_over_nuts": round(float(str(ours["ess_per_second"])) / (ess / seconds), 1),
    }


if __name__ == "__main__":
    main()
