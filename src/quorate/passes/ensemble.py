"""An ensemble of chains in step: elliptical slice sampling, one point of every chain in each pass.

Each chain is the sampler of `quorate.samplers.ellipse`, with a Student-t base at the fit of the
posterior. In a pass every chain asks for the log posterior at one point. A chain that accepts its
point begins its next step at once, so no evaluation is wasted. The chains are exact for any base; a
good base makes nearly every first proposal acceptable.

The numbers of a step are found by chain and step. So draws depend on the values alone, not on when
they came or from whom.
"""

from math import pi

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.numerics.streams import Streams
from quorate.passes.kept import InStep, Kept
from quorate.passes.numbers import DEGREES, StepNumbers
from quorate.samplers.base import Base, snapped

_NARROW = 1e-12  # width of a bracket that holds only the current point
_AHEAD = 5  # draws that a chain may be ahead of the slowest
_MANY = 64  # chains; more of them are there to fill a device
_FAR_AHEAD = 64  # draws that one of many chains may be ahead, so that passes stay full


def log_base(z: Array) -> Array:
    """Log density of the base at z (n, d), in units of the fit and up to a constant: (n,)."""
    return _log_base(_squares(z), z.shape[-1])


def _squares(z: Array) -> Array:
    return np.asarray(np.add.reduce(z * z, axis=-1))


def _log_base(squares: Array, dim: int) -> Array:
    """Log density of the base where z² is `squares`."""
    return np.asarray(-(DEGREES + dim) / 2 * np.log1p(squares / DEGREES))


class Ensemble(InStep):
    """Chains in step.

    Attributes
    ----------
    n_evaluations
        Points asked for so far.

    Parameters
    ----------
    base
        Location and scale of the base.
    z, values
        Where the chains start, in units of the base, and the log posterior there.
    n_settling
        Steps of each chain that are dropped at the beginning.
    n_draws
        Draws of each chain.
    thin
        Steps for each draw.
    lane
        Number of this ensemble in the run; ensembles share no random number.
    """

    with_gradient = False
    _arrays = (
        "_z", "_squares", "_values", "_step", "_other", "_height", "_angle", "_low", "_high",
        "_n_tries", "_proposal",
    )  # fmt: skip
    _counts = ("n_evaluations",)

    def __init__(
        self,
        base: Base,
        z: Array,
        values: Array,
        *,
        n_settling: int,
        n_draws: int,
        thin: int = 1,
        streams: Streams,
        lane: int,
    ) -> None:
        n_chains, dim = z.shape
        self._thin = thin
        self._base = base
        self._z = snapped(z)
        self._squares = _squares(self._z)
        self._values = values.copy()
        self._n_settling = n_settling
        self._n_steps = n_settling + thin * n_draws
        self._numbers = StepNumbers(streams, lane, n_chains, dim)
        self._step = np.zeros(n_chains, dtype=np.int64)
        self._fewest_steps = 0
        self._other = np.empty((n_chains, dim))
        self._height, self._angle = np.empty(n_chains), np.empty(n_chains)
        self._low, self._high = np.empty(n_chains), np.empty(n_chains)
        self._n_tries = np.zeros(n_chains, dtype=np.int64)
        self._proposal = np.empty((n_chains, dim))
        self._kept = Kept(base, n_chains, n_draws)
        self.n_evaluations = 0
        every = np.arange(n_chains)
        self._begin(every)
        self._propose(every)
        self._asking = self._choose()

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self._z)

    @property
    def n_complete(self) -> int:
        """Draws that every chain has made."""
        return max(self._fewest_steps - self._n_settling, 0) // self._thin

    @property
    def steps(self) -> tuple[int, int]:
        """Steps that all chains have made together, and those they will make."""
        return int(np.minimum(self._step, self._n_steps).sum()), self._n_steps * self.n_chains

    @property
    def is_done(self) -> bool:
        """Whether every chain has made all its draws."""
        return self._fewest_steps >= self._n_steps

    def extend(self, n_draws: int) -> None:
        """Make so many draws of each chain; fewer than before is no change."""
        n_more = self._n_settling + self._thin * n_draws - self._n_steps
        if n_more > 0:
            at_end = np.flatnonzero(self._step >= self._n_steps)
            self._n_steps += n_more
            self._begin(at_end)
            self._propose(at_end)
            self._asking = self._choose()

    def points(self) -> Array:
        """Where chains that are not done ask for the log posterior, (n, d)."""
        return self._base.points(self._proposal[self._asking])

    def take(self, values: Array, gradients: Array | None) -> None:
        """Take the log posterior at all `points`; -inf where there is no density."""
        asking = self._asking
        self.n_evaluations += len(asking)
        z = self._proposal[asking]
        squares = _squares(z)
        with np.errstate(invalid="ignore"):
            is_above = values - _log_base(squares, z.shape[1]) > self._height[asking]
        moved = asking[is_above]
        self._z[moved], self._squares[moved] = z[is_above], squares[is_above]
        self._values[moved] = values[is_above]
        stayed = self._shrink(asking[~is_above])
        self._finish(np.sort(np.concatenate([moved, stayed])) if len(stayed) else moved)
        self._propose(asking[self._step[asking] < self._n_steps])
        self._asking = self._choose()

    def _choose(self) -> IntArray:
        """Chains that go on. Those far ahead wait: a run that ends early cannot use their draws."""
        end = min(self._n_steps, self._fewest_steps + self._most_ahead)
        return (self._step < end).nonzero()[0]

    @property
    def _most_ahead(self) -> int:
        """Steps that a chain may be ahead of the slowest."""
        return (_AHEAD if self.n_chains <= _MANY else _FAR_AHEAD) * self._thin

    @property
    def _n_places(self) -> int:
        return max(int(self._step.max()) - self._n_settling, 0) // self._thin

    def _is_sound(self) -> bool:
        fewest, most = int(self._step.min()), int(self._step.max())
        return fewest >= 0 and most <= min(self._n_steps, fewest + self._most_ahead)

    def _go_on(self) -> None:
        self._fewest_steps = int(self._step.min())
        self._numbers.go_to(self._fewest_steps)
        under_way = (self._step < self._n_steps).nonzero()[0]
        if len(under_way):
            self._numbers.of(under_way, self._step[under_way])  # for further angles of these steps
        self._asking = self._choose()

    def _begin(self, chains: IntArray) -> None:
        """Begin a step: a scale, an ellipse, a height and a first angle."""
        if not len(chains):
            return
        numbers, squares = self._numbers.of(chains, self._step[chains]), self._squares[chains]
        scales = np.sqrt((DEGREES + squares) / (2 * numbers.gammas))
        self._other[chains] = snapped(scales[:, None] * numbers.normals)
        log_base = _log_base(squares, self._z.shape[1])
        self._height[chains] = self._values[chains] - log_base + numbers.heights
        self._n_tries[chains] = 0
        angles = 2 * pi * numbers.angles
        self._angle[chains], self._high[chains] = angles, angles
        self._low[chains] = angles - 2 * pi

    def _propose(self, chains: IntArray) -> None:
        angles = self._angle[chains, None]
        moved, other = self._z[chains], self._other[chains]
        moved *= np.cos(angles)
        other *= np.sin(angles)
        moved += other
        self._proposal[chains] = snapped(moved)

    def _shrink(self, chains: IntArray) -> IntArray:
        """Shrink the brackets of chains whose point was refused; returns those that stay put."""
        angles = self._angle[chains]
        is_low = angles < 0
        low = np.where(is_low, angles, self._low[chains])
        high = np.where(is_low, self._high[chains], angles)
        tries = self._n_tries[chains] + 1
        self._low[chains], self._high[chains], self._n_tries[chains] = low, high, tries
        width = high - low
        shares = self._numbers.angles(chains, self._step[chains], tries)
        self._angle[chains] = low + width * shares
        return chains[width < _NARROW]

    def _finish(self, chains: IntArray) -> None:
        """Keep the draws of chains that have ended a step, and begin their next steps."""
        steps = self._step[chains] + 1
        n_done = steps - self._n_settling
        kept: NDArray[np.bool_] = (n_done > 0) & (n_done % self._thin == 0)
        ready = chains[kept]
        places = n_done[kept] // self._thin - 1
        self._kept.put(ready, places, self._z[ready], self._values[ready])
        self._step[chains] = steps
        self._fewest_steps = int(np.minimum.reduce(self._step))
        self._numbers.forget_before(self._fewest_steps)
        self._begin(chains[steps < self._n_steps])
