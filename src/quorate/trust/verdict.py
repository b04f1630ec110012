"""The verdict on a merge: whether to trust it, why, and what to do.

The check compares the merge with the posterior density at weighted points. Three things can be
wrong. The importance weights are too uneven to tell anything, as k̂ or the effective number of
points shows. The weights are reliable and show that means or sds of the merge are off. Or chains of
shards have not mixed; then no way of merging helps.

Shards that disagree with each other say something about the model and the rows. That is a remark,
apart from the verdict on the draws.
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
from quorate.merging.ess import fewest_draws
from quorate.merging.weights import shrunk_covariances
from quorate.models.protocol import Model
from quorate.numerics.ess import mean_ess
from quorate.numerics.importance import Weighted
from quorate.numerics.moments import Moments
from quorate.trust.importance import smoothed
from quorate.trust.proposal import Proposal
from quorate.trust.shards import ShardChains, ShardFinding, remarks_on, shard_findings
from quorate.trust.summaries import summaries, summaries_of_draws

if TYPE_CHECKING:
    import pandas as pd

Word = Literal["good", "usable", "do not trust", "not checked"]
GOOD: Word = "good"
USABLE: Word = "usable"
DO_NOT_TRUST: Word = "do not trust"
NOT_CHECKED: Word = "not checked"


K_HATS = (0.5, 0.7)
_SHIFTS = (0.25, 0.5)  # error of a mean, in posterior sds
_FAR_OFF = 0.75  # error of a single mean with which no merge is usable
_STRETCHES = (log(1.25), log(1.5))  # error of an sd: log of the factor, either way
_LOSSES = (-0.7, -0.5)  # minus the share of effective points that is left, per dimension
_R_HATS = (1.1, 1.2)
FEWEST = 40.0  # effective points below which nothing can be said
_ERRORS = 3.0  # standard errors by which an error must exceed its limit
_SHOWN = 3  # parameters that a sentence names
_AGREE = "the merged draws agree with the posterior density"
_EXCEPTION = "with an exception"
_CURE = (
    "use fewer and larger shards, reparametrise so that the posterior is closer to a Gaussian, or "
    "combine the shards' draws by another rule (`quorate.combine`)"
)
_WEIGH = "use `result.corrected()`, draw more, or use fewer and larger shards"


class Reason(NamedTuple):
    """A finding against a merge: the word it justifies, why, and what may help."""

    word: Word
    why: str
    remedy: str


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether a merge can be trusted, and the evidence.

    Parameters
    ----------
    verdict
        `good`, `usable`, `do not trust` or `not checked`.
    k_hat
        Shape k̂ of the tail of the importance weights. Below 0.5 is good, above 0.7 the weights are
        unreliable. None if nothing was evaluated.
    importance_ess
        Effective number of the points at which the posterior was evaluated.
    advice
        A sentence or two: why, and what to do.
    remarks
        Sentences about the model and the rows, such as shards that disagree with the others.
    shards
        Findings about each shard.
    raw, corrected
        Mean, sd and quantiles of every scalar: of the merged draws, and of the weighted points.
    n_points
        Number of points at which the posterior was evaluated.
    weighted
        The points, in unconstrained coordinates, with their weights; None if nothing was evaluated.
    """

    verdict: Word
    k_hat: float | None
    importance_ess: float | None
    advice: str
    remarks: list[str] = field(default_factory=list)
    shards: list[ShardFinding] = field(default_factory=list)
    raw: dict[str, dict[str, float]] = field(default_factory=dict)
    corrected: dict[str, dict[str, float]] = field(default_factory=dict)
    n_points: int = 0
    weighted: Weighted | None = field(default=None, repr=False)

    @property
    def in_short(self) -> str:
        """The verdict in a few words; `good, with an exception` if some parameters are off."""
        has_exception = self.verdict == GOOD and _EXCEPTION in self.advice
        return f"{self.verdict}, {_EXCEPTION}" if has_exception else self.verdict

    def rows(self) -> dict[str, dict[str, float]]:
        """Raw and corrected summaries side by side, by scalar."""
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
        """Raw and corrected summaries side by side, one row per scalar."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.rows(), orient="index")

    def as_json(self) -> dict[str, Any]:
        """Everything but the points, for JSON; None stands for NaN and infinity."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weighted"}
        values["shards"] = [asdict(finding) for finding in self.shards]
        cleaned: dict[str, Any] = _finite(values)
        return cleaned

    def __str__(self) -> str:
        numbers = "" if self.k_hat is None else f" (k̂ {self.k_hat:.2f})"
        remarks = "".join(f". Remark: {remark}" for remark in self.remarks)
        return f"{self.verdict}{numbers}: {self.advice}{remarks}"


def not_checked(why: str) -> Verdict:
    """Verdict on a merge that was not checked, and why it was not."""
    return Verdict(NOT_CHECKED, None, None, why)


@dataclass(frozen=True, eq=False)
class Question:
    """A merge to judge: its draws (n, d), unconstrained, and the draws of its shards."""

    model: Model
    merged: Array
    shards: Sequence[ShardChains]
    n_shards: int

    def proposal(self) -> Proposal:
        """Where to evaluate the posterior: around the product of Gaussian shards.

        Means and covariances of shards are shrunk. So the proposal is the merge without the noise
        of its weights, and k̂ tests the Gaussian assumption; the moments of the merged draws are
        compared separately. Without draws of every shard, the proposal is around the merged draws.
        It covers other modes of the shards too.

        Raises
        ------
        SingularCovarianceError
            There are too few draws.
        """
        if len(self.merged) < fewest_draws(self.model.dim):
            raise SingularCovarianceError
        moments = [shard.moments for shard in self.shards]
        known = [of for of in moments if of is not None]
        if len(known) < self.n_shards:
            merged = Moments.of(self.merged)
            cov = merged.covariance()
            modes = self._other_modes([cov * self.n_shards] * len(self.shards))
            return Proposal.around(merged.mean, cov, modes, self.n_shards)
        fits = [shard.fit for shard in self.shards]
        covs = shrunk_covariances(known, fits)
        centred = [of.mean + shift_of(of, fit) for of, fit in zip(known, fits, strict=True)]
        means = np.stack(centred)
        weights = consensus_weights(covs)
        cov = weights[0] @ covs[0]  # W_s C_s is the same for all shards: (Σ C⁻¹)⁻¹
        cov = (cov + cov.T) / 2
        places = [*zip(means, covs, strict=True), *self._other_modes(covs)]
        if all(len(shard.other_modes) for shard in self.shards):  # add the merge of other modes
            others = np.stack([shard.other_modes[0] for shard in self.shards])
            places.append((np.einsum("sij,sj->i", weights, others), cov))
        mean = np.einsum("sij,sj->i", weights, means)
        return Proposal.around(mean, cov, places, self.n_shards)

    def _other_modes(self, covs: Sequence[Array] | Array) -> list[tuple[Array, Array]]:
        """Other modes of the shards, each with the covariance of its shard."""
        return [
            (mode, cov)
            for shard, cov in zip(self.shards, covs, strict=True)
            for mode in shard.other_modes
        ]

    def answer(self, points: Array, log_posterior: Array) -> Verdict:
        """The verdict, from the log posterior (n,) at the first n points."""
        points = points[: len(log_posterior)]
        proposal = self.proposal()
        weighted, k_hat = smoothed(points, log_posterior, proposal.log_density(points))
        findings = shard_findings(self.shards)
        reasons = [
            *_of_shards(findings),
            *_of_weights(weighted, k_hat, proposal),
            *of_moments(weighted, k_hat, self.merged, self.model.names),
        ]
        word = max((r.word for r in reasons), key=badness, default=GOOD)
        if word != GOOD:
            reasons += _of_modes(self.shards, word)
        return Verdict(
            verdict=word,
            k_hat=k_hat,
            importance_ess=weighted.ess,
            advice=advice_on(word, reasons),
            remarks=remarks_on(findings),
            shards=findings,
            raw=summaries_of_draws(self.model.constrain(self.merged)),
            corrected=summaries(self.model, weighted.without_negligible()),
            n_points=len(points),
            weighted=weighted,
        )


def _of_weights(weighted: Weighted, k_hat: float, proposal: Proposal) -> Iterator[Reason]:
    """Reasons from k̂, and from effective points compared with a merge that is exactly right."""
    n_points, ess = len(weighted.points), weighted.ess
    word = grade(k_hat, K_HATS)
    if word != GOOD:
        yield Reason(word, f"importance weights have a heavy tail (k̂ = {k_hat:.2f})", _CURE)
    points = weighted.points
    ratios = proposal.log_gaussian(points) - proposal.log_density(points)
    expected = Weighted.of(points, ratios).ess
    word = grade(-((ess / expected) ** (1 / points.shape[1])), _LOSSES)
    if ess < FEWEST:
        word = DO_NOT_TRUST
    if word != GOOD:
        yield Reason(
            word,
            f"{n_points} points around the merge are worth only {ess:.0f} draws of the posterior "
            f"({expected:.0f} if the merge were right)",
            _CURE,
        )


def of_moments(
    weighted: Weighted, k_hat: float, merged: Array, names: Sequence[str], ess: Array | None = None
) -> Iterator[Reason]:
    """Reasons from means and sds of draws that differ from those of the weighted points.

    `ess` is the effective number of draws of each coordinate, where it is known already.
    """
    if weighted.ess < FEWEST or grade(k_hat, K_HATS) == DO_NOT_TRUST:
        return
    kept = weighted.without_negligible()
    x, mean, sds = kept.points, kept.mean(kept.points), kept.sd(kept.points)
    raw_mean = merged.mean(axis=0)
    raw_sds = np.array([column.std() for column in merged.T])  # without a copy of all draws
    ess = mean_ess(merged[None]) if ess is None else ess
    raw_error = raw_sds / np.sqrt(np.maximum(np.nan_to_num(ess), 1.0))
    shifts = np.abs(mean - raw_mean) / sds
    noise = np.hypot(kept.error(x), raw_error) / sds
    yield from _off("mean", shifts, shifts - _ERRORS * noise, _SHIFTS, names)
    stretches = np.abs(np.log(sds / raw_sds))
    noise = kept.error((x - mean) ** 2) / (2 * sds**2)
    yield from _off("sd", stretches, stretches - _ERRORS * noise, _STRETCHES, names)


def _off(
    what: str, sizes: Array, surely: Array, limits: tuple[float, float], names: Sequence[str]
) -> Iterator[Reason]:
    """Judge the merge by the root mean square over parameters, and name those that are off."""
    overall = float(np.sqrt(np.mean(np.maximum(surely, 0.0) ** 2)))
    worst = [int(j) for j in np.argsort(-surely) if surely[j] >= limits[0]]
    if worst:
        listed = ", ".join(names[j] for j in worst[:_SHOWN]) + ", …" * (len(worst) > _SHOWN)
        size = sizes[worst[0]]
        by = f"{size:.1f} posterior sds" if what == "mean" else f"a factor of {np.exp(size):.1f}"
        is_far = what == "mean" and surely[worst[0]] >= _FAR_OFF
        word = DO_NOT_TRUST if is_far else grade(overall, limits)
        yield Reason(word, f"the {what} of {listed} is off by {by}", _WEIGH)


def _of_modes(shards: Sequence[ShardChains], word: Word) -> Iterator[Reason]:
    """Several modes of a shard, as the likely cause of a bad merge."""
    several = [s for s, shard in enumerate(shards) if len(shard.other_modes)]
    if several:
        yield Reason(
            word,
            f"{named_shards(several)} {'has' if len(several) == 1 else 'have'} a second mode, "
            "which the chains may never have visited",
            "give the model a single mode, for example by ordering its components",
        )


def _of_shards(findings: Sequence[ShardFinding]) -> Iterator[Reason]:
    """Reasons from shards whose chains have not mixed."""
    for word, low, high in ((DO_NOT_TRUST, _R_HATS[1], np.inf), (USABLE, *_R_HATS)):
        mixing = [f for f in findings if f.r_hat is not None and low < f.r_hat <= high]
        if mixing:
            worst = max(f.r_hat or 0.0 for f in mixing)
            yield Reason(
                word,
                f"the chains of {named_shards([f.shard for f in mixing])} have not mixed "
                f"(R-hat {worst:.2f})",
                "draw more, use another sampler, or check for several modes",
            )


def grade(value: float, limits: tuple[float, float]) -> Word:
    """The word for a value that should be below both limits."""
    if value < limits[0]:
        return GOOD
    return USABLE if value < limits[1] else DO_NOT_TRUST


def badness(word: Word) -> int:
    """How bad a verdict is, from 0."""
    return (GOOD, USABLE, DO_NOT_TRUST).index(word)


def advice_on(word: Word, reasons: Sequence[Reason], agree: str = _AGREE) -> str:
    """Why a verdict is as it is, and what to do; `agree` says so where all is well."""
    decisive = [reason for reason in reasons if reason.word == word]
    whys = "; ".join(reason.why for reason in decisive)
    if word == GOOD:
        whys = f"{agree}, {_EXCEPTION}: {whys}" if whys else agree
    distinct = dict.fromkeys(reason.remedy for reason in decisive)
    remedies = "; or ".join(
        remedy
        for remedy in distinct
        if not any(remedy in other for other in distinct if other != remedy)
    )
    return f"{whys}. What to do: {remedies}" if remedies else whys


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
