"""The samplers: how a worker draws from one subposterior. One file each.

All fill in `quorate.sampler.Sampler`: warm-up gives the state of a chain, and each block of draws
is a pure function of the state, the target and the chain's random numbers.
"""

import numpy as np

from quorate.errors import require
from quorate.fit import Fit
from quorate.sampler import Sampler, State
from quorate.samplers.auto import AutoSampler
from quorate.samplers.ellipse import EllipseSampler
from quorate.samplers.hmc import HmcSampler
from quorate.samplers.nuts import NutsSampler
from quorate.samplers.random_walk import RandomWalkSampler

SAMPLERS = ("auto", "ellipse", "nuts", "hmc", "random_walk")


def make_sampler(name: str | Sampler = "auto", thin: int = 1) -> Sampler:
    """A sampler by its name, one of `SAMPLERS`, that keeps every `thin`-th step.

    `quorate.samplers.exact.ExactSampler` has no place here: it needs the Gaussians it draws from.
    """
    if not isinstance(name, str):
        return name
    makers = {
        "auto": AutoSampler,
        "ellipse": EllipseSampler,
        "nuts": NutsSampler,
        "hmc": HmcSampler,
        "random_walk": RandomWalkSampler,
    }
    require(name in makers, "sampler", name, f"choose one of {', '.join(SAMPLERS)}")
    sampler: Sampler = makers[name](thin=thin)
    return sampler


def fit_of(state: State) -> Fit | None:
    """The Gaussian fit that a chain was warmed up with; None where its sampler keeps none.

    Where no mode was found, samplers move around N(start, I), which says nothing of the target; the
    masses that `nuts` has adapted since do.
    """
    if "lower" not in state:
        return None
    lower = state["lower"]
    may_lack_mode = "inverse_masses" in state or "scale" in state  # `ellipse` would have raised
    if may_lack_mode and np.array_equal(lower, np.eye(len(lower))):
        masses = state.get("inverse_masses", np.ones(len(lower)))
        return None if (masses == 1).all() else Fit(state["mean"], np.diag(masses))
    return Fit(state["mean"], lower @ lower.T)
