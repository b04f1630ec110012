"""Conversion of named variables to the columns of a matrix, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._types import Array
from quorate.errors import require
from quorate.numerics.names import indexed_at

if TYPE_CHECKING:
    import xarray as xr

_EVERY_DRAW = ("chain", "draw")


@dataclass(frozen=True, eq=False)
class Layout:
    """Which columns hold which variable.

    Parameters
    ----------
    shapes, dims
        Shape and dims of one draw of each variable, by name, in the order of the columns.
    labels
        Coordinates of the dims, in xarray's form.
    """

    shapes: dict[str, tuple[int, ...]]
    dims: dict[str, tuple[str, ...]]
    labels: dict[str, Any]

    @classmethod
    def of(cls, dataset: "xr.Dataset", variables: Sequence[str] | None) -> "Layout":
        """Layout of a shard's posterior, of all its variables or of those in `variables`."""
        wanted = list(map(str, dataset.data_vars)) if variables is None else list(variables)
        require(len(wanted) > 0, "There are no variables to combine in the posterior of shard 0.")
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
        """Names of the columns: `mu`, `beta[0]`, `beta[1]`."""
        return [
            indexed_at(name, index)
            for name, shape in self.shapes.items()
            for index in np.ndindex(shape)
        ]

    def matrix(self, dataset: "xr.Dataset", shard: int) -> Array:
        """The draws of a shard, its chains concatenated, shape (n_draws, d)."""
        for name, shape in self.shapes.items():
            _check(dataset, name, shard)
            found = tuple(dataset[name].sizes.get(dim, 0) for dim in self.dims[name])
            same = found == shape and dataset[name].ndim == len(shape) + 2
            sizes = dict(dataset[name].sizes)
            expected = dict(zip(self.dims[name], shape, strict=True))
            differs = f"{name} has sizes {sizes} in shard {shard}, but {expected} in shard 0"
            require(same, f"{differs} (without chains and draws). All shards must agree.")
        for dim, labels in self.labels.items():
            same = dim in dataset.indexes and dataset.indexes[dim].equals(labels)
            received = list(dataset.indexes[dim]) if dim in dataset.indexes else None
            differs = f"{dim} has labels {received} in shard {shard}, not those of shard 0."
            require(same, f"{differs} Give all shards the same labels in the same order.")
        columns = [
            dataset[name].transpose(*_EVERY_DRAW, *dims).to_numpy().reshape(_n_draws(dataset), -1)
            for name, dims in self.dims.items()
        ]
        return np.concatenate(columns, axis=1, dtype=np.float64)

    def split(self, draws: Array) -> dict[str, Array]:
        """Variables, (n_draws, *shape) each, from the columns of `draws`."""
        ends = np.cumsum([prod(shape) for shape in self.shapes.values()])
        parts = np.split(draws, ends[:-1], axis=1)
        return {
            name: part.reshape(len(draws), *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }


def named_draws(
    posteriors: Sequence[Any], variables: Sequence[str] | None
) -> tuple[list[Array], Layout]:
    """Matrices of the named draws of all shards, and the layout of their columns."""
    datasets = [_dataset(shard, given) for shard, given in enumerate(posteriors)]
    layout = Layout.of(datasets[0], variables)
    if variables is None:
        expected = sorted(layout.shapes)
        for shard, dataset in enumerate(datasets):
            found = sorted(map(str, dataset.data_vars))
            differs = f"Shard {shard} has variables {found}, but shard 0 has {expected}."
            require(found == expected, f"{differs} Choose `variables` that all shards have.")
    return [layout.matrix(dataset, shard) for shard, dataset in enumerate(datasets)], layout


def has_names(given: object) -> bool:
    """Whether `given` is an xarray Dataset, a DataTree or an object with a `posterior`."""
    return hasattr(given, "data_vars") or hasattr(given, "posterior")


def _dataset(shard: int, given: Any) -> "xr.Dataset":
    kind = type(given).__name__
    require(
        has_names(given),
        f"The draws of shard 0 have names, but shard {shard} is of type {kind}. "
        "Give all shards as arrays, or all with names.",
    )
    if hasattr(given, "children") or not hasattr(given, "data_vars"):
        groups = ", ".join(map(str, getattr(given, "children", ()))) or "none"
        require(
            hasattr(given, "posterior"),
            f"Shard {shard} has no group `posterior` (its groups: {groups}). Give a tree with one.",
        )
        given = given.posterior
    dataset: xr.Dataset = given.to_dataset() if hasattr(given, "children") else given
    return dataset


def _check(dataset: "xr.Dataset", name: str, shard: int) -> None:
    found = list(map(str, dataset.data_vars))
    known = f"The variables of shard {shard} are {', '.join(found)}."
    require(name in found, f"No variable named `{name}`. {known}")
    variable = dataset[name]
    require(
        set(_EVERY_DRAW) <= set(variable.dims),
        f"{name} in shard {shard} has dims {variable.dims}, not chain and draw. "
        "Add them, as ArviZ does, or leave it out of `variables`.",
    )
    require(
        np.issubdtype(variable.dtype, np.floating),
        f"{name} in shard {shard} is of type {variable.dtype}, but rules combine real numbers. "
        "Leave it out of `variables`.",
    )


def _n_draws(dataset: "xr.Dataset") -> int:
    return int(dataset.sizes["chain"] * dataset.sizes["draw"])
