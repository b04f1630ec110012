"""What a model predicts of some rows, and what it takes to predict them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._extras import load
from quorate._types import Array
from quorate.data.label_text import texts_of
from quorate.errors import require
from quorate.models.rows import Seeds
from quorate.results.level_summary import require_interval
from quorate.results.local import LocalDraws
from quorate.results.some_draws import scattered

if TYPE_CHECKING:
    import pandas as pd

INTERVAL = 0.94
OfLevels = tuple[tuple[NDArray[Any], Array], ...]  # labels, and parameters (n, m, r), by level


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of some rows, draw by draw.

    Parameters
    ----------
    expected
        The mean of the response given the parameters, (n_draws, n_rows); None if the model does
        not tell it.
    responses
        Draws of the response itself, (n_draws, n_rows).
    is_new
        Rows whose group the run does not know on some level, (n_rows,).
    """

    expected: Array | None
    responses: Array
    is_new: NDArray[np.bool_]

    def summary(self, interval: float = INTERVAL) -> "pd.DataFrame":
        """Mean, sd and equal-tailed intervals of the expected response and of the response.

        Where the model does not tell what to expect, mean and sd are those of the response.

        Parameters
        ----------
        interval
            Probability of the intervals.
        """
        require_interval(interval)
        shape = self.responses.shape
        require(len(shape) == 2, f"Rows have responses of shape {shape[2:]}. Use `responses`.")
        tails = [(1 - interval) / 2, (1 + interval) / 2]
        response_low, response_high = np.quantile(self.responses, tails, axis=0)
        shown = self.responses if self.expected is None else self.expected
        columns = {"mean": shown.mean(axis=0), "sd": shown.std(axis=0)}
        if self.expected is not None:
            low, high = np.quantile(self.expected, tails, axis=0)
            columns |= {"lower": low, "upper": high}
        columns |= {"response_lower": response_low, "response_upper": response_high}
        if self.expected is not None or self.is_new.any():
            columns["new_group"] = self.is_new
        frame: pd.DataFrame = load("pandas", "arviz").DataFrame(columns)
        return frame


class Known(Protocol):
    """Asks the workers for draws of known groups: `LocalParameters.joint`."""

    def labels(self, level: int = 0) -> NDArray[Any]:
        """Labels of the groups that the run knows, of the outer level by default."""

    def columns(self) -> list[NDArray[Any]]:
        """Labels in each column that tells groups apart: outer ones, and inner ones within."""

    def joint(self, groups: Any, n: int | None = None, **asked: Any) -> LocalDraws:
        """Draws of the parameters of some groups, with the draws they go with."""


@dataclass(frozen=True)
class DrawsWithGroups:
    """Draws of a run, jointly with parameters of the groups that the run knows.

    Parameters
    ----------
    points
        All draws of the global parameters, (n_all, d).
    known
        What asks the workers.
    n
        How many draws to use.
    options
        How to ask: `engine`, `workers` and `progress`.
    """

    points: Array
    known: Known
    n: int
    options: Mapping[str, Any]

    def of_groups(self, held: NDArray[Any]) -> tuple[Array, OfLevels]:
        """Draws (n, d), and for each level the labels and parameters of these groups.

        Without groups, there are no levels.
        """
        if not len(held):
            return self.points[scattered(len(self.points), self.n)], ()
        found = self.known.joint(held, self.n, **self.options)
        return found.points, found.levels

    def of_rows(self, labels: NDArray[np.str_]) -> tuple[Array, OfLevels]:
        """Those of the groups that the run knows among the outer groups of rows."""
        return self.of_groups(np.intersect1d(labels, texts_of(self.known.labels())))


@dataclass(frozen=True)
class RowNumbers:
    """Random numbers for the responses of rows, from one generator; a `models.rows.Random`."""

    rng: np.random.Generator
    n_points: int

    def uniforms(self, n_rows: int) -> Array:
        return self.rng.uniform(size=(self.n_points, n_rows))

    def seeds(self) -> Seeds:
        return self.rng.integers(1 << 32, size=(self.n_points, 2), dtype=np.uint32)
