"""The samplers: how a worker draws from one subposterior. One file each.

All fill in `quorate.sampler.Sampler`: warm-up gives the state of a chain, and each block of draws
is a pure function of the state, the target and the chain's random numbers.
"""

from typing import cast

from quorate.errors import require
from quorate.sampler import Sampler
from quorate.samplers.auto import AutoSampler
from quorate.samplers.ellipse import EllipseSampler
from quorate.samplers.exact import ExactSampler
from quorate.samplers.hmc import HmcSampler
from quorate.samplers.nuts import NutsSampler
from quorate.samplers.own import Draws, OwnSampler
from quorate.samplers.random_walk import RandomWalkSampler

SAMPLERS = ("auto", "ellipse", "nuts", "hmc", "random_walk", "exact")


def make_sampler(sampler: str | Draws | Sampler = "auto", thin: int = 1) -> Sampler:
    """A sampler that keeps every `thin`-th step.

    Parameters
    ----------
    sampler
        The name of one of `SAMPLERS`; a function that yields draws, see
        `quorate.samplers.own.OwnSampler`; or a `quorate.sampler.Sampler`, which thins by itself.
    """
    if isinstance(sampler, str):
        return _named(sampler, thin)
    if all(hasattr(sampler, part) for part in ("name", "determinism", "warm_up", "draw")):
        require(thin == 1, "thin", thin, "let the sampler itself leave draws out")
        return cast(Sampler, sampler)
    way_out = "give a name, a function that yields draws, or an object with warm_up and draw"
    require(callable(sampler), "sampler", sampler, way_out)
    return OwnSampler(cast(Draws, sampler), thin)


def _named(name: str, thin: int) -> Sampler:
    makers = {
        "auto": AutoSampler,
        "ellipse": EllipseSampler,
        "nuts": NutsSampler,
        "hmc": HmcSampler,
        "random_walk": RandomWalkSampler,
        "exact": ExactSampler,
    }
    require(name in makers, "sampler", name, f"choose one of {', '.join(SAMPLERS)}")
    sampler: Sampler = makers[name](thin=thin)
    return sampler
