"""The verdict on an exact run: whether its chains have mixed, and whether they missed anything.

The chains draw from the posterior itself, so there is no merge to doubt. Three things can be wrong.
The chains have not forgotten where they began, as nested R-hat shows, or are too slow, as the ESS
shows. There is posterior mass where no chain has been: another mode. Or workers gave different
answers for the same shard.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from scipy.linalg import solve_triangular

from quorate._types import Array
from quorate.errors import SingularCovarianceError
from quorate.models.protocol import Model
from quorate.numerics.ess import ess_of_chains, in_chains, nested_rhat
from quorate.numerics.importance import Weighted
from quorate.numerics.moments import Moments
from quorate.trust.importance import smoothed
from quorate.trust.proposal import Proposal
from quorate.trust.shards import Estimate, compared, remarks_on
from quorate.trust.summaries import summaries, summaries_of_draws
from quorate.trust.verdict import (
    DO_NOT_TRUST,
    FEWEST,
    GOOD,
    K_HATS,
    USABLE,
    Reason,
    Verdict,
    Word,
    advice_on,
    badness,
    grade,
    of_moments,
)

_R_HATS = (1.05, 1.1)
_ERRORS = 3.0  # standard errors by which R-hat must exceed its limit
_ESS = (100.0, 50.0)  # least effective draws of a good and of a usable run
_SLOW = 0.15  # effective draws relative to draws, below which chains are slow
_FEW_OF_A_CHAIN = 2.5  # effective draws, with fewer of which slow chains are too short
_MISSED = (0.02, 0.1)  # share of the posterior mass where no chain has been
_AT_ONCE = 10_000  # draws that are looked at together: a copy of all takes as much memory
_OUTSIDE = 1.2  # times the distance of the farthest draw
_AGREE = "the chains have mixed, and no posterior mass was found where they have not been"
_LONGER = "draw more"
_MODES = "give the model a single mode, for example by ordering its components"


@dataclass(frozen=True, eq=False)
class ExactQuestion:
    """Draws of an exact run to judge.

    Parameters
    ----------
    draws
        Unconstrained, (n, d), from the chains in turn.
    n_chains
        Number of chains.
    other_modes
        Of each shard, modes besides its main one, (m, d).
    fits
        Of each shard, the mean and covariance that its survey found; None if it found none.
    disputes
        Workers that gave different answers for the same shard, or coded answers that contradict
        each other.
    variables, ess
        The draws by name, and the ESS of each coordinate, where they are known already.
    """

    model: Model
    draws: Array
    n_chains: int
    other_modes: Sequence[Array]
    fits: Sequence[Estimate | None]
    disputes: frozenset[tuple[int, ...]] = frozenset()
    variables: Mapping[str, Array] | None = None
    ess: Array | None = None

    @cached_property
    def _moments(self) -> Moments:
        parts = (self.draws[i : i + _AT_ONCE] for i in range(0, len(self.draws), _AT_ONCE))
        return reduce(Moments.merge, map(Moments.of, parts))

    def proposal(self) -> Proposal:
        """Where to evaluate the posterior: around the draws, more widely, and at other modes.

        Raises
        ------
        SingularCovarianceError
            There are too few draws.
        """
        if len(self.draws) <= self.model.dim + 1:
            raise SingularCovarianceError
        moments = self._moments
        cov = moments.covariance()
        n_shards = len(self.fits)
        places = [(mode, cov * n_shards) for modes in self.other_modes for mode in modes]
        return Proposal.around(moments.mean, cov, places, max(n_shards, 4))

    def answer(self, points: Array, log_posterior: Array) -> Verdict:
        """The verdict, from the log posterior (n,) at the first n points."""
        points, proposal = points[: len(log_posterior)], self.proposal()
        weighted, k_hat = smoothed(points, log_posterior, proposal.log_density(points))
        ess = ess_of_chains(self.draws, self.n_chains) if self.ess is None else self.ess
        is_reliable = weighted.ess >= FEWEST and grade(k_hat, K_HATS) != DO_NOT_TRUST
        variables = self.variables or self.model.constrain(self.draws)
        reasons = [
            *_of_disputes(self.disputes),
            *_of_chains(in_chains(self.draws, self.n_chains), ess, self.model.names),
            *self._of_missed_mass(weighted),
            *_of_slow_chains(
                ess, len(self.draws), self.n_chains, self.model.names, is_checked=is_reliable
            ),
            *of_moments(weighted, k_hat, self.draws, self.model.names, ess),
        ]
        findings = compared(self.fits)
        word = max((reason.word for reason in reasons), key=badness, default=GOOD)
        return Verdict(
            verdict=word,
            k_hat=k_hat,
            importance_ess=weighted.ess,
            advice=advice_on(word, reasons, _AGREE),
            remarks=remarks_on(findings),
            shards=findings,
            raw=summaries_of_draws(variables),
            corrected=summaries(self.model, weighted.without_negligible()) if is_reliable else {},
            n_points=len(points),
            weighted=weighted,
        )

    def _of_missed_mass(self, weighted: Weighted) -> Iterator[Reason]:
        """Weighted points far outside of all draws."""
        lower = np.linalg.cholesky(self._moments.covariance())

        def distances(points: Array) -> Array:
            z = solve_triangular(lower, (points - self._moments.mean).T, lower=True)
            return np.asarray(np.sqrt(np.sum(z * z, axis=0)))

        kept = weighted.without_negligible()
        parts = range(0, len(self.draws), _AT_ONCE)
        farthest = max(distances(self.draws[i : i + _AT_ONCE]).max() for i in parts)
        outside = distances(kept.points) > _OUTSIDE * farthest
        missed = float(kept.weights[outside].sum())
        word = grade(missed, _MISSED)
        if word != GOOD:
            yield Reason(
                word,
                f"about {missed:.0%} of the posterior mass lies where no chain has been, as in "
                "another mode",
                _MODES,
            )


def _of_chains(chains: Array, ess: Array, names: Sequence[str]) -> Iterator[Reason]:
    """Reasons from chains that have not mixed, or mix too slowly."""
    r_hats = nested_rhat(chains, _ERRORS)
    if np.isnan(r_hats).any() or np.isnan(ess).any():
        yield Reason(USABLE, "the chains are too short to tell whether they have mixed", _LONGER)
        return
    worst = int(np.argmax(r_hats))
    word = grade(float(r_hats[worst]), _R_HATS)
    if word != GOOD:
        why = f"the chains have not forgotten where they began ({names[worst]}: R-hat "
        yield Reason(word, f"{why}{r_hats[worst]:.2f})", f"{_LONGER}, or check for several modes")
    fewest = int(np.argmin(ess))
    word = _few(float(ess[fewest]))
    if word != GOOD:
        why = f"the draws of {names[fewest]} are worth only {ess[fewest]:.0f} independent ones"
        yield Reason(word, why, _LONGER)


def _of_slow_chains(
    ess: Array, n_draws: int, n_chains: int, names: Sequence[str], *, is_checked: bool
) -> Iterator[Reason]:
    """A reason from chains so slow that they may not have reached the tails.

    `is_checked` says that weighted points could tell whether they have.
    """
    slowest = int(np.argmin(np.nan_to_num(ess, nan=np.inf)))
    share, of_a_chain = ess[slowest] / n_draws, ess[slowest] / n_chains
    if share < _SLOW and (of_a_chain < _FEW_OF_A_CHAIN or not is_checked):
        yield Reason(
            USABLE,
            f"the chains are slow: {n_draws / n_chains:.0f} draws of {names[slowest]} by one chain "
            f"are worth {of_a_chain:.1f} independent ones, so tails may be missing",
            f"{_LONGER}, or use more informative priors",
        )


def _few(ess: float) -> Word:
    if ess >= _ESS[0]:
        return GOOD
    return USABLE if ess >= _ESS[1] else DO_NOT_TRUST


def _of_disputes(disputes: frozenset[tuple[int, ...]]) -> Iterator[Reason]:
    for workers in sorted(disputes):
        *others, last = map(str, workers)
        names = f"workers {', '.join(others)} and {last}"
        is_pair = len(workers) == 2
        yield Reason(
            DO_NOT_TRUST,
            f"{names} gave different answers for the same rows"
            if is_pair
            else f"the coded answers of {names} contradict each other",
            "check their machines, and run again without the faulty one",
        )
