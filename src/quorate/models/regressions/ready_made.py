"""Ready-made regressions, with or without groups that have coefficients of their own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from quorate.errors import require
from quorate.models.formulas.design import Design
from quorate.models.groups.levels import Level
from quorate.models.groups.quadrature import MOST_DIMENSIONS
from quorate.models.groups.regressions.covariance import Covariance
from quorate.models.groups.regressions.regression import GroupedRegression
from quorate.models.priors import parse
from quorate.models.regressions.families import Linear, Logistic, NegativeBinomial, Poisson
from quorate.models.regressions.family import Family
from quorate.models.regressions.glm import (
    GeneralisedLinearModel,
    generalised_linear_model,
    named_coefficients,
    require_own_names,
)
from quorate.models.regressions.particular_priors import spread_over
from quorate.models.regressions.robust import Student

DEFAULT_PRIOR = "normal(0, 2.5)"
DEFAULT_SCALE_PRIOR = "half_cauchy(2.5)"
DEFAULT_DF_PRIOR = "gamma(2, 0.1)"
DEFAULT_SD_PRIOR = "half_student_t(3, 2.5)"

Regression = GeneralisedLinearModel | GroupedRegression
Groups = str | Level | Sequence[Level] | None


def linear(
    columns: int | Sequence[str] | Design,
    prior: str = DEFAULT_PRIOR,
    *,
    priors: Mapping[str, str] | None = None,
    scale_prior: str = DEFAULT_SCALE_PRIOR,
    groups: Groups = None,
    varying: Sequence[str] = ("Intercept",),
    sd_prior: str | Mapping[str, str] = DEFAULT_SD_PRIOR,
    lkj: float | None = 1.0,
) -> Regression:
    """y ~ N(Xβ, σ²): `sigma` has `scale_prior`. See `logistic` for the rest."""
    grouping = _Grouping(groups, tuple(varying), sd_prior, lkj)
    return _regression(Linear(), columns, prior, priors, (scale_prior,), grouping)


def logistic(
    columns: int | Sequence[str] | Design,
    prior: str = DEFAULT_PRIOR,
    *,
    priors: Mapping[str, str] | None = None,
    groups: Groups = None,
    varying: Sequence[str] = ("Intercept",),
    sd_prior: str | Mapping[str, str] = DEFAULT_SD_PRIOR,
    lkj: float | None = 1.0,
) -> Regression:
    """P(y = 1) = expit(Xβ); with `trials`, y successes in so many trials.

    Parameters
    ----------
    columns
        A formula that has learned its encoding, `design("late ~ hour + (1 | plane)", table)`: the
        model then reads tables, and `groups` and `varying` follow from the formula. Or names of the
        columns of X, or their number; no intercept is added then: give a column of ones.
    prior
        Prior of every coefficient, in words: `normal(0, 2.5)`, `student_t(4, 0, 2.5)`,
        `cauchy(0, 1)`, `laplace(0, 1)` or `flat`. The default suits columns of unit scale.
    priors
        Priors of particular parameters, by name: of a coefficient, of all coefficients of a term of
        the formula, of a scale such as `sigma`, of one standard deviation such as
        `sd_county__Intercept`, or of all of a group, `sd_county`.
    groups
        The column that defines groups, each of which has coefficients u ~ N(0, Σ) of its own; or a
        `Level`, or two that nest, the outer one first. Rows are cut by the outer column.
    varying
        The coefficients that each group has: names for the columns of `Z`. By default each group
        has an intercept, and `Z` may be left out.
    sd_prior
        Prior of the standard deviations of these coefficients, in words: `half_normal(1)`,
        `half_cauchy(1)`, `half_student_t(3, 2.5)`, `exponential(1)` and others; or several of them
        by name, such as `{"sd_county__Intercept": "half_normal(1)"}`.
    lkj
        Shape η of the LKJ prior of their correlations; None for coefficients without correlation.

    Notes
    -----
    Rows may have `weights`, `trials` and an `offset`, as arrays of the data or in the formula:
    `y | trials(n) + weights(w) ~ x + offset(z)`. A weight multiplies the log-likelihood of its row,
    so a row with weight 3 counts as three equal rows. It does not say how precise a row is.
    """
    grouping = _Grouping(groups, tuple(varying), sd_prior, lkj)
    return _regression(Logistic(), columns, prior, priors, (), grouping)


def poisson(
    columns: int | Sequence[str] | Design,
    prior: str = DEFAULT_PRIOR,
    *,
    priors: Mapping[str, str] | None = None,
    groups: Groups = None,
    varying: Sequence[str] = ("Intercept",),
    sd_prior: str | Mapping[str, str] = DEFAULT_SD_PRIOR,
    lkj: float | None = 1.0,
) -> Regression:
    """y ~ Poisson(exp(Xβ)). See `logistic` for the parameters."""
    grouping = _Grouping(groups, tuple(varying), sd_prior, lkj)
    return _regression(Poisson(), columns, prior, priors, (), grouping)


def negative_binomial(
    columns: int | Sequence[str] | Design,
    prior: str = DEFAULT_PRIOR,
    *,
    scale_prior: str = DEFAULT_SCALE_PRIOR,
    priors: Mapping[str, str] | None = None,
    groups: Groups = None,
    varying: Sequence[str] = ("Intercept",),
    sd_prior: str | Mapping[str, str] = DEFAULT_SD_PRIOR,
    lkj: float | None = 1.0,
) -> Regression:
    """Counts with mean μ = exp(Xβ) and variance μ + μ²/φ: `phi` has `scale_prior`.

    See `logistic` for the other parameters.
    """
    grouping = _Grouping(groups, tuple(varying), sd_prior, lkj)
    return _regression(NegativeBinomial(), columns, prior, priors, (scale_prior,), grouping)


def student(
    columns: int | Sequence[str] | Design,
    prior: str = DEFAULT_PRIOR,
    *,
    priors: Mapping[str, str] | None = None,
    scale_prior: str = DEFAULT_SCALE_PRIOR,
    df_prior: str = DEFAULT_DF_PRIOR,
) -> GeneralisedLinearModel:
    """Robust regression, y ~ Xβ + σ t_ν: `sigma` has `scale_prior`, and `nu` has `df_prior`.

    Rows far from the rest hardly move the coefficients. Groups are not supported. See `logistic`
    for the other parameters.
    """
    fixed = generalised_linear_model(Student(), columns, prior, priors, (scale_prior, df_prior))
    require(
        fixed.encoding is None or not fixed.encoding.levels,
        "The family student cannot have groups: its log-likelihood is not concave, so a group may "
        "have several modes. Use the family gaussian, or write the model with from_bambi or "
        "from_numpyro.",
    )
    return fixed


FAMILIES: Mapping[str, Callable[..., Regression]] = MappingProxyType(
    {
        "linear": linear,
        "logistic": logistic,
        "poisson": poisson,
        "negative_binomial": negative_binomial,
        "student": student,
        "gaussian": linear,
        "bernoulli": logistic,
        "binomial": logistic,
    }
)


def regression(
    columns: int | Sequence[str] | Design, family: str = "gaussian", **options: Any
) -> Regression:
    """The regression of a family that is given by name, as on the command line.

    Parameters
    ----------
    columns, options
        As for `logistic`, or for the function of the family: `linear`, `poisson`,
        `negative_binomial` or `student`.
    family
        `gaussian` or `linear`; `bernoulli`, `binomial` or `logistic`; `poisson`;
        `negative_binomial`; `student`.
    """
    require_family(family)
    return FAMILIES[family](columns, **options)


def require_family(family: str) -> None:
    """Raise unless there is a family of this name."""
    require(
        family in FAMILIES,
        f"No family is named {family!r}. Choose one of {', '.join(FAMILIES)}. bambi has more: "
        "build the model there, and give it to from_bambi.",
    )


@dataclass(frozen=True)
class _Grouping:
    """What users say of groups."""

    groups: Groups
    varying: tuple[str, ...]
    sd_prior: str | Mapping[str, str]
    lkj: float | None

    def levels(self, encoding: Design | None) -> tuple[Level, ...]:
        """The levels of groups, outer level first."""
        if encoding is not None:
            require(self.groups is None, "The formula has the groups. Leave out `groups`.")
            return encoding.levels
        return _levels(self.groups, self.varying, self.lkj)


def _regression(
    family: Family,
    columns: int | Sequence[str] | Design,
    prior: str,
    priors: Mapping[str, str] | None,
    scale_priors: Sequence[str],
    grouping: _Grouping,
) -> Regression:
    levels = grouping.levels(columns if isinstance(columns, Design) else None)
    of_level = {f"sd_{one.name}": _sds(one) for one in levels}
    sds = [sd for names in of_level.values() for sd in names]
    names, terms = named_coefficients(columns)
    known = [*names, *family.scale_names, *sds]
    chosen = spread_over(priors or {}, known, {**terms, **of_level})
    of_sds = {name: words for name, words in chosen.items() if name in sds}
    others = {name: words for name, words in chosen.items() if name not in of_sds}
    fixed = generalised_linear_model(family, columns, prior, others, scale_priors)
    if not levels:
        return fixed
    require_own_names(names, sds)
    _require_nested(levels)
    _require_few(fixed.family, levels)
    lkj = grouping.lkj
    require(lkj is None or lkj > 0, f"lkj must be above 0, not {lkj}.")
    return GroupedRegression(fixed, _covariances(levels, grouping.sd_prior, of_sds, lkj or 1.0))


def _sds(level: Level) -> list[str]:
    return [f"sd_{level.name}__{name}" for name in level.names]


def _levels(groups: Groups, varying: tuple[str, ...], lkj: float | None) -> tuple[Level, ...]:
    if groups is None:
        return ()
    if isinstance(groups, str):
        require(bool(varying), "varying is empty. Name the coefficients that each group has.")
        blocks = (1,) * len(varying) if lkj is None else (len(varying),)
        return (Level(groups, varying, blocks),)
    return (groups,) if isinstance(groups, Level) else tuple(groups)


def _require_nested(levels: Sequence[Level]) -> None:
    """Raise if there are more than two levels, or if two do not nest by their names."""
    names = [level.name for level in levels]
    require(len(levels) <= 2, f"Groups may have two levels that nest, not {', '.join(names)}.")
    require(
        len(levels) == 1 or names[1].startswith(f"{names[0]}:"),
        f"Groups of {names[-1]} must lie within those of {names[0]}. Name the inner level "
        f"{names[0]}:{names[-1]}, after both columns, if they do.",
    )


def _require_few(family: Family, levels: Sequence[Level]) -> None:
    """Raise if an integral has too many dimensions for nodes; linear models need none."""
    q = sum(len(level.names) for level in levels)
    names = " and of ".join(level.name for level in levels)
    whose = "Each group" if len(levels) == 1 else "Groups"
    require(
        q <= MOST_DIMENSIONS or isinstance(family, Linear),
        f"{whose} of {names} {'has' if len(levels) == 1 else 'together have'} {q} coefficients, "
        f"and may have {MOST_DIMENSIONS}: the number of nodes grows with a power of this. Let "
        "fewer of them vary.",
    )


def _covariances(
    levels: Sequence[Level],
    sd_prior: str | Mapping[str, str],
    particular: Mapping[str, str],
    lkj: float,
) -> tuple[Covariance, ...]:
    names = [_sds(level) for level in levels]
    known = [name for of_level in names for name in of_level]
    given = dict.fromkeys(known, sd_prior) if isinstance(sd_prior, str) else dict(sd_prior)
    unknown = sorted(set(given) - set(known))
    require(not unknown, f"No standard deviation named {unknown}. They are {', '.join(known)}.")
    given |= particular
    return tuple(
        Covariance(
            level, tuple(parse(given.get(name, DEFAULT_SD_PRIOR), "scale") for name in own), lkj
        )
        for level, own in zip(levels, names, strict=True)
    )
