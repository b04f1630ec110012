"""Errors and verdicts of exact runs on six real posteriors, for several K and seeds.

Errors are in standard deviations of the references, and in standard errors of the run and of the
reference together, with the ESS of the mean and of the squares. Short chains are joined for it, as
in `Result.summary`: the ESS of many short chains by themselves is overstated by a tenth.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import quorate
from quorate.numerics.ess import joined_chains, mean_ess

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.cases import FOLDER, MODELS, REFERENCE

N_DRAWS = 4000
WORKERS, SEEDS = (2, 4, 8), range(5)


def errors(case: str, workers: int, seed: int) -> tuple[float, float, bool, str]:
    """Largest error of a mean and of an sd, whether both are allowed, and the verdict."""
    with np.load(FOLDER / f"{case}.npz") as data:
        result = quorate.sample(
            MODELS[case],
            dict(data),
            method="exact",
            workers=workers,
            seed=seed,
            draws=N_DRAWS,
            progress=False,
        )
    known, draws = REFERENCE[case], result.unconstrained
    mean, sd = np.array(known["mean"]), np.array(known["sd"])
    chains = draws[joined_chains(len(draws), result.n_chains)]
    squares = (chains - mean) ** 2
    of_mean = np.sqrt(1 / mean_ess(chains) + 1 / known["n_draws"])
    of_squares = squares.reshape(-1, len(mean)).std(axis=0) / sd**2 / 2
    of_sd = of_squares * np.sqrt(1 / mean_ess(squares) + 1 / known["n_draws"])
    mean_errors = np.abs(draws.mean(axis=0) - mean) / sd
    sd_errors = np.abs(draws.std(axis=0) / sd - 1)
    means_fit = np.all(mean_errors < np.maximum(0.05, 3 * of_mean))
    sds_fit = np.all(sd_errors < np.maximum(0.06, 3 * of_sd))
    assert result.verdict is not None
    verdict = result.verdict.in_short
    return float(mean_errors.max()), float(sd_errors.max()), bool(means_fit and sds_fit), verdict


def rows(cases: list[str]) -> Iterator[str]:
    """A line for each case and K."""
    for case in cases:
        for workers in WORKERS:
            found = [errors(case, workers, seed) for seed in SEEDS]
            means, sds, fits, verdicts = zip(*found, strict=True)
            good = sum(verdict == "good" for verdict in verdicts)
            yield (
                f"{case:22} K = {workers}   means {max(means):.3f}   sds {max(sds):.3f}   "
                f"within limits {sum(fits)} of {len(fits)}   good {good} of {len(fits)}"
            )


if __name__ == "__main__":
    print(f"{N_DRAWS} exact draws, seeds 0 to {SEEDS[-1]}; largest errors over seeds")
    for row in rows(sys.argv[1:] or list(MODELS)):
        print(row, flush=True)
