"""Ready-made regressions, with or without groups that have coefficients of their own."""

from collections.abc import Mapping, Sequence

from quorate.errors import require
from quorate.models.families import Family, Linear, Logistic, NegativeBinomial, Poisson
from quorate.models.formula import Design
from quorate.models.glm import GeneralisedLinearModel, generalised_linear_model
from quorate.models.groups.levels import Level
from quorate.models.groups.quadrature import MOST_DIMENSIONS
from quorate.models.groups.regressions.covariance import Covariance
from quorate.models.groups.regressions.regression import GroupedRegression
from quorate.models.priors import parse

DEFAULT_PRIOR = "normal(0, 2.5)"
DEFAULT_SCALE_PRIOR = "half_cauchy(2.5)"
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
    fixed = generalised_linear_model(Linear(), columns, prior, priors, scale_prior)
    return _with_groups(fixed, groups, varying, sd_prior, lkj)


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
    """P(y = 1) = expit(Xβ).

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
        Priors of particular coefficients, by name.
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
    """
    fixed = generalised_linear_model(Logistic(), columns, prior, priors, None)
    return _with_groups(fixed, groups, varying, sd_prior, lkj)


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
    fixed = generalised_linear_model(Poisson(), columns, prior, priors, None)
    return _with_groups(fixed, groups, varying, sd_prior, lkj)


def negative_binomial(
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
    """Counts with mean μ = exp(Xβ) and variance μ + μ²/φ: `phi` has `scale_prior`.

    See `logistic` for the other parameters.
    """
    fixed = generalised_linear_model(NegativeBinomial(), columns, prior, priors, scale_prior)
    return _with_groups(fixed, groups, varying, sd_prior, lkj)


def _with_groups(
    fixed: GeneralisedLinearModel,
    groups: Groups,
    varying: Sequence[str],
    sd_prior: str | Mapping[str, str],
    lkj: float | None,
) -> Regression:
    encoding = fixed.encoding
    if encoding is not None:
        require(groups is None, "The formula has the groups. Leave out `groups`.")
        groups = encoding.levels
    levels = _levels(groups, tuple(varying), lkj)
    if not levels:
        return fixed
    _require_nested(levels)
    _require_few(fixed.family, levels)
    require(lkj is None or lkj > 0, f"lkj must be above 0, not {lkj}.")
    return GroupedRegression(fixed, _covariances(levels, sd_prior, lkj or 1.0))


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
    levels: Sequence[Level], sd_prior: str | Mapping[str, str], lkj: float
) -> tuple[Covariance, ...]:
    names = [[f"sd_{level.name}__{name}" for name in level.names] for level in levels]
    known = [name for of_level in names for name in of_level]
    given = dict.fromkeys(known, sd_prior) if isinstance(sd_prior, str) else dict(sd_prior)
    unknown = sorted(set(given) - set(known))
    require(not unknown, f"No standard deviation named {unknown}. They are {', '.join(known)}.")
    return tuple(
        Covariance(
            level, tuple(parse(given.get(name, DEFAULT_SD_PRIOR), "scale") for name in own), lkj
        )
        for level, own in zip(levels, names, strict=True)
    )
