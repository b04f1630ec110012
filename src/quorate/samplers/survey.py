"""Survey of a target in warm-up: its mode, its moments and other modes."""

from typing import NamedTuple

from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit, laplace_fit
from quorate.samplers.modes import other_modes
from quorate.samplers.protocol import State
from quorate.samplers.refinement import refined


class Survey(NamedTuple):
    """The Laplace fit, and entries for the state of a chain."""

    fit: LaplaceFit
    known: State


def surveyed(target: Target, stream: ChainStream) -> Survey:
    """Survey of `target`. Raises `ImproperError` if it has no mode."""
    fit = laplace_fit(target)
    return Survey(fit, {**refined(target, Base.around(fit), stream), **other_modes(target, fit)})
