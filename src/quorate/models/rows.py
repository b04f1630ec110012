"""What a model says about single rows: their log-likelihoods, and draws of their responses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import Array, IntArray
from quorate.errors import BadInputError, require
from quorate.models.groups.levels import Uniforms, levels_of
from quorate.models.observed import extras_of
from quorate.models.protocol import Model, Shard
from quorate.models.regressions.family import Family

Ability = Literal["log_likelihood", "responses", "prior_draws"]
Seeds = NDArray[np.uint32]


class Random(Protocol):
    """Random numbers for the responses of some rows, at each of n points."""

    def uniforms(self, n_rows: int) -> Array:
        """Uniforms in (0, 1), one for each point and row: (n_points, n_rows)."""

    def seeds(self) -> Seeds:
        """Seeds of another generator, for each point: (n_points, 2)."""


class RowsAt(Protocol):
    """Some rows at n points."""

    def log_likelihoods(self) -> Array:
        """Log-likelihood of each row at each point, (n_points, n_rows)."""

    def expected(self) -> Array | None:
        """Mean of the response of each row, (n_points, n_rows); None if the model tells none."""

    def responses(self, random: Random) -> dict[str, Array]:
        """A draw of what is observed, by name: (n_points, n_rows, ...) each."""

    def observed(self) -> dict[str, Array]:
        """What was observed, by name: (n_rows, ...) each. Other arrays may be there, too."""


class RowModel(Model, Protocol):
    """A model without groups that knows its rows."""

    def rows_at(self, points: Array, rows: Shard) -> RowsAt:
        """Rows at points (n, dim). Rows whose responses are drawn need not hold any."""


class GroupedRowModel(Model, Protocol):
    """A model with groups that knows its rows."""

    def group_log_likelihoods(self, points: Array, shard: Shard, groups: IntArray) -> Array:
        """Integrated log-likelihoods of all rows of each of some groups, (n_points, m)."""

    def rows_of_groups(
        self,
        points: Array,
        shard: Shard,
        groups: IntArray,
        uniforms: Uniforms,
        of_prior: bool = False,
    ) -> tuple[IntArray, RowsAt]:
        """Places of the rows of some groups of a shard, and these rows.

        The parameters of the groups are drawn given the rows, as by `GroupedModel.local_draws`; or
        from their prior given the points.
        """


class PriorModel(Model, Protocol):
    """A model that draws from its prior."""

    def prior_draws(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of the unconstrained parameters from the prior, (n, dim)."""


_METHODS: dict[tuple[Ability, bool], str] = {
    ("log_likelihood", False): "rows_at",
    ("log_likelihood", True): "rows_of_groups",
    ("responses", False): "rows_at",
    ("responses", True): "rows_of_groups",
    ("prior_draws", False): "prior_draws",
    ("prior_draws", True): "prior_draws",
}
_PURPOSES: dict[Ability, str] = {
    "log_likelihood": "tell the log-likelihood of single rows",
    "responses": "draw responses",
    "prior_draws": "draw from its prior",
}


def require_ability(model: Model, ability: Ability) -> None:
    """Raise unless a model can do something, and say what it lacks."""
    lacks = getattr(model, "lacks", None)
    message = "" if lacks is None else lacks(ability)
    if message:
        raise BadInputError(message)
    method = _METHODS[ability, bool(levels_of(model))]
    if not hasattr(model, method):
        raise BadInputError(
            f"{type(model).__name__} cannot {_PURPOSES[ability]}: it has no method `{method}`. "
            "See `quorate.models.rows`."
        )


@dataclass(frozen=True)
class RegressionRows:
    """Rows of a regression, with the linear predictor of each at each point.

    Parameters
    ----------
    family
        The family of the regression.
    eta
        The linear predictor, (n_points, n_rows).
    log_scales
        Logarithms of the scales of the family at each point, (n_points, k).
    response
        y, (n_rows,); None if it is not known.
    trials, weights
        Of the rows, (n_rows,) each, if they have any. A weight multiplies a log-likelihood.
    """

    family: Family
    eta: Array
    log_scales: Array
    response: Array | None
    trials: Array | None = None
    weights: Array | None = None

    def log_likelihoods(self) -> Array:
        return self._weighted(self.family.log_densities)

    def outside(self) -> Array:
        """The part of log-likelihoods that integrals over parameters of groups leave out."""
        return self._weighted(self.family.outside)

    def _weighted(self, densities: Callable[..., Array]) -> Array:
        assert self.response is not None
        with np.errstate(all="ignore"):  # a few points may be far out
            found = densities(self.eta, self.log_scales[:, None], self.response, self.trials)
        return found if self.weights is None else found * self.weights

    def expected(self) -> Array:
        return self.family.expected(self.eta, self.trials)

    def responses(self, random: Random) -> dict[str, Array]:
        uniforms = random.uniforms(self.eta.shape[1])
        scales = self.log_scales[:, None]
        return {"y": self.family.responses(self.eta, scales, uniforms, self.trials)}

    def observed(self) -> dict[str, Array]:
        return {} if self.response is None else {"y": self.response}


def regression_rows(family: Family, eta: Array, log_scales: Array, rows: Shard) -> RegressionRows:
    """Rows of a regression, with what they hold beside X."""
    extras = extras_of(rows, eta.shape[1])
    extras.pop("offset", None)  # which η has
    return RegressionRows(family, eta, log_scales, response_of(rows), **extras)


def new_rows(model: Model, rows: Any) -> Shard:
    """Rows that a user gives, as the model takes them; what was observed may be missing."""
    require_table(rows)
    if not isinstance(rows, Mapping):
        names = getattr(rows, "column_names", rows.columns)  # of Arrow; of pandas or polars
        rows = {str(name): np.asarray(rows[name]) for name in names}
    read = getattr(model, "new_rows", None)
    if read is None:
        require_equal_lengths(rows)
    arrays: Shard = rows if read is None else read(rows)
    return {name: np.asarray(array) for name, array in arrays.items()}


def require_table(rows: Any) -> None:
    """Refuse rows that are no columns by name."""
    way = "Read the file first. " if isinstance(rows, str | Path) else ""
    require(
        isinstance(rows, Mapping) or hasattr(rows, "columns"),
        f"Rows cannot be a {type(rows).__name__}. {way}Give a table, such as a DataFrame, or a "
        "dictionary of arrays by name. For one row of a DataFrame, use df.iloc[[0]].",
    )


def require_equal_lengths(columns: Mapping[str, Any]) -> None:
    """Refuse columns of which some have more rows than others."""
    for name, column in columns.items():
        require(
            np.ndim(column) > 0,
            f"`{name}` is one value, {column!r}. Give a list with a value for each row, such as "
            f"[{column!r}].",
        )
    lengths = {name: len(column) for name, column in columns.items()}
    require(
        len(set(lengths.values())) <= 1,
        f"Columns differ in length: {lengths}. Give each of them a value for each row.",
    )


def response_of(rows: Mapping[str, Any]) -> Array | None:
    """y of some rows, if they hold it."""
    return np.asarray(rows["y"], dtype=np.float64) if "y" in rows else None


def some_of(shard: Shard, places: IntArray | slice) -> dict[str, NDArray[Any]]:
    """Some rows of a shard."""
    return {name: array[places] for name, array in shard.items()}
