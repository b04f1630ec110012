"""Checks of each shard: whether its chains have mixed, and whether it agrees with the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc, fdtrc

from quorate._types import Array
from quorate.errors import named_shards
from quorate.merging.fit import Fit
from quorate.numerics.ess import bulk_ess, mean_ess, split_rhat
from quorate.numerics.linalg import spd_inverse, spd_solve
from quorate.numerics.moments import Moments

FALSE_ALARMS = 0.001  # chance that any shard of a run is reported though all are alike
_FEWEST = 8  # draws of a chain from which R-hat and ESS can be computed
_SHORT = 4  # chains this many times shorter than the longest are left out of R-hat


@dataclass(frozen=True)
class ShardFinding:
    """What was found about one shard.

    Parameters
    ----------
    shard
        Number of the shard.
    draws
        Number of its draws; 0 in coded and exact runs, which have no draws of single shards.
    ess, r_hat
        Smallest ESS and largest R-hat of any coordinate; None if there are too few draws.
    distance
        Mahalanobis distance of its mean from the merge of the other shards; None if unknown.
    p_value
        Probability of this distance, or a larger one, if all shards are alike.
    disagrees
        Whether the p-value is so small that the shard differs from the others. If all shards are
        alike, the chance that any shard of the run is reported is `FALSE_ALARMS`.
    divergences
        Number of divergences of its chains; None if its sampler has no divergences.
    faults
        Number of refused blocks and errors of the workers that hold it.
    """

    shard: int
    draws: int = 0
    ess: float | None = None
    r_hat: float | None = None
    distance: float | None = None
    p_value: float | None = None
    disagrees: bool = False
    divergences: int | None = None
    faults: int = 0


@dataclass(frozen=True, eq=False)
class ShardChains:
    """All draws of one shard, and what else is known of it.

    Parameters
    ----------
    chains
        Draws by chain, (n, d) each.
    fit
        The fit that warm-up found, if any.
    divergences, faults
        As in `ShardFinding`.
    other_modes
        Modes of its density other than the one its chains started from, (m, d).
    """

    chains: Sequence[Array]
    fit: Fit | None = None
    divergences: int | None = None
    faults: int = 0
    other_modes: Sequence[Array] | Array = ()

    @property
    def moments(self) -> Moments | None:
        """Moments of all draws; None if there are fewer than two."""
        n_draws = sum(map(len, self.chains))
        return Moments.of(np.concatenate(self.chains)) if n_draws > 1 else None

    def alike(self) -> Array | None:
        """Chains cut to equal length, (chains, n, d), very short ones left out; None if all are."""
        longest = max(map(len, self.chains), default=0)
        if longest < _FEWEST:
            return None
        kept = [x for x in self.chains if len(x) >= max(longest / _SHORT, _FEWEST)]
        shortest = min(map(len, kept))
        return np.stack([x[-shortest:] for x in kept])


def shard_findings(shards: Sequence[ShardChains]) -> list[ShardFinding]:
    """Findings about each shard."""
    sizes = [_sizes(shard) for shard in shards]
    estimates = [
        None if (of := shard.moments) is None else Estimate(of.mean, of.covariance(), worth)
        for shard, (_, worth, _) in zip(shards, sizes, strict=True)
    ]
    findings = []
    for found, shard, (ess, _, r_hat) in zip(compared(estimates), shards, sizes, strict=True):
        findings.append(
            replace(
                found,
                draws=sum(map(len, shard.chains)),
                ess=ess,
                r_hat=r_hat,
                divergences=shard.divergences,
                faults=shard.faults,
            )
        )
    return findings


def remarks_on(findings: Sequence[ShardFinding]) -> list[str]:
    """What the findings say about the model and the rows, whatever they say about the draws."""
    odd = [found.shard for found in findings if found.disagrees]
    if not odd:
        return []
    return [
        f"{named_shards(odd)} {'disagrees' if len(odd) == 1 else 'disagree'} with the others (by "
        f"chance, this happens in {FALSE_ALARMS:.1%} of runs). Check what is different about "
        "these rows (source, labels, units), or extend the model so that it allows for the "
        "difference"
    ]


def _sizes(shard: ShardChains) -> tuple[float | None, float, float | None]:
    """Bulk ESS, ESS of the covariance, and R-hat, each of the worst coordinate."""
    draws = shard.alike()
    if draws is None:
        return None, 0.0, None
    share = sum(map(len, shard.chains)) / (len(draws) * len(draws[0]))
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    worth = np.minimum(mean_ess(draws), mean_ess(squares))
    r_hat = split_rhat(draws)
    moves = np.isfinite(worth) & np.isfinite(r_hat)
    if not moves.all():
        return 0.0, 0.0, np.inf
    return share * float(bulk_ess(draws).min()), share * float(worth.min()), float(r_hat.max())


@dataclass(frozen=True, eq=False)
class Estimate:
    """Mean and covariance of a shard, and how many draws they are worth."""

    mean: Array
    cov: Array
    worth: float = np.inf


def compared(estimates: Sequence[Estimate | None]) -> list[ShardFinding]:
    """Distance of each shard's mean from the merge of the others, and its p-value.

    If the model holds, the means of shards are independent estimates of the same point. That of
    shard s has covariance C_s, the merge of the others has V = (Σ C_t⁻¹)⁻¹, and Monte Carlo error
    adds C_s / ESS. So the squared distance is Hotelling's T² with the ESS as its degrees of
    freedom. Each shard's share of the prior only makes means more alike.
    """
    findings = [ShardFinding(number) for number in range(len(estimates))]
    dim = max((of.mean.size for of in estimates if of is not None), default=0)
    known = {s: of for s, of in enumerate(estimates) if of is not None and of.worth > 2 * dim}
    if len(known) < 2:
        return findings
    means = np.stack([of.mean for of in known.values()])
    covs = np.stack([of.cov for of in known.values()])
    sds = np.sqrt(np.einsum("sii->i", covs) / len(covs))
    means, covs = means / sds, covs / np.outer(sds, sds)
    precisions = spd_inverse(covs)
    pulls = np.einsum("sij,sj->si", precisions, means)
    for i, (shard, of) in enumerate(known.items()):
        others = spd_inverse(precisions.sum(axis=0) - precisions[i])
        gap = means[i] - others @ (pulls.sum(axis=0) - pulls[i])
        spread = covs[i] * (1 + 1 / of.worth) + others
        squared = float(gap @ spd_solve(spread, gap[:, None])[:, 0])
        p_value = _p_value(squared, dim, of.worth)
        findings[shard] = replace(
            findings[shard],
            distance=squared**0.5,
            p_value=p_value,
            disagrees=p_value < FALSE_ALARMS / len(estimates),
        )
    return findings


def _p_value(squared: float, dim: int, worth: float) -> float:
    """P-value of Hotelling's T², which is χ² if mean and covariance are known without error."""
    if np.isinf(worth):
        return float(chdtrc(dim, squared))
    left = worth - dim + 1
    return float(fdtrc(dim, left, squared * left / (worth * dim)))
