"""Generalised linear models in numpy, with gradients and priors given in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.models.axes import Axes
from quorate.models.checks import settled, settled_gradient
from quorate.models.families import Family, Value
from quorate.models.formula import Design
from quorate.models.formula_axes import axes_of_columns
from quorate.models.many_points import Values
from quorate.models.memo import PerShard
from quorate.models.prior_draws import drawn
from quorate.models.priors import Prior, parse
from quorate.models.protocol import Shard
from quorate.models.rows import RegressionRows, response_of


@dataclass(frozen=True)
class GeneralisedLinearModel:
    """Coefficients β of the columns of X and, if the family has one, a scale parameter.

    The unconstrained vector is β followed by the logarithm of the scale. A shard holds `X` (n, p)
    and `y` (n,). A model of a formula has its `encoding`, by which it reads tables.
    """

    family: Family
    columns: tuple[str, ...]
    priors: tuple[Prior, ...]  # one for each column
    scale_prior: Prior | None
    encoding: Design | None = None

    @property
    def dim(self) -> int:
        return len(self.columns) + (self.scale_prior is not None)

    @cached_property
    def names(self) -> tuple[str, ...]:
        scale = self.family.scale_name
        return self.columns if scale is None else (*self.columns, f"log({scale})")

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
        scale = [] if self.scale_prior is None else [value.log_scale]
        assert value.coefficients is not None
        gradient = np.concatenate([value.coefficients, scale])
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
            if self.scale_prior is not None:
                scales = np.exp(points[:, -1])
                density, derivative = self.scale_prior.log_density(scales)
                totals += density + points[:, -1]  # + x: the Jacobian of scale = exp x
                gradients[:, -1] = derivative * scales + 1
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
        if self.family.scale_name is not None:
            named[self.family.scale_name] = np.exp(draws[..., -1])
        return named

    def log_scales(self, points: Array) -> Array:
        """Logarithm of the scale at each point, (n,); 0 if the family has none."""
        if self.scale_prior is None:
            return np.zeros(len(points))
        return points[:, len(self.columns)]

    def predictors(self, points: Array, rows: Mapping[str, Any]) -> Array:
        """η = Xβ at each point, in each row: (n_points, n_rows)."""
        columns = numbers("X", rows["X"])
        p, got = len(self.columns), f"X has shape {columns.shape}"
        require(columns.ndim == 2 and columns.shape[1] == p, f"{got}. It needs {p} columns.")
        return np.asarray(points[:, :p] @ columns.T)

    def rows_at(self, points: Array, rows: Shard) -> RegressionRows:
        eta, scales = self.predictors(points, rows), self.log_scales(points)
        return RegressionRows(self.family, eta, scales, response_of(rows))

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        named = zip(self.priors, self.columns, strict=True)
        draws = [drawn(prior, n, rng, name) for prior, name in named]
        if self.scale_prior is not None:
            scale = str(self.family.scale_name)
            draws.append(np.log(drawn(self.scale_prior, n, rng, scale)))
        return np.column_stack(draws)

    def _evaluate(self, x: Array, shard: Shard, *, gradient: bool) -> Value:
        beta = x[: len(self.columns)]
        log_scale = 0.0 if self.scale_prior is None else float(x[-1])
        # Far from the data exp overflows to inf and the log-likelihood is -inf, as it should be.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.family.evaluate(self._kept(shard), beta, log_scale, gradient)

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
        if self.scale_prior is not None:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                scale = np.exp(x[-1:])
                density, derivative = self.scale_prior.log_density(scale)
                total += float(density[0] + x[-1])  # + x: the Jacobian of scale = exp x
                gradient[-1] = derivative[0] * scale[0] + 1
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
        return self.family.prepare(*self.checked(shard))

    def checked(self, shard: Shard) -> tuple[Array, Array]:
        """`X` and `y` of a shard."""
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
                f"y is missing in {missing.sum()} rows, the first being row {np.argmax(missing)}. "
                "Drop or fill those rows."
            )
        return columns, response


def generalised_linear_model(
    family: Family,
    columns: int | Sequence[str] | Design,
    prior: str,
    priors: Mapping[str, str] | None,
    scale_prior: str | None,
) -> GeneralisedLinearModel:
    """A model with priors in words, as users give them; see `quorate.models.logistic`."""
    encoding = columns if isinstance(columns, Design) else None
    if isinstance(columns, Design):
        names = columns.names
    elif isinstance(columns, int):
        names = tuple(f"beta[{i}]" for i in range(columns))
    else:
        names = tuple(columns)
    require(len(names) >= 1, f"A model needs at least one column, not {columns!r}.")
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, f"Names of columns must differ. Rename {', '.join(twice)}.")
    particular = dict(priors or {})
    unknown = sorted(set(particular) - set(names))
    if unknown:
        message = f"No column named `{unknown[0]}` for a prior. The columns are {', '.join(names)}."
        raise BadInputError(message)
    return GeneralisedLinearModel(
        family,
        names,
        tuple(parse(particular.get(name, prior), "coefficient") for name in names),
        None if scale_prior is None else parse(scale_prior, "scale"),
        encoding,
    )


def numbers(name: str, array: Any) -> Array:
    """An array of a shard as floats; text is refused."""
    dtype = np.asarray(array).dtype
    require(
        dtype.kind in "buif",
        f"{name} has type {dtype}. It must hold numbers: encode text as numbers first, or use a "
        "formula.",
    )
    return np.asarray(array, dtype=np.float64)
