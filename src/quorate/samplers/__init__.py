"""The samplers: how a worker draws from one subposterior. One file each.

All fill in `quorate.sampler.Sampler`: warm-up gives the state of a chain, and each block of draws
is a pure function of the state, the target and the chain's random numbers.
"""

from quorate.errors import require
from quorate.sampler import Sampler
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
