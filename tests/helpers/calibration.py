"""Simulation-based calibration of logistic regressions with groups (Talts et al. 2018).

Parameters are drawn from their prior, and rows from the model. If the posterior is right, the rank
of each parameter among its posterior draws is uniform.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import chisquare

from quorate.engines.workers.worker import surveyed
from quorate.models import logistic
from quorate.models.subposterior import Target, densities, densities_and_gradients
from quorate.passes.inquiry import Inquiry

N_RANKS = 99  # posterior draws that a parameter is ranked among
N_BINS = 20


@dataclass(frozen=True)
class Design:
    """A model and its rows: `n_groups` groups with `size` rows each and q varying coefficients.

    Rows are cut into `n_shards` shards. Of `n_draws` posterior draws, parameters are ranked among
    `n_ranks`, evenly spaced. The standard deviations of groups are half-normal(`sd_scale`).
    """

    name: str
    q: int
    n_groups: int
    size: int
    n_shards: int = 4
    n_draws: int = 1000
    n_ranks: int = N_RANKS
    sd_scale: float = 1.0

    @property
    def model(self):
        return logistic(
            ["Intercept", "x"],
            "normal(0, 1)",
            groups="g",
            varying=("Intercept", "x")[: self.q],
            sd_prior=f"half_normal({self.sd_scale})",
            lkj=2.0,
        )


ONE = Design("(1 | g)", 1, 60, 16)
TWO = Design("(1 + x | g)", 2, 60, 16)
TORN = Design("(1 | g)", 1, 30, 64)  # for the control: the larger groups are, the worse it is


def simulated(design, rng, *, torn=False):
    """A point of the prior, coefficients of groups, and shards of rows.

    Rows are cut by group. In the control groups are torn: each shard has some rows of each.
    """
    q = design.q
    sds = design.sd_scale * np.abs(rng.normal(size=q))
    partial = 2 * rng.beta(2.0, 2.0) - 1
    x = np.concatenate([rng.normal(size=2), np.log(sds), [np.arctanh(partial)] * (q == 2)])
    cov = design.model.taken_apart(x[None]).covs[0][0]  # of the only level, at the only point
    local = rng.normal(size=(design.n_groups, q)) @ np.linalg.cholesky(cov).T
    group = np.repeat(np.arange(design.n_groups), design.size)
    columns = np.column_stack([np.ones(len(group)), rng.normal(size=len(group))])
    eta = columns @ x[:2] + (columns[:, :q] * local[group]).sum(axis=1)
    y = (rng.random(len(eta)) < expit(eta)).astype(float)
    owners = (np.arange(len(group)) if torn else group) % design.n_shards
    shards = []
    for shard in range(design.n_shards):
        mine = owners == shard
        arrays = {"X": columns[mine], "y": y[mine], "Z": columns[mine, :q], "group": group[mine]}
        for array in arrays.values():
            array.flags.writeable = False
        shards.append(arrays)
    return x, local, shards


def posterior_draws(model, shards, n_draws, seed):
    """Draws by the passes of an exact run, in this process."""
    targets = [Target(model, shard, len(shards)) for shard in shards]
    inquiry = Inquiry(model.initial(), model.names, n_draws, seed, has_gradient=True)
    inquiry.begin({shard: surveyed(target) for shard, target in enumerate(targets)})
    while inquiry.open:
        for lane in sorted(inquiry.open):
            asked = inquiry.open[lane]
            evaluate = densities if asked.scales is None else densities_and_gradients
            found = [evaluate(target, asked.points) for target in targets]
            gradients = None if asked.scales is None else sum(each.gradients for each in found)
            inquiry.take(lane, sum(each.values for each in found), gradients)
    return inquiry.draws()


def joined(shards):
    """One shard for several: what they hold of a group are groups of their own in it.

    Its likelihood is the product of theirs, and it takes less time than they do.
    """
    arrays = {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}
    n_codes = arrays["group"].max() + 1
    arrays["group"] += n_codes * np.repeat(range(len(shards)), [len(s["y"]) for s in shards])
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def ranks(design, seed, control=False, join=False):
    """Ranks (d + q,) of all parameters and of the coefficients of one group, from 0.

    With `join`, shards are joined into one.
    """
    rng = np.random.default_rng([seed, design.q])
    x, local, shards = simulated(design, rng, torn=control)
    shards = [joined(shards)] if join else shards
    draws = posterior_draws(design.model, shards, design.n_draws, seed)
    some = draws[np.linspace(0, len(draws) - 1, design.n_ranks).astype(int)]
    group = np.array([0])
    _, of_group = design.model.local_draws(
        some, shards[0], group, lambda level, codes, n: rng.random((len(some), 1, n))
    )["g"]
    return np.concatenate([(some < x).sum(axis=0), (of_group[:, 0] < local[0]).sum(axis=0)])


def p_values(found):
    """Of a chi-squared test that the ranks (n_sets, n_parameters) of each are uniform."""
    width = (N_RANKS + 1) // N_BINS
    counts = [np.bincount(column // width, minlength=N_BINS) for column in found.T]
    return np.array([chisquare(count).pvalue for count in counts])
