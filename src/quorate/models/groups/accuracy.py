"""How many nodes an integral needs, measured on the shard itself.

Every shard chooses for itself, by a rule that depends on nothing but the model and its rows. Of a
regression, the holder that surveys a shard applies the rule and tells the others what it found; of
a program, every holder applies it. The error is the difference to
a finer quadrature, at points four standard deviations from a rough mode, and further out where the
tails of the shard's posterior are heavier than those of a Gaussian. A shard's posterior is wider
than that of all data, so draws rarely go further.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError

FEWEST_FOR_MOMENTS = 5  # nodes in each dimension
_WANTED = 0.1  # log units, above which more nodes are tried
_TOLERATED = 0.2  # log units, with the most nodes
_STANDARD_DEVIATIONS = 4.0
_FINER = 3  # rungs of the ladder from an effort to the one that it is compared with
_MOST_COORDINATES = 12
_LEAST_FALL, _LARGEST_FALL = 6.0, 12.0  # of the log density, to the points: 8 for a Gaussian
_MOST_MOVES = 10  # of points, until it has fallen that much


class Effort(NamedTuple):
    """How an integral is computed: nodes in each dimension, and Newton steps to place them."""

    n_nodes: int
    n_steps: int


_LADDER = {
    1: (
        *(Effort(3, 1), Effort(4, 1), Effort(5, 1), Effort(7, 1), Effort(9, 2), Effort(13, 2)),
        *(Effort(21, 3), Effort(31, 10), Effort(45, 13), Effort(65, 16), Effort(95, 18)),
        Effort(141, 20),
    ),
    2: (
        *(Effort(3, 1), Effort(4, 1), Effort(5, 1), Effort(7, 1), Effort(9, 2), Effort(13, 3)),
        *(Effort(19, 4), Effort(27, 6)),
    ),
    3: (Effort(3, 1), Effort(4, 1), Effort(5, 1), Effort(7, 2), Effort(9, 3), Effort(13, 4)),
}
_FINEST = {1: Effort(201, 30), 2: Effort(37, 10), 3: Effort(19, 8)}
Values = Callable[[Array, Effort], Array]  # log density at points (n, d), shape (n,)


def finest(dim: int) -> Effort:
    """The effort that others are compared with."""
    return _FINEST[dim]


def is_offered(effort: Effort, dim: int) -> bool:
    """Whether an effort is one of those that `measured` chooses from."""
    return effort in _LADDER[dim]


def for_moments(effort: Effort) -> Effort:
    """An effort for moments of parameters, which need more nodes than their integral."""
    return effort._replace(n_nodes=max(effort.n_nodes, FEWEST_FOR_MOMENTS))


class Measured(NamedTuple):
    """The least effort with a small error; the largest one, if there is none."""

    effort: Effort
    error: float  # log units

    def tolerated(self) -> Effort:
        """The effort, if its error is tolerable.

        Raises
        ------
        BadInputError
            If it is not.
        """
        if self.error <= _TOLERATED:
            return self.effort
        if np.isnan(self.error):
            raise BadInputError(
                "The integral over the parameters of groups is not a number near the mode. Check "
                "the columns for extreme values, and the priors."
            )
        raise BadInputError(
            f"The integral over the parameters of groups is off by {self.error:.2f} log units with "
            f"{self.effort.n_nodes} nodes in each dimension; {_TOLERATED} is tolerated. The "
            "posterior of these parameters is too far from a normal distribution: use more "
            "informative priors for their standard deviations, or fewer varying coefficients."
        )


def measured(
    values: Values,
    mode: Array,
    cov: Array,
    dim: int,
    fewest: int = FEWEST_FOR_MOMENTS,
    *,
    has_tails: bool = True,
) -> Measured:
    """The effort that is needed around `mode` (d,), where `cov` is (d, d), and its error.

    It has at least `fewest` nodes in each dimension. `has_tails` says that points may lie further
    out than the covariance says.
    """
    error, ladder = np.inf, [effort for effort in _LADDER[dim] if effort.n_nodes >= fewest]
    for i, effort in enumerate(ladder):
        n_nodes = ladder[i + _FINER].n_nodes if i + _FINER < len(ladder) else finest(dim).n_nodes
        finer = Effort(n_nodes, finest(dim).n_steps)
        # Too few nodes would look like a density that falls steeply: points would stay too near.
        points = _around(values, mode, cov, finer, has_tails)
        errors = values(points, effort) - values(points, finer)
        error = float(np.abs(errors[1:] - errors[0]).max())
        if error <= _WANTED:
            break
    return Measured(effort, error)


def _around(values: Values, mode: Array, cov: Array, effort: Effort, has_tails: bool) -> Array:
    """The mode, and points on both sides of it: each moves one coordinate, and others with it."""
    which = _coordinates(len(mode))
    sds = np.sqrt(np.diag(cov))[which]
    steps = _STANDARD_DEVIATIONS * cov[which] / sds[:, None]
    steps = np.concatenate([steps, -steps])
    top = values(mode[None], effort)[0]
    may_grow = np.full(len(steps), has_tails)
    for _ in range(_MOST_MOVES):
        falls = top - values(mode + steps, effort)
        too_far = ~(falls <= _LARGEST_FALL)
        may_grow &= ~too_far
        too_near = (falls < _LEAST_FALL) & may_grow
        if not (too_far | too_near).any():
            break
        steps[too_far] *= 0.6
        steps[too_near] *= 1.2
    return np.asarray(np.concatenate([mode[None], mode + steps]))


def _coordinates(dim: int) -> IntArray:
    """Coordinates to move: all, or some and the last, which are standard deviations."""
    if dim <= _MOST_COORDINATES:
        return np.arange(dim)
    spaced = np.linspace(0, dim - 1, _MOST_COORDINATES // 2).astype(np.int64)
    return np.union1d(spaced, np.arange(dim - _MOST_COORDINATES // 2, dim))
