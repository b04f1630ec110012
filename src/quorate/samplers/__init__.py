"""Samplers: how a worker draws from one subposterior.

Each has a file of its own and implements `quorate.samplers.protocol.Sampler`: warm-up returns the
state of a chain, and a block of draws is a pure function of the state, the target and the chain's
random numbers. Warm-up's searches and fits live here too. Nothing here may know of other shards,
workers or messages.
"""

from collections.abc import Callable
from typing import cast

import numpy as np

from quorate._registry import Registry
from quorate.errors import require
from quorate.merging.fit import Fit
from quorate.samplers.auto import AutoSampler
from quorate.samplers.ellipse import EllipseSampler
from quorate.samplers.exact import ExactSampler
from quorate.samplers.hmc import HmcSampler
from quorate.samplers.nuts import NutsSampler
from quorate.samplers.own import Draws, OwnSampler
from quorate.samplers.protocol import Sampler, State
from quorate.samplers.random_walk import RandomWalkSampler

SAMPLERS: Registry[Callable[..., Sampler]] = Registry(
    "sampler",
    "quorate.samplers",
    {
        "auto": AutoSampler,
        "ellipse": EllipseSampler,
        "nuts": NutsSampler,
        "hmc": HmcSampler,
        "random_walk": RandomWalkSampler,
        "exact": ExactSampler,
    },
)
_PARTS = ("name", "determinism", "warm_up", "draw")


def make_sampler(sampler: str | Draws | Sampler = "auto", thin: int = 1) -> Sampler:
    """A sampler by name or as it is, or a user's function that yields draws.

    Parameters
    ----------
    sampler
        The name of one of `SAMPLERS`; a function that yields draws, see
        `quorate.samplers.own.OwnSampler`; or a `quorate.samplers.protocol.Sampler`.
    thin
        How many steps make a draw. An object thins by itself.
    """
    if isinstance(sampler, str):
        return SAMPLERS[sampler](thin=thin)
    if all(hasattr(sampler, part) for part in _PARTS):
        require(thin == 1, f"Give thin={thin} to the sampler itself, not beside it.")
        return cast(Sampler, sampler)
    require(
        callable(sampler),
        f"{sampler!r} is no sampler. Give a name, a function that yields draws, or an object with "
        f"{', '.join(_PARTS)}.",
    )
    return OwnSampler(cast(Draws, sampler), thin)


def fit_of(state: State) -> Fit | None:
    """The Gaussian fit that warm-up found; None if the sampler keeps none.

    If there was no mode, samplers move around N(start, I), which says nothing about the target.
    Then the masses that `nuts` has adapted are the fit, if it has.
    """
    if "lower" not in state:
        return None
    lower = state.get("fit_lower", state["lower"])
    if "fit_mean" in state:
        noise, worth = float(state.get("fit_noise", 1.0)), float(state["fit_worth"])
        return Fit(state["fit_mean"], lower @ lower.T, noise, worth)
    if not state.get("has_mode", True):
        masses = state.get("inverse_masses", np.ones(len(lower)))
        return None if (masses == 1).all() else Fit(state["mean"], np.diag(masses))
    return Fit(state["mean"], lower @ lower.T)
