"""What to ask of the posterior next: a pure function of the answers so far.

First a Gaussian is fitted to the posterior (`centring`). Then points of a Student-t around the fit
are weighed: they give the evidence, and the chains their starts. Then two ensembles of chains draw
in turn, so that workers have the points of one while the last answer for the other is awaited.

The same answers always lead to the same questions and draws. It does not matter who answers, or
when.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import gammaln

from quorate._types import Array
from quorate.errors import BadInputError, ImproperError
from quorate.numerics.importance import Weighted, student_points
from quorate.numerics.named_arrays import AnyArray, flattened, part
from quorate.numerics.streams import Purpose, Streams
from quorate.passes.centring import FULL, Centring, n_points, recentred, spread
from quorate.passes.ensemble import Ensemble, log_base
from quorate.passes.first_fit import ON_A_CORE, Before, fits_of, points_at_once, product_of
from quorate.passes.hmc import HmcEnsemble
from quorate.passes.kept import State
from quorate.passes.numbers import DEGREES
from quorate.samplers.base import Base

Phase = Literal["fit", "weigh", "draw", "check"]
_LANES = 2  # ensembles
_SHORTEST = 8  # draws of a chain, if there are enough for that
_CLEARLY = 20.0  # log units by which the start of a model must be better than fits of shards
_WEIGHED = 512  # points, at least, whose weights start the chains and give the evidence
# Slices, by the effective number of points relative to that of a Gaussian posterior: least share,
# steps to drop, steps for each draw
_SLICES = ((0.85, 2, 1), (0.5, 8, 2), (0.2, 16, 4), (0.0, 32, 4))
_HARD = 0.85  # below it, chains with gradients are better than slices
_TUNING = 48  # trajectories to drop


class Pass(NamedTuple):
    """Points at which the log posterior is asked for: question `number` of a lane.

    Gradients are asked for too if there are `scales`, the units of the coordinates for them.
    """

    lane: int
    number: int
    phase: Phase
    points: Array
    scales: Array | None = None


class Evidence(NamedTuple):
    """An estimate of the log of the marginal likelihood, with its standard error."""

    value: float
    error: float


class Inquiry:
    """The questions of one run, and the draws that their answers make.

    Attributes
    ----------
    open
        Questions that are not answered yet, by lane.
    n_passes
        Questions answered so far.

    Parameters
    ----------
    start
        Where the model says a search may start, (d,).
    names
        Of the coordinates.
    n_draws
        Number of draws wanted.
    has_gradient
        Whether the model has gradients.
    before
        The fit of an earlier run, if rows were added to it.
    """

    def __init__(
        self,
        start: Array,
        names: Sequence[str],
        n_draws: int,
        seed: int,
        *,
        has_gradient: bool,
        before: Before | None = None,
    ) -> None:
        self.dim = dim = len(start)
        self._start, self._names, self._before = start, names, before
        self.n_draws = self._first_n_draws = n_draws
        self.open: dict[int, Pass] = {}
        self.n_passes = 0
        self.evidence: Evidence | None = None
        self.fit: Centring | None = None
        self.ensembles: list[Ensemble | HmcEnsemble] = []
        self._streams = Streams(seed)
        self._has_gradient = has_gradient
        self._z = np.empty((0, dim))  # of the points of the open question, in units of the fit
        self._n_asked = [0] * _LANES
        self._at_once = ON_A_CORE
        self._is_doubtful = False

    # ------------------------------------------------------------ questions and answers

    def begin(self, surveys: Mapping[int, Mapping[str, Array]]) -> None:
        """Ask the first question: around the product of the fits that surveys of shards found.

        Where no shard has a fit of its own, the first points lie around the start of the model.
        """
        self._at_once = points_at_once(surveys.values()) if surveys else self._at_once
        fits, n_shards = fits_of(surveys), len(surveys)
        if self._before is not None:
            fits = self._before.fits(surveys)
            n_shards = len(fits)
        self._is_doubtful = bool(fits)
        base = product_of(fits, n_shards) if fits else Base.standard(self._start)
        self.fit = Centring(base)
        self._ask_to_fit(self.fit)

    def take(self, lane: int, values: Array, gradients: Array | None = None) -> None:
        """Take the answer to the open question of a lane.

        `values` (n,) are log posteriors, -inf where there is no density, `gradients` (n, d).
        """
        asked = self.open.pop(lane)
        self.n_passes += 1
        if asked.phase == "fit":
            self._take_fit(values, gradients)
        elif asked.phase == "weigh":
            self._take_weights(values)
        else:
            self.ensembles[lane].take(values, gradients)
            self._ask_ensemble(lane)

    def extend(self, n_draws: int) -> None:
        """Ask for more draws in all, of the same chains; fewer than before is no change."""
        if n_draws <= self.n_draws:
            return
        self.n_draws = n_draws
        for lane, ensemble in enumerate(self.ensembles):
            ensemble.extend(-(-n_draws // self.n_chains))
            if lane in self.open:
                self.open[lane] = self.open[lane]._replace(points=ensemble.points())
            else:
                self._ask_ensemble(lane)

    def _ask(self, lane: int, phase: Phase, points: Array, *, with_gradient: bool = False) -> None:
        scales = self.fit.base.scales if with_gradient and self.fit is not None else None
        self.open[lane] = Pass(lane, self._n_asked[lane], phase, points, scales)
        self._n_asked[lane] += 1

    def _ask_to_fit(self, fit: Centring) -> None:
        n = n_points(self.dim, with_gradient=self._has_gradient)
        self._z = spread(self._streams, fit.n_passes, n, self.dim)
        points = fit.base.points(self._z)
        if self._is_doubtful:  # one of the points is the start of the model
            self._z, points[-1] = self._z[:-1], self._start
        self._ask(0, "fit", points, with_gradient=self._has_gradient)

    def _take_fit(self, values: Array, gradients: Array | None) -> None:
        assert self.fit is not None
        if self._is_doubtful:
            self._is_doubtful = False
            if values[-1] > np.median(values[:-1]) + self.dim + _CLEARLY:
                self._before = None
                self.begin({})  # fits of shards that lead nowhere, as to a density without bounds
                return
            values, gradients = values[:-1], None if gradients is None else gradients[:-1]
        self.fit = recentred(self.fit, self._z, values, gradients)
        if self.fit.is_lost:
            raise BadInputError(
                f"The posterior has no density at most points around {_shown(self.fit.base.mean)}, "
                "however near. Check the model, and give it a start where the density is not 0."
            )
        if not self.fit.stands:
            self._ask_to_fit(self.fit)
            return
        if self.fit.is_improper:
            what = "the log posterior hardly falls"
            if not self._has_gradient and self.dim > FULL:
                what = f"{self.dim} coordinates have no fit without gradients: {what}"
            raise ImproperError(what, self._along(self.fit.flat), None)
        n = max(_WEIGHED, *self.ensemble_sizes(self._first_n_draws))
        uniforms = self._streams.uniforms(Purpose.WEIGHED, [(0, 0)], 0, n, self.dim + 1)[0]
        self._z = student_points(uniforms[:, :-1], uniforms[:, -1], DEGREES)
        self._ask(0, "weigh", self.fit.base.points(self._z))

    def _along(self, directions: Array | None) -> list[str]:
        """Names of the coordinates that have most of a part in directions (n, d)."""
        assert self.fit is not None
        assert directions is not None
        sizes = np.abs(directions).max(axis=0) / np.sqrt(np.sum(self.fit.base.lower**2, axis=1))
        return [self._names[i] for i in np.argsort(-sizes)[:3] if sizes[i] > sizes.max() / 2]

    def _take_weights(self, values: Array) -> None:
        """Weigh the points, and start the chains at some of them."""
        assert self.fit is not None
        base, ratios = self.fit.base, values - log_base(self._z)
        if not np.isfinite(ratios).any():
            raise BadInputError(
                "The posterior has no density at any of the points where it was looked for. "
                "Check the model, and give it a start where the density is not 0."
            )
        self.evidence = _evidence(ratios, base)
        starting = Weighted.of(self._z, _cut(ratios))
        share = starting.ess / _ess_of_gaussian(self._z)
        n_settling, thin = next(steps for least, *steps in _SLICES if share >= least)
        sizes = self.ensemble_sizes(self._first_n_draws)
        starts = np.split(starting.resampled(self._streams, sum(sizes)), np.cumsum(sizes)[:-1])
        n_draws = -(-self.n_draws // sum(sizes))
        for lane, which in enumerate(starts):
            self.ensembles.append(
                HmcEnsemble(
                    base,
                    self._z[which],
                    n_settling=_TUNING,
                    n_draws=n_draws,
                    streams=self._streams,
                    lane=lane,
                )
                if self._has_gradient and share < _HARD
                else Ensemble(
                    base,
                    self._z[which],
                    values[which],
                    n_settling=n_settling,
                    n_draws=n_draws,
                    thin=thin,
                    streams=self._streams,
                    lane=lane,
                )
            )
            self._ask_ensemble(lane)

    def _ask_ensemble(self, lane: int) -> None:
        ensemble = self.ensembles[lane]
        if not ensemble.is_done:
            self._ask(lane, "draw", ensemble.points(), with_gradient=ensemble.with_gradient)

    def ensemble_sizes(self, n_draws: int) -> list[int]:
        """Chains of each ensemble of a run that begins with so many draws to make.

        Their number divides that of the draws if it can.
        """
        most = max(_LANES, min(_LANES * self._at_once, n_draws // _SHORTEST))
        fitting = [n for n in range(most, most // 2, -1) if n_draws % n == 0]
        n_chains = fitting[0] if fitting else most
        return [n_chains - n_chains // _LANES, n_chains // _LANES]

    # ------------------------------------------------------------ state

    def state(self) -> dict[str, AnyArray]:
        """The ensembles, and how many questions of each lane are answered: views, no copies."""
        n_answered = [n - (lane in self.open) for lane, n in enumerate(self._n_asked)]
        ensembles = {lane: each.state() for lane, each in enumerate(self.ensembles)}
        return flattened({"n_answered": np.array(n_answered), **ensembles})

    def is_of(self, state: State) -> bool:
        """Whether a state is of these ensembles, which have just started."""
        of_lanes = ((part(state, lane), each) for lane, each in enumerate(self.ensembles))
        return all(each.is_of(found) for found, each in of_lanes)

    def restore(self, state: State) -> None:
        """Go on from a state that is of these ensembles; ValueError if it makes no sense."""
        for lane, ensemble in enumerate(self.ensembles):
            ensemble.restore(part(state, lane))
            self._n_asked[lane] = int(state["n_answered"][lane])
            self.open.pop(lane, None)
            self._ask_ensemble(lane)
        self.n_passes = sum(self._n_asked) - len(self.open)

    # ------------------------------------------------------------ draws

    @property
    def phase(self) -> str:
        """What is going on: start, fit, weigh, draw or done."""
        if self.fit is None:
            return "start"
        return next((asked.phase for asked in self.open.values()), "done")

    @property
    def n_chains(self) -> int:
        """Chains of both ensembles; 0 before they start."""
        return sum(ensemble.n_chains for ensemble in self.ensembles)

    @property
    def n_steps(self) -> int:
        """Draws that every chain has made."""
        return min((ensemble.n_complete for ensemble in self.ensembles), default=0)

    @property
    def n_complete(self) -> int:
        """Draws that are there, up to those that were asked for."""
        return min(self.n_steps * self.n_chains, self.n_draws)

    def draws(self) -> Array:
        """Draws in order: the first of all chains, then the second of all, …; (n_complete, d)."""
        if not self.ensembles:
            return np.empty((0, self.dim))
        steps, first = np.empty((self.n_steps, self.n_chains, self.dim)), 0
        for ensemble in self.ensembles:
            last = first + ensemble.n_chains
            steps[:, first:last] = np.swapaxes(ensemble.draws, 0, 1)[: self.n_steps]
            first = last
        return steps.reshape(-1, self.dim)[: self.n_complete]


def _shown(point: Array) -> str:
    return "(" + ", ".join(f"{x:.4g}" for x in point[:6]) + (", …)" if len(point) > 6 else ")")


def _cut(ratios: Array) -> Array:
    """Log weights without those so large that all chains would start at one point."""
    top = ratios.max()
    mean = np.log(np.mean(np.exp(ratios - top))) + top
    return np.asarray(np.minimum(ratios, mean + np.log(len(ratios)) / 2))


def _ess_of_gaussian(z: Array) -> float:
    """Effective number of the points if the posterior were the Gaussian of the fit."""
    return Weighted.of(z, -0.5 * np.sum(z * z, axis=1) - log_base(z)).ess


def _evidence(ratios: Array, base: Base) -> Evidence:
    """Log evidence from the ratios of posterior to base, at points of the base."""
    dim = base.dim
    height = gammaln((DEGREES + dim) / 2) - gammaln(DEGREES / 2) - dim / 2 * np.log(DEGREES * np.pi)
    top = ratios.max()
    weights = np.exp(ratios - top)
    mean = weights.mean()
    value = top + np.log(mean) - height + np.log(np.diag(base.lower)).sum()
    return Evidence(float(value), float(weights.std() / mean / np.sqrt(len(ratios))))
