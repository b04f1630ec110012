"""The verdict on a merge: good, usable or not to be trusted, why, and what to do.

The merge is held against the posterior itself, through points whose weights are exact up to a
constant. Three things can be wrong: the weights are too uneven to say anything, k̂ or the effective
number of points says so; the weights are fine, and say that means or sds of the merge are off; or
shards are at odds with each other, or with themselves, which no merge can mend.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isfinite, log
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from quorate._types import Array
from quorate.errors import SingularCovarianceError, named_shards
from quorate.merging.centres import shift_of
from quorate.merging.consensus import consensus_weights
from quorate.merging.weights import shrunk_covariances
from quorate.models.protocol import Model
from quorate.numerics.ess import mean_ess
from quorate.numerics.importance import Weighted
from quorate.numerics.moments import Moments
from quorate.numerics.names import named_scalars
from quorate.trust.importance import smoothed
from quorate.trust.proposal import Proposal
from quorate.trust.shards import FALSE_ALARMS, ShardChains, ShardFinding, shard_findings

if TYPE_CHECKING:
    import pandas as pd

Word = Literal["good", "usable", "do not trust", "not checked"]
GOOD: Word = "good"
USABLE: Word = "usable"
DO_NOT_TRUST: Word = "do not trust"
NOT_CHECKED: Word = "not checked"


_K_HATS = (0.5, 0.7)
_SHIFTS = (0.25, 0.5)  # of a mean, in posterior sds
_STRETCHES = (log(1.25), log(1.5))  # of an sd: logarithm of the factor, either way
_LOSSES = (-0.7, -0.5)  # of effective points beside those of a Gaussian, by dimension, negated
_R_HATS = (1.1, 1.2)
_FEWEST = 40.0  # effective points that anything can be said from
_ERRORS = 3.0  # standard errors that a shift must exceed its limit by
_QUANTILES = {"3%": 0.03, "50%": 0.5, "97%": 0.97}
_SHOWN = 3  # parameters that a sentence names
_AGREE = "the merged draws agree with the posterior at its points, and shards with each other"
_CURE = (
    "use fewer and larger shards, reparametrise so that the posterior is closer to a Gaussian, or "
    "combine the shards by another rule (`quorate.merging`)"
)
_WEIGH = "take `result.corrected()`, draw more, or use fewer and larger shards"


class Reason(NamedTuple):
    """What was found against a merge: how bad for all of it, in words, and what may help."""

    word: Word
    why: str
    remedy: str


@dataclass(frozen=True, eq=False)
class Verdict:
    """What was found out about a merge.

    Parameters
    ----------
    verdict
        `good`, `usable`, `do not trust` or `not checked`.
    k_hat
        Shape of the tail of the importance weights; None where there are none.
    importance_ess
        Effective number of the points at which the posterior was evaluated.
    advice
        Why, and what to do, in words.
    shards
        What is known of each.
    raw, corrected
        Mean, sd and quantiles of every scalar, of the merged draws and by the weights.
    n_points
        At which the posterior was evaluated.
    weighted
        The points, unconstrained, with their weights; None where nothing was evaluated.
    """

    verdict: Word
    k_hat: float | None
    importance_ess: float | None
    advice: str
    shards: list[ShardFinding] = field(default_factory=list)
    raw: dict[str, dict[str, float]] = field(default_factory=dict)
    corrected: dict[str, dict[str, float]] = field(default_factory=dict)
    n_points: int = 0
    weighted: Weighted | None = field(default=None, repr=False)

    @property
    def in_short(self) -> str:
        """The word, and whether there is something to add to it."""
        has_exception = self.verdict == GOOD and self.advice != _AGREE
        return f"{self.verdict}, with an exception" if has_exception else self.verdict

    def rows(self) -> dict[str, dict[str, float]]:
        """Raw and corrected side by side, by scalar."""
        return {
            name: {
                f"{what}{kind}": row[what]
                for what in raw
                for kind, row in (("", raw), (" corrected", self.corrected.get(name)))
                if row is not None
            }
            for name, raw in self.raw.items()
        }

    def table(self) -> "pd.DataFrame":
        """`rows` as a table."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.rows(), orient="index")

    def as_json(self) -> dict[str, Any]:
        """All of it but the points; None stands for what is no finite number."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weighted"}
        told["shards"] = [asdict(finding) for finding in self.shards]
        cleaned: dict[str, Any] = _finite(told)
        return cleaned

    def __str__(self) -> str:
        numbers = "" if self.k_hat is None else f" (k̂ {self.k_hat:.2f})"
        return f"{self.verdict}{numbers}: {self.advice}"


def not_checked(why: str) -> Verdict:
    """Of a merge that could not be checked."""
    return Verdict(NOT_CHECKED, None, None, why)


@dataclass(frozen=True, eq=False)
class Question:
    """What is to be judged: merged draws (n, d), unconstrained, and those of the shards."""

    model: Model
    merged: Array
    shards: Sequence[ShardChains]
    n_shards: int

    def proposal(self) -> Proposal:
        """Where to look at the posterior: around the product of Gaussian shards.

        All is shrunk that can be, so that this is the merge without the noise of weights, and k̂
        speaks of the assumption; how far off the merged draws are is told by their moments. Without
        draws of shards it is around the merged draws. Other modes of shards are looked at too.
        Raises `SingularCovarianceError` where there are too few draws to say.
        """
        if len(self.merged) <= 2 * self.model.dim + 8:
            raise SingularCovarianceError
        moments = [shard.moments for shard in self.shards]
        known = [of for of in moments if of is not None]
        if len(known) < self.n_shards:
            merged = Moments.of(self.merged)
            cov = merged.covariance()
            elsewhere = self._elsewhere([cov * self.n_shards] * len(self.shards))
            return Proposal.around(merged.mean, cov, elsewhere, self.n_shards)
        fits = [shard.fit for shard in self.shards]
        covs = shrunk_covariances(known, fits)
        centred = [of.mean + shift_of(of, fit) for of, fit in zip(known, fits, strict=True)]
        means = np.stack(centred)
        weights = consensus_weights(covs)
        cov = weights[0] @ covs[0]  # W_s C_s is the same for all: (Σ C⁻¹)⁻¹
        cov = (cov + cov.T) / 2
        places = [*zip(means, covs, strict=True), *self._elsewhere(covs)]
        if all(len(shard.other_modes) for shard in self.shards):  # and the merge of these
            others = np.stack([shard.other_modes[0] for shard in self.shards])
            places.append((np.einsum("sij,sj->i", weights, others), cov))
        mean = np.einsum("sij,sj->i", weights, means)
        return Proposal.around(mean, cov, places, self.n_shards)

    def _elsewhere(self, covs: Sequence[Array] | Array) -> list[tuple[Array, Array]]:
        """Other modes of the shards, as wide as the shards themselves."""
        return [
            (mode, cov)
            for shard, cov in zip(self.shards, covs, strict=True)
            for mode in shard.other_modes
        ]

    def answer(self, points: Array, log_densities: Array) -> Verdict:
        """The verdict, from log densities of all shards, (n_shards, n), at the first points."""
        points = points[: log_densities.shape[1]]
        proposal = self.proposal()
        log_posterior = log_densities.sum(axis=0)
        weighted, k_hat = smoothed(points, log_posterior, proposal.log_density(points))
        findings = shard_findings(self.shards)
        reasons = [
            *_of_shards(findings),
            *_of_weights(weighted, k_hat, proposal),
            *_of_moments(weighted, k_hat, self.merged, self.model.names),
        ]
        word = max((r.word for r in reasons), key=_badness, default=GOOD)
        if word != GOOD:
            reasons += _of_modes(self.shards, word)
        return Verdict(
            verdict=word,
            k_hat=k_hat,
            importance_ess=weighted.ess,
            advice=_advice(word, reasons),
            shards=findings,
            raw=_summaries(self.model, Weighted.of(self.merged, np.zeros(len(self.merged)))),
            corrected=_summaries(self.model, weighted.without_negligible()),
            n_points=len(points),
            weighted=weighted,
        )


def _of_weights(weighted: Weighted, k_hat: float, proposal: Proposal) -> Iterator[Reason]:
    """What k̂ says; and how few points count beside those that would if the merge were right."""
    n_points, ess = len(weighted.points), weighted.ess
    word = _grade(k_hat, _K_HATS)
    if word != GOOD:
        yield Reason(word, f"importance weights have a heavy tail (k̂ = {k_hat:.2f})", _CURE)
    points = weighted.points
    ratios = proposal.log_gaussian(points) - proposal.log_density(points)
    expected = Weighted.of(points, ratios).ess
    word = _grade(-((ess / expected) ** (1 / points.shape[1])), _LOSSES)
    if ess < _FEWEST:
        word = DO_NOT_TRUST
    if word != GOOD:
        what = f"{n_points} points around the merge are worth {ess:.0f} draws of the posterior"
        yield Reason(word, f"{what}, where {expected:.0f} were to be expected", _CURE)


def _of_moments(
    weighted: Weighted, k_hat: float, merged: Array, names: Sequence[str]
) -> Iterator[Reason]:
    """Means and sds of the merge that the weighted points do not confirm, beyond their errors."""
    if weighted.ess < _FEWEST or _grade(k_hat, _K_HATS) == DO_NOT_TRUST:
        return
    some = weighted.without_negligible()
    x, mean, sds = some.points, some.mean(some.points), some.sd(some.points)
    raw_mean, raw_sds = merged.mean(axis=0), merged.std(axis=0)
    raw_error = raw_sds / np.sqrt(np.maximum(np.nan_to_num(mean_ess(merged[None])), 1.0))
    shifts = np.abs(mean - raw_mean) / sds
    noise = np.hypot(some.error(x), raw_error) / sds
    yield from _off("mean", shifts, shifts - _ERRORS * noise, _SHIFTS, names)
    stretches = np.abs(np.log(sds / raw_sds))
    noise = some.error((x - mean) ** 2) / (2 * sds**2)
    yield from _off("sd", stretches, stretches - _ERRORS * noise, _STRETCHES, names)


def _off(
    what: str, sizes: Array, surely: Array, limits: tuple[float, float], names: Sequence[str]
) -> Iterator[Reason]:
    """The merge is judged by the root mean square over parameters; those that are off are named."""
    overall = float(np.sqrt(np.mean(np.maximum(surely, 0.0) ** 2)))
    worst = [int(j) for j in np.argsort(-surely) if surely[j] >= limits[0]]
    if worst:
        listed = ", ".join(names[j] for j in worst[:_SHOWN]) + ", …" * (len(worst) > _SHOWN)
        size = sizes[worst[0]]
        by = f"{size:.1f} posterior sds" if what == "mean" else f"a factor of {np.exp(size):.1f}"
        why = f"the merged {what} of {listed} is off by {by}"
        yield Reason(_grade(overall, limits), why, _WEIGH)


def _of_modes(shards: Sequence[ShardChains], word: Word) -> Iterator[Reason]:
    """That there are several may be why a merge is bad."""
    several = [s for s, shard in enumerate(shards) if len(shard.other_modes)]
    if several:
        yield Reason(
            word,
            f"{named_shards(several)} {'has' if len(several) == 1 else 'have'} another mode than "
            "the one drawn from",
            "let the model have one mode, as by an order of its components",
        )


def _of_shards(findings: Sequence[ShardFinding]) -> Iterator[Reason]:
    odd = [f.shard for f in findings if f.disagrees]
    if odd:
        yield Reason(
            DO_NOT_TRUST,
            f"{named_shards(odd)} {'disagrees' if len(odd) == 1 else 'disagree'} with the rest, "
            f"which chance would bring about in {FALSE_ALARMS:.1%} of runs",
            "look at their rows for what is different about them (another source, labels, units), "
            "let `by='shuffle'` mix the rows, or let the model allow for the difference",
        )
    for word, low, high in ((DO_NOT_TRUST, _R_HATS[1], np.inf), (USABLE, *_R_HATS)):
        mixing = [f for f in findings if f.r_hat is not None and low < f.r_hat <= high]
        if mixing:
            worst = max(f.r_hat or 0.0 for f in mixing)
            yield Reason(
                word,
                f"chains of {named_shards([f.shard for f in mixing])} have not mixed "
                f"(R-hat {worst:.2f})",
                "draw more, use another sampler, or look for several modes",
            )


def _grade(value: float, limits: tuple[float, float]) -> Word:
    if value < limits[0]:
        return GOOD
    return USABLE if value < limits[1] else DO_NOT_TRUST


def _badness(word: Word) -> int:
    return (GOOD, USABLE, DO_NOT_TRUST).index(word)


def _advice(word: Word, reasons: Sequence[Reason]) -> str:
    telling = [reason for reason in reasons if reason.word == word]
    whys = "; ".join(reason.why for reason in telling)
    if word == GOOD:
        whys = f"{_AGREE}, with an exception: {whys}" if whys else _AGREE
    remedies = "; or ".join(dict.fromkeys(reason.remedy for reason in telling))
    return f"{whys}. What to do: {remedies}" if remedies else whys


def _summaries(model: Model, weighted: Weighted) -> dict[str, dict[str, float]]:
    """Mean, sd and quantiles of every scalar on its natural scale."""
    return {
        name: {
            "mean": float(weighted.mean(values)),
            "sd": float(weighted.sd(values)),
            **{label: weighted.quantile(values, share) for label, share in _QUANTILES.items()},
        }
        for name, values in named_scalars(model.constrain(weighted.points))
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
