"""Draws in ArviZ's form: labelled arrays, in groups."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._extras import load
from quorate._types import Array, IntArray
from quorate.models.axes import Axes
from quorate.protocol.timeline import Timeline

if TYPE_CHECKING:
    import xarray as xr

Labelled = tuple[tuple[str, ...], Any]  # names of axes, and an array
CHAINS = ("chain", "draw")


def labelled(
    variables: Mapping[str, Array], first: tuple[str, ...], axes: Axes
) -> tuple[dict[str, Labelled], dict[str, Any]]:
    """Variables whose first axes are `first`, under names that files can hold, and coords.

    The other axes have the names and labels of `axes`, where these fit the variables.
    """
    gathered = _gathered(variables, axes, len(first))
    taken = {*map(_safe, gathered), *first}
    named: dict[str, Labelled] = {}
    coords: dict[str, Any] = {}
    for given, values in gathered.items():
        name, shape = _safe(given), values.shape[len(first) :]
        name = f"{name}_" if name in first else name
        dims = tuple(map(_safe, axes.dims.get(given, ())))
        labels = {
            _safe(dim): axes.coords[dim] for dim in axes.dims.get(given, ()) if dim in axes.coords
        }
        if not _fits(dims, labels, shape) or taken & set(dims):
            dims, labels = tuple(f"{name}_dim_{i}" for i in range(len(shape))), {}
        named[name] = ((*first, *dims), values)
        coords |= labels
    return named, coords


def _safe(name: str) -> str:
    return name.replace("/", ".")  # a slash would make it a group


def _fits(dims: tuple[str, ...], labels: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    """Whether names of axes, and the labels of some, are those of an array of this shape."""
    sizes = zip(dims, shape, strict=False)
    return (
        len(dims) == len(shape)
        and len(set(dims)) == len(dims)
        and all(len(labels.get(dim, range(size))) == size for dim, size in sizes)
    )


def _gathered(variables: Mapping[str, Array], axes: Axes, n_first: int) -> dict[str, Array]:
    """The variables; scalars that make up one variable are replaced by it, where the first was."""
    whole = {
        parts[0]: name
        for name, parts in axes.gathered.items()
        if name not in variables and all(part in variables for part in parts)
    }
    inside = {part for name in whole.values() for part in axes.gathered[name]}
    found: dict[str, Array] = {}
    for name, values in variables.items():
        if name in whole:
            made = whole[name]
            stacked = np.stack([variables[part] for part in axes.gathered[made]], axis=-1)
            shape = axes.shape_of(made) or stacked.shape[n_first:]
            found[made] = stacked.reshape(*stacked.shape[:n_first], *shape)
        elif name not in inside:
            found[name] = values
    return found


def posterior_group(
    variables: Mapping[str, Array], rows: IntArray, about: Mapping[str, str | int], axes: Axes
) -> "xr.Dataset":
    """Draws of a run; `rows[c, i]` is the draw that is the i-th of chain c."""
    import xarray as xr

    chains = {name: values[rows] for name, values in variables.items()}
    named, coords = labelled(chains, CHAINS, axes)
    return xr.Dataset(named, chain_coords(rows) | coords, about)


def chain_coords(rows: IntArray) -> dict[str, Any]:
    """Numbers of chains and draws."""
    return {name: np.arange(size) for name, size in zip(CHAINS, rows.shape, strict=True)}


def stats_group(release_times: Sequence[float], rows: IntArray) -> "xr.Dataset":
    """When each global draw was complete, and its place in the order of the run."""
    import xarray as xr

    times = np.array(release_times, dtype=np.float64)[rows]
    stats = {"release_time": (CHAINS, times), "row": (CHAINS, rows)}
    return xr.Dataset(stats, chain_coords(rows))


def constants_group(axes: Axes) -> "xr.Dataset":
    """What the model was given besides its rows."""
    import xarray as xr

    named, coords = labelled(axes.constants, (), axes)
    return xr.Dataset(named, coords)


def shards_group(shards: Sequence[Mapping[str, Array]], axes: Axes) -> "xr.Dataset":
    """Draws of the shards, padded with NaN where a shard has fewer than another."""
    import xarray as xr

    longest = max(len(values) for variables in shards for values in variables.values())
    stacked = {
        name: np.stack([_padded(variables[name], longest) for variables in shards])
        for name in shards[0]
    }
    numbers = {"shard": np.arange(len(shards)), "shard_draw": np.arange(longest)}
    named, coords = labelled(stacked, ("shard", "shard_draw"), axes)
    return xr.Dataset(named, numbers | coords)


def _padded(values: Array, n_rows: int) -> Array:
    missing = np.full((n_rows - len(values), *values.shape[1:]), np.nan)
    return np.concatenate([values, missing])


def run_group(timeline: Timeline, draws_of_shards: Sequence[int]) -> "xr.Dataset":
    """Blocks: when they arrived, from which worker, their draws; and the draws of each shard."""
    import xarray as xr

    blocks = {
        "block_time": (("block",), np.array(timeline.block_times, dtype=np.float64)),
        "block_worker": (("block",), np.array(timeline.block_workers, dtype=np.int64)),
        "block_size": (("block",), np.array(timeline.block_sizes, dtype=np.int64)),
    }
    shards = {"n_shard_draws": (("shard",), np.array(draws_of_shards, dtype=np.int64))}
    return xr.Dataset({**blocks, **(shards if draws_of_shards else {})})


def inference_data(tree: "xr.DataTree") -> Any:
    """The tree in the form that the installed ArviZ works with: InferenceData before 1.0."""
    arviz = load("arviz", "arviz")
    if int(arviz.__version__.partition(".")[0]) >= 1:
        return tree
    groups = {name: group.to_dataset() for name, group in tree.children.items()}
    return arviz.InferenceData(**groups)


def for_arviz(tree: "xr.DataTree") -> Any:
    """The tree as ArviZ's own functions take it: InferenceData if the ArviZ here is before 1.0."""
    try:
        installed = int(version("arviz").partition(".")[0])
    except PackageNotFoundError:
        return tree
    return tree if installed >= 1 else inference_data(tree)
