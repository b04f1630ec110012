"""What warm-up finds out about a target before it draws: its mode, its moments, other modes."""

from typing import NamedTuple

from quorate.models.subposterior import Target
from quorate.numerics.streams import ChainStream
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit, laplace_fit
from quorate.samplers.modes import other_modes
from quorate.samplers.protocol import State
from quorate.samplers.refinement import refined


class Survey(NamedTuple):
    """The Laplace fit, and what states keep of all else."""

    fit: LaplaceFit
    known: State


def surveyed(target: Target, stream: ChainStream) -> Survey:
    """Of a target that has a mode, or `ImproperError` is raised."""
    fit = laplace_fit(target)
    return Survey(fit, {**refined(target, Base.around(fit), stream), **other_modes(target, fit)})
