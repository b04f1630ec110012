"""Figures 3 and 4 as frozen specs, and the two ways to read them.

The paper's text and the scripts that drew its figures differ. Reading `text` does what the paper
says, reading `published` what the scripts do; both are switches on the same protocol code.
`docs/explanation/reproduction.md` lists the differences and what each one does.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from quorate.engines.latency import Pareto
from quorate.errors import require
from quorate.numerics.linalg import check_ridge
from quorate.protocol.scheme import SchemeOptions
from quorate.protocol.schemes import COV_RIDGE, LIMITS, SCHEMES, as_published

# Constants of §VI
MEAN_PER_SHARD = 0.1  # η
TAIL_INDEX = 1.2  # β
DIM = 5  # d
BAND = 0.15  # half the width of the shaded regions, in standard deviations over realisations


@dataclass(frozen=True)
class Curve:
    """One curve of a figure: a scheme and its redundancy.

    A scheme that is an object is run as it is, one that is a name as in the paper's experiments.
    `published_time_factor` is what the scripts multiply computing times by beyond the number of
    shards held: 2 for CMC in Fig. 3, which they time with r = 2.
    `published_adds_last_group`: in Fig. 3 they add the time of G-CMC's group of one to the largest
    of the others', where the text takes the largest of all.
    """

    scheme: str | SchemeOptions
    redundancy: int
    published_time_factor: float = 1.0
    published_adds_last_group: bool = False

    @property
    def label(self) -> str:
        """Name of the scheme in figures."""
        return self._described.label

    @property
    def colour(self) -> str:
        """Colour of the scheme's curves."""
        return self._described.colour

    @property
    def is_limit(self) -> bool:
        """Whether the scheme is only a limit that others cannot beat."""
        return self._described.name in LIMITS

    @property
    def _described(self) -> SchemeOptions | type[SchemeOptions]:
        return SCHEMES[self.scheme] if isinstance(self.scheme, str) else self.scheme


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    C-CMC runs a code that needs exactly K-r+1 answers, as in the paper.
    """

    name: str
    title: str
    n_workers: int
    curves: tuple[Curve, ...]
    precision_ridge: float
    code: str = "reed-solomon"

    def of_schemes(self, schemes: Collection[str | SchemeOptions]) -> "Figure":
        """The figure with the curves of these schemes only, in order.

        A scheme that the paper does not have is drawn at the paper's redundancies, as far as they
        make a difference to it.
        """
        return replace(
            self, curves=tuple(curve for scheme in schemes for curve in self._curves_of(scheme))
        )

    def _curves_of(self, scheme: str | SchemeOptions) -> list[Curve]:
        if not isinstance(scheme, str):
            return [Curve(scheme, scheme.shards_per_worker(self.n_workers))]
        in_paper = [curve for curve in self.curves if curve.scheme == scheme]
        redundancies = {curve.redundancy for curve in self.curves} - {1}
        options = [as_published(scheme, {}, {"redundancy": r}) for r in redundancies]
        held = sorted({each.shards_per_worker(self.n_workers) for each in options})
        return in_paper or [Curve(scheme, redundancy) for redundancy in held]


@dataclass(frozen=True)
class Reading:
    """How to read the experiment.

    Parameters
    ----------
    n_draws
        Where a run stops; None where only the time does.
    horizon
        Time at which a run stops.
    first_draws_only
        Covariances from the first l draws of each shard, rather than from all received by then.
    by_index
        Times and errors averaged for every l, rather than errors at fixed times.
    quirks
        Whether the `published_...` switches of curves apply.
    """

    name: str
    n_draws: int | None
    horizon: float
    first_draws_only: bool
    by_index: bool
    quirks: bool

    def latency(self, curve: Curve) -> Pareto:
        """Computing times of a curve."""
        factor = curve.published_time_factor if self.quirks else 1.0
        return Pareto(MEAN_PER_SHARD * factor, TAIL_INDEX)


FIGURES = {
    "fig3": Figure(
        name="fig3",
        title="Fig. 3: K = 5 workers",
        n_workers=5,
        curves=(
            Curve("cmc", 1, published_time_factor=2.0),
            Curve("grouped", 2, published_adds_last_group=True),
            Curve("coded", 2),
        ),
        precision_ridge=0.5,
    ),
    "fig4": Figure(
        name="fig4",
        title="Fig. 4: K = 40 workers",
        n_workers=40,
        curves=(
            Curve("cmc", 1),
            Curve("grouped", 2),
            Curve("grouped", 4),
            Curve("coded", 2),
            Curve("coded", 4),
        ),
        precision_ridge=2.0,
    ),
}

BEYOND = "beyond"  # Fig. 3 and Fig. 4 side by side, with our scheme and the genie
BEYOND_RIDGE = 0.3  # on Ĉ: over all times the best for G-CMC of those tried

READINGS = {
    "text": Reading(
        "text", n_draws=None, horizon=5.0, first_draws_only=False, by_index=False, quirks=False
    ),
    "published": Reading(
        "published",
        n_draws=30,
        horizon=float("inf"),
        first_draws_only=True,
        by_index=True,
        quirks=True,
    ),
}


@dataclass(frozen=True)
class Experiment:
    """A figure, a reading, and what a user may choose."""

    figure: Figure
    reading: Reading
    realisations: int
    seed: int
    cov_ridge: float
    precision_ridge: float

    def __post_init__(self) -> None:
        require(
            self.realisations >= 1, f"realisations must be at least 1, not {self.realisations}."
        )
        require(self.seed >= 0, f"seed must be 0 or more, not {self.seed}.")
        check_ridge("cov_ridge", self.cov_ridge)
        check_ridge("precision_ridge", self.precision_ridge)

    def options(self, curve: Curve) -> SchemeOptions:
        """How the scheme of a curve is run."""
        if not isinstance(curve.scheme, str):
            return curve.scheme
        usual = {
            "cov_ridge": self.cov_ridge,
            "precision_ridge": self.precision_ridge,
            "code": self.figure.code,
        }
        return as_published(curve.scheme, usual, {"redundancy": curve.redundancy})


def experiment(
    figure: str,
    reading: str = "text",
    *,
    realisations: int = 50,
    seed: int = 0,
    cov_ridge: float = COV_RIDGE,
    precision_ridge: float | None = None,
    schemes: Collection[str | SchemeOptions] = (),
) -> Experiment:
    """An experiment by the names of its figure and reading; ridges default to the scripts'.

    Its curves are those of `schemes`, names or objects, where some are given, and else those of the
    paper.
    """
    require(figure in FIGURES, f"No figure {figure!r}. Choose {' or '.join(FIGURES)}.")
    require(reading in READINGS, f"No reading {reading!r}. Choose {' or '.join(READINGS)}.")
    in_paper = {curve.scheme for curve in FIGURES[figure].curves}
    others = sorted(str(scheme) for scheme in schemes if scheme not in in_paper)
    require(
        reading == "text" or not others,
        f"The authors' scripts do not know the scheme {', '.join(others)}. Use the reading text.",
    )
    spec = FIGURES[figure].of_schemes(schemes) if schemes else FIGURES[figure]
    ridge_on_sum = spec.precision_ridge if precision_ridge is None else precision_ridge
    return Experiment(spec, READINGS[reading], realisations, seed, cov_ridge, ridge_on_sum)


def beyond(
    *, realisations: int = 50, seed: int = 0, cov_ridge: float = BEYOND_RIDGE
) -> list[list[Experiment]]:
    """For each of the paper's figures, the experiments whose curves are drawn together.

    C-CMC keeps the ridges of the scripts: its Ĉ are another matter, and of those that were tried
    these are the ones that do not shrink all draws towards zero.
    """
    of_paper = partial(experiment, realisations=realisations, seed=seed)
    on_server = ("cmc", "grouped", "adaptive", "genie")
    return [
        [
            of_paper(figure, schemes=on_server, cov_ridge=cov_ridge),
            of_paper(figure, schemes=["coded"]),
        ]
        for figure in FIGURES
    ]
