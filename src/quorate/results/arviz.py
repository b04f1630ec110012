"""Draws in ArviZ's form: labelled arrays, in groups."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.numerics.ess import in_chains
from quorate.protocol.timeline import Timeline

if TYPE_CHECKING:
    import xarray as xr

Labelled = tuple[tuple[str, ...], Any]  # names of axes, and an array


def labelled(variables: Mapping[str, Array], axes: tuple[str, ...]) -> dict[str, Labelled]:
    """Variables whose first axes are `axes`, under names that files can hold."""
    named: dict[str, Labelled] = {}
    for given, values in variables.items():
        name = given.replace("/", ".")  # a slash would make it a group
        name = f"{name}_" if name in axes else name
        more = (f"{name}_dim_{i}" for i in range(values.ndim - len(axes)))
        named[name] = ((*axes, *more), values)
    return named


def posterior_group(
    variables: Mapping[str, Array], n_chains: int, about: Mapping[str, str | int]
) -> "xr.Dataset":
    """Global draws, which come from the chains in turn."""
    import xarray as xr

    chains = {name: in_chains(values, n_chains) for name, values in variables.items()}
    n_draws = next(iter(chains.values())).shape[1]
    coords = {"chain": np.arange(n_chains), "draw": np.arange(n_draws)}
    return xr.Dataset(labelled(chains, ("chain", "draw")), coords, about)


def stats_group(release_times: Sequence[float], n_chains: int) -> "xr.Dataset":
    """When each global draw was complete."""
    import xarray as xr

    times = in_chains(np.array(release_times, dtype=np.float64), n_chains)
    coords = {"chain": np.arange(n_chains), "draw": np.arange(times.shape[1])}
    return xr.Dataset({"release_time": (("chain", "draw"), times)}, coords)


def shards_group(shards: Sequence[Mapping[str, Array]]) -> "xr.Dataset":
    """Draws of the shards, padded with NaN where a shard has fewer than another."""
    import xarray as xr

    longest = max(len(values) for variables in shards for values in variables.values())
    stacked = {
        name: np.stack([_padded(variables[name], longest) for variables in shards])
        for name in shards[0]
    }
    coords = {"shard": np.arange(len(shards)), "shard_draw": np.arange(longest)}
    return xr.Dataset(labelled(stacked, ("shard", "shard_draw")), coords)


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
