"""Generalised linear models in numpy, with gradients and priors given in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from quorate._types import Array, IntArray
from quorate._words import counted
from quorate.errors import BadInputError, require
from quorate.models.axes import Axes
from quorate.models.checks import settled, settled_gradient
from quorate.models.formulas.axes import axes_of_columns
from quorate.models.formulas.design import Design
from quorate.models.many_points import Values
from quorate.models.memo import PerShard
from quorate.models.observed import Observed, extras_of
from quorate.models.prior_draws import drawn
from quorate.models.priors import Prior, parse
from quorate.models.protocol import Shard
from quorate.models.regressions.family import Family, Value
from quorate.models.regressions.particular_priors import spread_over
from quorate.models.rows import RegressionRows, regression_rows


@dataclass(frozen=True)
class GeneralisedLinearModel:
    """Coefficients β of the columns of X, and the scale parameters of the family.

    The unconstrained vector is β followed by the logarithms of the scales. A shard holds `X` (n, p)
    and `y` (n,), and may hold `weights`, `trials` and `offset`, (n,) each; see
    `quorate.models.observed.Observed`. A model of a formula has its `encoding`, by which it reads
    tables. `df_prior` is that of a second scale parameter, the degrees of freedom of `Student`.
    """

    family: Family
    columns: tuple[str, ...]
    priors: tuple[Prior, ...]  # one for each column
    scale_prior: Prior | None
    encoding: Design | None = None
    df_prior: Prior | None = None
    runs_in_threads: ClassVar[bool] = True

    @property
    def dim(self) -> int:
        return len(self.columns) + len(self.scale_priors)

    @property
    def scale_priors(self) -> tuple[Prior, ...]:
        """Priors of the scale parameters of the family."""
        return tuple(prior for prior in (self.scale_prior, self.df_prior) if prior is not None)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.columns, *(f"log({name})" for name in self.family.scale_names))

    def without_encoding(self) -> "GeneralisedLinearModel":
        """A copy of this model for rows that are encoded already."""
        return replace(self, encoding=None)

    def on_device(self) -> "GeneralisedLinearModel":
        """A copy of this model with the rows of shards on the JAX device, where that is faster."""
        from quorate.models.regressions.compiled import compiled

        return compiled(self)

    @property
    def axes(self) -> Axes:
        """Levels of the factors of a formula."""
        return Axes() if self.encoding is None else axes_of_columns(self.columns)

    def initial(self) -> Array:
        return np.zeros(self.dim)

    def log_prior(self, x: Array) -> float:
        return self._prior(x)[0]

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        return self._prior(x)

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        value = self._evaluate(x, shard, gradient=False)
        return settled("log_likelihood", value.log_likelihood, x, self.names)

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        value = self._evaluate(x, shard, gradient=True)
        scales = np.atleast_1d(value.log_scales)[: len(self.scale_priors)]
        assert value.coefficients is not None
        gradient = np.concatenate([value.coefficients, scales])
        number = settled("log_likelihood", value.log_likelihood, x, self.names)
        return number, settled_gradient("log_likelihood", number, gradient, x, self.names)

    def log_prior_many(self, points: Array) -> Array:
        return self.log_prior_and_gradient_many(points)[0]

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        totals, gradients = np.zeros(len(points)), np.zeros((len(points), self.dim))
        with np.errstate(all="ignore"):
            for prior, where in self._groups:
                density, gradients[:, where] = prior.log_density(points[:, where])
                totals += density.sum(axis=1)
            for i, prior in enumerate(self.scale_priors, len(self.columns)):
                scales = np.exp(points[:, i])
                density, derivative = prior.log_density(scales)
                totals += density + points[:, i]  # + x: the Jacobian of scale = exp x
                gradients[:, i] = derivative * scales + 1
        return totals, gradients

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        return self._evaluate_many(points, shard, gradient=False).log_likelihoods

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        values = self._evaluate_many(points, shard, gradient=True)
        assert values.coefficients is not None
        if values.log_scales is None:
            return values.log_likelihoods, values.coefficients
        return values.log_likelihoods, np.column_stack([values.coefficients, values.log_scales])

    def constrain(self, draws: Array) -> dict[str, Array]:
        named = {name: draws[..., i] for i, name in enumerate(self.columns)}
        for i, name in enumerate(self.family.scale_names, len(self.columns)):
            named[name] = np.exp(draws[..., i])
        return named

    def log_scales(self, points: Array) -> Array:
        """Logarithms of the scales at each point, (n, k); one column of 0 if there are none."""
        if not self.scale_priors:
            return np.zeros((len(points), 1))
        return points[:, len(self.columns) : len(self.columns) + len(self.scale_priors)]

    def predictors(self, points: Array, rows: Mapping[str, Any]) -> Array:
        """η = Xβ, and the offset if rows have one, at each point: (n_points, n_rows)."""
        columns = numbers("X", rows["X"])
        p, got = len(self.columns), f"X has shape {columns.shape}"
        require(columns.ndim == 2 and columns.shape[1] == p, f"{got}. It needs {p} columns.")
        offset = extras_of(rows, len(columns)).get("offset", 0.0)
        return np.asarray(points[:, :p] @ columns.T + offset)

    def rows_at(self, points: Array, rows: Shard) -> RegressionRows:
        eta, scales = self.predictors(points, rows), self.log_scales(points)
        return regression_rows(self.family, eta, scales, rows)

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        named = zip(self.priors, self.columns, strict=True)
        draws = [drawn(prior, n, rng, name) for prior, name in named]
        for scale, prior in zip(self.family.scale_names, self.scale_priors, strict=True):
            draws.append(np.log(drawn(prior, n, rng, scale)))
        return np.column_stack(draws)

    def _evaluate(self, x: Array, shard: Shard, *, gradient: bool) -> Value:
        beta, log_scales = x[: len(self.columns)], self.log_scales(x[None])[0]
        # Far from the data exp overflows to inf and the log-likelihood is -inf, as it should be.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.family.evaluate(self._kept(shard), beta, log_scales, gradient)

    def _evaluate_many(self, points: Array, shard: Shard, *, gradient: bool) -> Values:
        betas = points[:, : len(self.columns)]
        with np.errstate(all="ignore"):  # a few points may be far out
            log_scales = self.log_scales(points)
            return self.family.evaluate_many(self._kept(shard), betas, log_scales, gradient)

    def _prior(self, x: Array) -> tuple[float, Array]:
        total, gradient = 0.0, np.zeros(self.dim)
        for prior, where in self._groups:
            density, derivative = prior.log_density(x[where])
            total += float(density.sum())
            gradient[where] = derivative
        for i, prior in enumerate(self.scale_priors, len(self.columns)):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                scale = np.exp(x[i : i + 1])
                density, derivative = prior.log_density(scale)
                total += float(density[0] + x[i])  # + x: the Jacobian of scale = exp x
                gradient[i] = derivative[0] * scale[0] + 1
        number = settled("log_prior", total, x, self.names)
        return number, settled_gradient("log_prior", number, gradient, x, self.names)

    @cached_property
    def _groups(self) -> tuple[tuple[Prior, IntArray], ...]:
        """Priors, each with the coefficients that share it, so that each is evaluated once."""
        return tuple(
            (prior, np.array([i for i, other in enumerate(self.priors) if other == prior]))
            for prior in dict.fromkeys(self.priors)
        )

    @cached_property
    def _kept(self) -> PerShard[Any]:
        return PerShard(Prepare(self.family, self.columns))


@dataclass(frozen=True)
class Prepare:
    """Check a shard and let the family prepare it."""

    family: Family
    columns: tuple[str, ...]

    def __call__(self, shard: Shard) -> Any:
        return self.family.prepare(self.checked(shard))

    def checked(self, shard: Shard) -> Observed:
        """The rows of a shard."""
        lacking = [name for name in ("X", "y") if name not in shard]
        if lacking:
            raise BadInputError(
                f"No array named `{lacking[0]}`. The data are {', '.join(sorted(shard))}; a "
                "generalised linear model needs `X` (n, p) and `y` (n,)."
            )
        columns, response = (numbers(name, shard[name]) for name in ("X", "y"))
        p, got = len(self.columns), f"X has shape {columns.shape}"
        require(columns.ndim == 2 and columns.shape[1] == p, f"{got}. It needs {p} columns.")
        right = response.shape == columns.shape[:1]
        require(right, f"{got} and y has shape {response.shape}. Each row needs one y.")
        for name, column in zip(self.columns, columns.T, strict=True):
            finite = np.isfinite(column)
            if not finite.all():
                row = int(np.argmin(finite))
                what = f"Column `{name}` of X is {column[row]} in row {row}."
                raise BadInputError(f"{what} It must be finite: drop or fill such rows.")
        missing = np.isnan(response)
        if missing.any():
            raise BadInputError(
                f"y is missing in {counted(int(missing.sum()), 'row')}, the first being row "
                f"{np.argmax(missing)}. "
                "Drop or fill those rows."
            )
        return Observed(columns, response, **extras_of(shard, len(response)))


def generalised_linear_model(
    family: Family,
    columns: int | Sequence[str] | Design,
    prior: str,
    priors: Mapping[str, str] | None,
    scale_priors: Sequence[str],
) -> GeneralisedLinearModel:
    """A model with priors in words, as users give them; see `quorate.models.logistic`."""
    encoding = columns if isinstance(columns, Design) else None
    names, terms = named_coefficients(columns)
    require(len(names) >= 1, f"A model needs at least one column, not {columns!r}.")
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, f"Names of columns must differ. Rename {', '.join(twice)}.")
    require_own_names(names, family.scale_names)
    chosen = spread_over(priors or {}, [*names, *family.scale_names], terms)
    scales = [
        parse(chosen.get(name, words), "scale")
        for name, words in zip(family.scale_names, scale_priors, strict=True)
    ]
    return GeneralisedLinearModel(
        family,
        names,
        tuple(parse(chosen.get(name, prior), "coefficient") for name in names),
        scales[0] if scales else None,
        encoding,
        scales[1] if len(scales) > 1 else None,
    )


def require_own_names(columns: Sequence[str], others: Sequence[str]) -> None:
    """Refuse columns that are named like another parameter: results have one entry for a name."""
    taken = [name for name in columns if name in others]
    require(
        not taken,
        f"`{', '.join(taken)}` is a column here, and a parameter of the model has the same name. "
        "Rename the column.",
    )


def named_coefficients(
    columns: int | Sequence[str] | Design,
) -> tuple[tuple[str, ...], Mapping[str, Sequence[str]]]:
    """Names of all coefficients, and of those of each term of a formula."""
    if isinstance(columns, Design):
        return columns.names, dict(columns.terms)
    if isinstance(columns, int):
        return tuple(f"beta[{i}]" for i in range(columns)), {}
    return tuple(columns), {}


def numbers(name: str, array: Any) -> Array:
    """An array of a shard as floats; text is refused."""
    dtype = np.asarray(array).dtype
    require(
        dtype.kind in "buif",
        f"{name} has type {dtype}. It must hold numbers: encode text as numbers first, or use a "
        "formula.",
    )
    return np.asarray(array, dtype=np.float64)
