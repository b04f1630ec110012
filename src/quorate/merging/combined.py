"""The result of a combination rule: draws, their moments, and what the rule assumes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.merging.layout import Layout

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False)
class Combined:
    """Draws of the posterior that were combined from draws of subposteriors.

    Parameters
    ----------
    draws
        Shape (n_draws, d).
    mean, covariance
        Moments of the posterior: the rule's m and V if it computes them, else those of `draws`.
        Shapes (d,) and (d, d).
    rule
        Name of the rule.
    assumes
        A sentence: what must hold for the draws to be right.
    layout
        Variables by name, if the shards' draws had names.
    """

    draws: Array
    mean: Array
    covariance: Array
    rule: str
    assumes: str
    layout: Layout | None = None

    @property
    def names(self) -> list[str]:
        """Names of the coordinates, such as `beta[2]`; `x[2]` if none were given."""
        if self.layout is None:
            return [f"x[{j}]" for j in range(len(self.mean))]
        return self.layout.names

    @property
    def variables(self) -> dict[str, Array]:
        """Draws by name, `(n_draws, *shape)` each; only `x` if no names were given."""
        return {"x": self.draws} if self.layout is None else self.layout.split(self.draws)

    @property
    def posterior(self) -> "xr.DataTree":
        """The draws as an ArviZ data tree: one chain, group `posterior`."""
        import xarray as xr

        coords = {"chain": [0], "draw": np.arange(len(self.draws))}
        dims = {"x": ("x_dim_0",)} if self.layout is None else self.layout.dims
        named = {
            name: (("chain", "draw", *dims[name]), values[None])
            for name, values in self.variables.items()
        }
        labels = {} if self.layout is None else self.layout.labels
        about = {"inference_library": "quorate", "rule": self.rule, "assumes": self.assumes}
        return xr.DataTree.from_dict({"posterior": xr.Dataset(named, coords | labels, about)})

    def to_netcdf(self, path: str) -> None:
        """Write `posterior` to a NetCDF file that ArviZ reads."""
        load("h5netcdf", "netcdf")
        self.posterior.to_netcdf(path, engine="h5netcdf")

    def summary_rows(self) -> dict[str, dict[str, float]]:
        """Mean, sd and 94 % interval of every coordinate, by name.

        There is no ESS: combined draws share draws of shards, which their order does not show.
        """
        low, high = np.quantile(self.draws, [0.03, 0.97], axis=0)
        sds = np.sqrt(np.diagonal(self.covariance))
        rows = zip(self.mean, sds, low, high, strict=True)
        columns = ("mean", "sd", "3%", "97%")
        return {
            name: dict(zip(columns, map(float, row), strict=True))
            for name, row in zip(self.names, rows, strict=True)
        }

    def __repr__(self) -> str:
        assumed = self.assumes[0].lower() + self.assumes[1:]
        return f"<Combined: {len(self.draws)} draws by {self.rule}. Assumed: {assumed}>"
