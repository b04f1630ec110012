"""Errors of merged means on real posteriors, by where weights and means of shards come from.

Six posteriors, four shards, 500 draws per shard; RMS over parameters and blocks of draws, in
posterior standard deviations, of the distance to Σ W_s μ_s with weights and means known exactly.
`weights_on_cases.py [SEED]`.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from quorate.errors import QuorateWarning
from quorate.merging.centres import shift_of
from quorate.merging.consensus import consensus_weights
from quorate.merging.fit import Fit
from quorate.merging.weights import shrunk_covariance, shrunk_covariances
from quorate.models.subposterior import Target
from quorate.numerics.moments import Moments
from quorate.numerics.streams import ChainStream, Streams
from quorate.samplers import AutoSampler, fit_of
from quorate.samplers.base import Base
from quorate.samplers.laplace import laplace_fit
from quorate.samplers.refinement import refined

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.cases import REFERENCE, subposterior_moments, targets

N_SHARDS, N_DRAWS, N_BLOCKS = 4, 500, 20
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
FEW_BLOCKS = {"logmesquite": 5}  # handed to `nuts`, whose draws take longer


def blocks_of(case: str, folder: Path) -> tuple[np.ndarray, list[Fit], list[Fit]]:
    """Of one chain per shard: blocks (n_blocks, n_shards, N_DRAWS, d), fits, and curvatures."""
    sampler, chains, fits, curved = AutoSampler(), [], [], []
    n_blocks = FEW_BLOCKS.get(case, N_BLOCKS)
    for s, target in enumerate(targets(case, N_SHARDS, folder)):
        stream = ChainStream(Streams(SEED), s, 0)
        state = sampler.warm_up(target, stream)
        draws = sampler.draw(target, state, stream, n_blocks * N_DRAWS)[0]
        chains.append(draws.reshape(n_blocks, N_DRAWS, -1))
        fits.append(fit_of(state))
        curved.append(Fit(state["mean"], state["lower"] @ state["lower"].T))
    return np.stack(chains, axis=1), fits, curved


class Counted(Target):
    """A target that counts, in `count` of the class, how often it is evaluated."""

    count = 0

    def log_density(self, x: np.ndarray) -> float:
        Counted.count += 1
        return super().log_density(x)

    def log_density_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        Counted.count += 1
        return super().log_density_and_gradient(x)


def evaluations_of(case: str, folder: Path) -> float:
    """To refine the fit, mean over shards."""
    Counted.count = 0
    for s, target in enumerate(targets(case, N_SHARDS, folder)):
        base = Base.around(laplace_fit(target))
        counted = Counted(target.model, target.shard, target.n_shards)
        refined(counted, base, ChainStream(Streams(SEED), s, 0))
    return Counted.count / N_SHARDS


def merged_means(covs: list[np.ndarray], means: np.ndarray) -> np.ndarray:
    """Of every block, (n_blocks, d)."""
    return np.einsum("bsij,bsj->bi", consensus_weights(np.stack(covs)), means)


def errors_of(case: str, folder: Path) -> dict[str, tuple[float, float]]:
    """By source of the covariances: in all, and through weights alone."""
    blocks, fits, curved = blocks_of(case, folder)
    true_means, true_covs = subposterior_moments(case)
    expected = merged_means([true_covs], true_means[None])
    moments = [[Moments.of(draws) for draws in block] for block in blocks]
    sources = {
        "exact": [true_covs for _ in blocks],
        "draws": [np.stack([of.covariance() for of in shards]) for shards in moments],
        "shrunk": [shrunk_covariances(shards, fits) for shards in moments],
        "curved": [shrunk_covariances(shards, curved) for shards in moments],
        "alone": [
            np.stack([shrunk_covariance(of, fit) for of, fit in zip(shards, fits, strict=True)])
            for shards in moments
        ],
        "no fit": [shrunk_covariances(shards, [None] * N_SHARDS) for shards in moments],
    }
    merged = {name: merged_means(covs, blocks.mean(axis=2)) for name, covs in sources.items()}
    shifts = [[shift_of(*of) for of in zip(shards, fits, strict=True)] for shards in moments]
    merged["default"] = merged_means(sources["shrunk"], blocks.mean(axis=2) + np.array(shifts))
    sds = np.array(REFERENCE[case]["sd"])

    def rms(gaps: np.ndarray) -> float:
        return float(np.sqrt(np.mean((gaps / sds) ** 2)))

    return {name: (rms(m - expected), rms(m - merged["exact"])) for name, m in merged.items()}


def main() -> None:
    """One line per case."""
    print(f"RMS error of merged means, {N_SHARDS} shards, {N_DRAWS} draws each, posterior sds")
    print("draws: covariances of draws, as in the paper; default: shrunk weights, and means of")
    print("shards shrunk as well; the others have means of draws. exact weights: what noise in")
    print(
        "those leaves; shrunk: covariances shrunk towards what warm-up found; curved: towards the"
    )
    print("curvature at the mode, never refined; alone: each shard by itself; no fit: towards no")
    print("correlation; evaluations: to refine, per shard")
    weighed = ("draws", "shrunk", "curved", "alone", "no fit")
    names = ("default", "exact", *weighed)
    print(f"{'in all':22}" + "".join(f"{name:>8}" for name in names), end="")
    print("  ratio | weights alone:" + "".join(f"{name:>8}" for name in weighed) + "  ratio")
    for case in REFERENCE:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", QuorateWarning)
            found = errors_of(case, Path(folder) / "shards")
            n_evaluations = evaluations_of(case, Path(folder) / "again")
        print(f"{case:22}" + "".join(f"{found[name][0]:8.3f}" for name in names), end="")
        print(f"  {found['draws'][0] / found['default'][0]:5.1f}", end=" |               ")
        print("".join(f"{found[name][1]:8.3f}" for name in weighed), end="")
        ratio = found["draws"][1] / found["shrunk"][1]
        print(f"  {ratio:5.1f} | evaluations {n_evaluations:.0f}", flush=True)


if __name__ == "__main__":
    main()
