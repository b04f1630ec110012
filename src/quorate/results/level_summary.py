"""Summaries of the parameters of the groups of one level: means, sds, and intervals."""

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from quorate._types import Array, IntArray
from quorate.data.label_text import texts_of
from quorate.errors import require
from quorate.models.groups.levels import Level, Moments

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_MOST_SKEWED = 1.5  # beyond it, quantiles of the expansion would no longer rise


@dataclass(frozen=True, eq=False)
class LevelSummary:
    """Means, sds and skewnesses of the parameters of all groups of one level, (m, q) each.

    They are those of the posterior: of the mixture over draws of the global parameters.

    Parameters
    ----------
    name
        Name of the level.
    parameters
        Names of the q parameters of a group.
    labels
        What tells groups apart, (m,): text, numbers or dates.
    """

    name: str
    parameters: tuple[str, ...]
    labels: NDArray[Any]
    means: Array
    sds: Array
    skewnesses: Array

    @classmethod
    def of(
        cls, level: Level, labels: NDArray[Any], moments: Moments, n_points: int
    ) -> "LevelSummary":
        """The summary of moments that were summed over so many points."""
        first, second, third = moments.sums / n_points
        variances = np.maximum(second - first**2, 0.0)
        thirds = third - 3 * first * second + 2 * first**3
        sds = np.sqrt(variances)
        skewnesses = np.divide(thirds, sds**3, out=np.zeros_like(sds), where=sds > 0)
        means = moments.centres + first
        return cls(level.name, level.names, labels, means, sds, skewnesses)

    def quantile(self, share: float) -> Array:
        """Quantiles by the expansion of Cornish and Fisher, from mean, sd and skewness, (m, q)."""
        z = float(ndtri(share))
        skewnesses = np.clip(self.skewnesses, -_MOST_SKEWED, _MOST_SKEWED)
        return np.asarray(self.means + self.sds * (z + (z**2 - 1) / 6 * skewnesses))

    def table(self, interval: float) -> dict[str, Array]:
        """Columns of a table: mean, sd, and the ends of the equal-tailed interval, (m, q) each."""
        return {
            "mean": self.means,
            "sd": self.sds,
            **{name: self.quantile(share) for name, share in ends_of(interval).items()},
        }

    def frame(self, interval: float) -> "pd.DataFrame":
        """A row for each group and parameter.

        The index of groups has the name of the level; `group` if another column has that name.
        """
        import pandas as pd

        columns = {name: values.ravel() for name, values in self.table(interval).items()}
        name = "group" if self.name in ("parameter", *columns) else self.name
        index = pd.MultiIndex.from_product(
            [self.labels, self.parameters], names=[name, "parameter"]
        )
        return pd.DataFrame(columns, index=index)

    def dataset(self, interval: float) -> "xr.Dataset":
        """The table as arrays with coordinates."""
        import xarray as xr

        axes = ("group", "parameter")
        columns = {name: (axes, values) for name, values in self.table(interval).items()}
        coords = {"group": self.labels, "parameter": list(self.parameters)}
        return xr.Dataset(columns, coords, {"level": self.name})

    def texts(self) -> list[str]:
        """Labels as text."""
        return list(map(str, texts_of(self.labels)))

    def of_parameter(self, parameter: int) -> "LevelSummary":
        """The summary of one parameter alone."""
        one = slice(parameter, parameter + 1)
        numbers = (array[:, one] for array in (self.means, self.sds, self.skewnesses))
        return LevelSummary(self.name, self.parameters[one], self.labels, *numbers)

    def standing_out(self, most: int) -> tuple[IntArray, IntArray]:
        """Groups and parameters with the largest |mean|/sd, the largest first, (n,) each."""
        ratios = np.divide(
            np.abs(self.means), self.sds, out=np.zeros_like(self.sds), where=self.sds > 0
        )
        order = np.argsort(-ratios, axis=None, kind="stable")[:most]
        groups, parameters = np.unravel_index(order, ratios.shape)
        return groups.astype(np.int64), parameters.astype(np.int64)


def ends_of(interval: float) -> dict[str, float]:
    """Shares below the ends of an equal-tailed interval, by the names of their columns."""
    require_interval(interval)
    tail = (1 - interval) / 2
    return {f"{100 * share:.6g}%": share for share in (tail, 1 - tail)}


def require_interval(interval: object) -> None:
    """Refuse what is no probability of an interval."""
    require(
        isinstance(interval, Real) and 0 < float(interval) < 1,
        f"interval must be between 0 and 1, not {interval!r}. Use 0.94 for 94 %.",
    )
