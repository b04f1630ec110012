"""The Gaussian fit of one shard by passes over it alone, where Newton's method does not converge.

A Laplace prior has kinks. Newton's method stalls at them, because the slope jumps there and the
curvature says nothing about it. Passes average slope and curvature over the fit, which smooths
kinks. So the worker that surveys a shard makes some passes over its own rows.
"""

import numpy as np

from quorate.errors import BadInputError, ImproperError
from quorate.models.subposterior import NONE, Target, densities, densities_and_gradients
from quorate.numerics.streams import Streams
from quorate.passes.centring import Centring, n_points, recentred, spread
from quorate.samplers.base import Base
from quorate.samplers.laplace import LaplaceFit, climbed

_MOST = 20  # passes
_FLAT = 8  # passes in a row with a flat direction after which the shard counts as improper


def fit_of_shard(target: Target) -> Base | None:
    """The fit, a function of the shard alone; None if passes do not lead to one."""
    try:
        near, scales = climbed(target)
    except (ImproperError, BadInputError):
        return None
    fit, streams = Centring(Base.around(LaplaceFit(near, np.diag(scales)))), Streams(0)
    n = n_points(target.dim, with_gradient=target.has_gradient)
    evaluated = densities_and_gradients if target.has_gradient else densities
    while not fit.stands:
        if fit.n_passes >= _MOST or fit.n_flat >= _FLAT:
            return None
        z = spread(streams, fit.n_passes, n, target.dim)
        values, gradients, _ = evaluated(target, fit.base.points(z))
        fit = recentred(fit, z, np.where(values > NONE, values, -np.inf), gradients)
    return fit.base
