"""Variables by name, side by side in the columns of a matrix, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._types import Array
from quorate.errors import require

if TYPE_CHECKING:
    import xarray as xr

_EVERY_DRAW = ("chain", "draw")


@dataclass(frozen=True, eq=False)
class Layout:
    """Which columns hold which variable.

    Parameters
    ----------
    shapes, dims
        Of one draw of each variable, by its name, in the order of the columns.
    labels
        Coordinates of the dims, as xarray takes them.
    """

    shapes: dict[str, tuple[int, ...]]
    dims: dict[str, tuple[str, ...]]
    labels: dict[str, Any]

    @classmethod
    def of(cls, dataset: "xr.Dataset", variables: Sequence[str] | None) -> "Layout":
        """That of a shard's posterior: its variables, or those of them that are wanted."""
        wanted = list(map(str, dataset.data_vars)) if variables is None else list(variables)
        require(len(wanted) > 0, "variables", wanted, "the posterior of shard 0 is empty")
        for name in wanted:
            _check(dataset, name, shard=0)
        dims = {
            name: tuple(str(dim) for dim in dataset[name].dims if dim not in _EVERY_DRAW)
            for name in wanted
        }
        used = {dim for some in dims.values() for dim in some}
        shapes = {name: tuple(dataset.sizes[dim] for dim in dims[name]) for name in wanted}
        labels = {dim: dataset.indexes[dim] for dim in sorted(used & set(dataset.indexes))}
        return cls(shapes, dims, labels)

    @property
    def names(self) -> list[str]:
        """Of the columns: `mu`, `beta[0]`, `beta[1]`."""
        return [
            f"{name}[{','.join(map(str, index))}]" if index else name
            for name, shape in self.shapes.items()
            for index in np.ndindex(shape)
        ]

    def matrix(self, dataset: "xr.Dataset", shard: int) -> Array:
        """The draws of a shard, chains one after the other, shape (n_draws, d)."""
        for name, shape in self.shapes.items():
            _check(dataset, name, shard)
            found = tuple(dataset[name].sizes.get(dim, 0) for dim in self.dims[name])
            same = found == shape and dataset[name].ndim == len(shape) + 2
            sizes = dict(dataset[name].sizes)
            expected = dict(zip(self.dims[name], shape, strict=True))
            require(same, f"{name} in shard {shard}", sizes, f"shard 0 has {expected} besides")
        for dim, labels in self.labels.items():
            same = dim in dataset.indexes and dataset.indexes[dim].equals(labels)
            received = list(dataset.indexes[dim]) if dim in dataset.indexes else None
            require(same, f"labels of {dim} in shard {shard}", received, "not those of shard 0")
        columns = [
            dataset[name].transpose(*_EVERY_DRAW, *dims).to_numpy().reshape(_n_draws(dataset), -1)
            for name, dims in self.dims.items()
        ]
        return np.concatenate(columns, axis=1, dtype=np.float64)

    def split(self, draws: Array) -> dict[str, Array]:
        """Columns back to variables, (n_draws, *shape) each."""
        ends = np.cumsum([prod(shape) for shape in self.shapes.values()])
        parts = np.split(draws, ends[:-1], axis=1)
        return {
            name: part.reshape(len(draws), *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }


def named_draws(
    posteriors: Sequence[Any], variables: Sequence[str] | None
) -> tuple[list[Array], Layout]:
    """The draws of shards that came with names, as matrices, and which column is what."""
    datasets = [_dataset(shard, given) for shard, given in enumerate(posteriors)]
    layout = Layout.of(datasets[0], variables)
    if variables is None:
        expected = sorted(layout.shapes)
        for shard, dataset in enumerate(datasets):
            found = sorted(map(str, dataset.data_vars))
            way_out = f"shard 0 has {expected}: choose `variables` that all shards have"
            require(found == expected, f"variables of shard {shard}", found, way_out)
    return [layout.matrix(dataset, shard) for shard, dataset in enumerate(datasets)], layout


def has_names(given: object) -> bool:
    """Whether this is an xarray Dataset, a DataTree, or what has a `posterior`, not an array."""
    return hasattr(given, "data_vars") or hasattr(given, "posterior")


def _dataset(shard: int, given: Any) -> "xr.Dataset":
    require(has_names(given), f"shard {shard}", type(given).__name__, "shard 0 came with names")
    if hasattr(given, "children") or not hasattr(given, "data_vars"):
        groups = list(getattr(given, "children", ()))
        way_out = "give a tree with a group `posterior`"
        require(hasattr(given, "posterior"), f"groups of shard {shard}", groups, way_out)
        given = given.posterior
    dataset: xr.Dataset = given.to_dataset() if hasattr(given, "children") else given
    return dataset


def _check(dataset: "xr.Dataset", name: str, shard: int) -> None:
    found = list(map(str, dataset.data_vars))
    require(name in found, "variable", name, f"shard {shard} has {', '.join(found)}")
    variable = dataset[name]
    way_out = "it must have the dims chain and draw, as in ArviZ, or be left out of `variables`"
    has_draws = set(_EVERY_DRAW) <= set(variable.dims)
    require(has_draws, f"dims of {name} in shard {shard}", variable.dims, way_out)
    way_out = "rules combine real numbers only: leave it out of `variables`"
    is_real = np.issubdtype(variable.dtype, np.floating)
    require(is_real, f"type of {name} in shard {shard}", str(variable.dtype), way_out)


def _n_draws(dataset: "xr.Dataset") -> int:
    return int(dataset.sizes["chain"] * dataset.sizes["draw"])
