"""An ensemble of Hamiltonian chains in step, for posteriors that slices mix badly on.

In units of the fit the mass is the identity. All chains take the same number of leapfrog steps, one
in each pass, so they begin and end their trajectories together. The length of a step is tuned while
the chains settle, by the acceptance of all of them, and then fixed; each trajectory stretches it at
random, so that no chain runs in circles.
"""

from math import ceil, exp, pi

import numpy as np
from scipy.special import ndtri

from quorate._types import Array
from quorate.numerics.streams import Purpose, Streams
from quorate.passes.kept import InStep, Kept
from quorate.samplers.base import Base, snapped

_LENGTH = pi / 2  # of a trajectory: a quarter of a circle, after which a Gaussian has forgotten
_MOST_STEPS = 64
_ACCEPTED = 0.8  # share of trajectories to aim at
_RATE = 2.0  # how fast the step is tuned
_STRETCH = (0.8, 1.2)


class HmcEnsemble(InStep):
    """Chains in step; see `quorate.passes.ensemble.Ensemble` for what it offers.

    Parameters
    ----------
    base
        Location and scale.
    z
        Where the chains start, in units of the base.
    n_settling, n_draws
        Trajectories of each chain that are dropped, and kept.
    lane
        Number of this ensemble in the run.
    """

    with_gradient = True
    _arrays = ("_z", "_values", "_slopes", "_at", "_momentum", "_energy", "_length")
    _counts = ("_step", "_n_done", "_n_left", "n_evaluations")

    def __init__(
        self, base: Base, z: Array, *, n_settling: int, n_draws: int, streams: Streams, lane: int
    ) -> None:
        n_chains, dim = z.shape
        self._base, self._streams = base, streams
        self._chains = [(chain, lane) for chain in range(n_chains)]
        self._z = snapped(z)
        self._values, self._slopes = np.full(n_chains, -np.inf), np.zeros((n_chains, dim))
        self._n_settling, self._n_trajectories = n_settling, n_settling + n_draws
        self._step = dim**-0.25
        self._kept = Kept(base, n_chains, n_draws)
        self.n_evaluations = 0
        self._n_done = -1  # trajectories; the first pass is for the slopes where chains start
        self._at = self._z  # where the chains ask
        self._momentum = np.zeros((n_chains, dim))
        self._energy, self._length = np.zeros(n_chains), np.zeros(n_chains)
        self._n_left = 1  # leapfrog steps of this trajectory

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self._z)

    @property
    def n_complete(self) -> int:
        """Draws that every chain has made."""
        return max(self._n_done - self._n_settling, 0)

    @property
    def steps(self) -> tuple[int, int]:
        """Trajectories that all chains have made together, and those they will make."""
        return max(self._n_done, 0) * self.n_chains, self._n_trajectories * self.n_chains

    @property
    def is_done(self) -> bool:
        """Whether every chain has made all its draws."""
        return self._n_done >= self._n_trajectories

    def extend(self, n_draws: int) -> None:
        """Make so many draws of each chain; fewer than before is no change."""
        n_more = self._n_settling + n_draws - self._n_trajectories
        if n_more > 0:
            was_done = self.is_done
            self._n_trajectories += n_more
            if was_done:
                self._begin()

    def points(self) -> Array:
        """Where the chains ask for the log posterior and its gradient, (n_chains, d)."""
        return self._base.points(self._at)

    def take(self, values: Array, gradients: Array | None) -> None:
        """Take the log posterior, -inf where there is no density, and gradients at `points`."""
        assert gradients is not None
        self.n_evaluations += len(values)
        slopes = np.where(np.isfinite(values)[:, None], gradients @ self._base.lower, 0.0)
        if self._n_done < 0:
            self._values, self._slopes = values, slopes
            self._n_done = 0
            self._begin()
            return
        self._n_left -= 1
        half = 0.5 if self._n_left == 0 else 1.0
        self._momentum = self._momentum + half * self._length[:, None] * slopes
        if self._n_left:
            self._move()
        else:
            self._finish(values, slopes)

    @property
    def _n_places(self) -> int:
        return self.n_complete

    def _is_sound(self) -> bool:
        return -1 <= self._n_done <= self._n_trajectories and 0 <= self._n_left <= _MOST_STEPS

    def _go_on(self) -> None:
        """Nothing: the state is all there is."""

    def _begin(self) -> None:
        """Begin a trajectory of every chain."""
        dim = self._z.shape[1]
        numbers = self._streams.uniforms(
            Purpose.TRAJECTORIES, self._chains, self._n_done, 1, dim + 2
        )[:, 0]
        momentum = np.asarray(ndtri(numbers[:, :dim]))
        low, high = _STRETCH
        self._length = self._step * (low + (high - low) * numbers[:, dim])
        self._energy = self._values - 0.5 * np.sum(momentum**2, axis=1) + np.log(numbers[:, -1])
        self._momentum = momentum + 0.5 * self._length[:, None] * self._slopes
        self._n_left = min(max(ceil(_LENGTH / self._step), 1), _MOST_STEPS)
        self._at = self._z
        self._move()

    def _move(self) -> None:
        self._at = snapped(self._at + self._length[:, None] * self._momentum)

    def _finish(self, values: Array, slopes: Array) -> None:
        """Accept or refuse the ends of all trajectories, and begin the next ones."""
        with np.errstate(invalid="ignore", over="ignore"):  # a trajectory may diverge
            reached = values - 0.5 * np.sum(self._momentum**2, axis=1)
            accepted = reached > self._energy
        self._z = np.where(accepted[:, None], self._at, self._z)
        self._values = np.where(accepted, values, self._values)
        self._slopes = np.where(accepted[:, None], slopes, self._slopes)
        place = self._n_done - self._n_settling
        if place >= 0:
            every = np.arange(self.n_chains)
            self._kept.put(every, np.full(self.n_chains, place), self._z, self._values)
        else:
            rate = _RATE / (1 + self._n_done) ** 0.5
            self._step = min(self._step * exp(rate * (accepted.mean() - _ACCEPTED)), _LENGTH)
        self._n_done += 1
        if not self.is_done:
            self._begin()
