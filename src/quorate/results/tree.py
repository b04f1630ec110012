"""The tree of a result in ArviZ's form, and the chains that its draws are laid out in."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quorate._types import Array, IntArray
from quorate.merging.in_step import merged_in_step
from quorate.models.axes import axes_of
from quorate.numerics.ess import SHORTEST, joined_chains
from quorate.results.arviz import (
    constants_group,
    posterior_group,
    run_group,
    shards_group,
    stats_group,
)

if TYPE_CHECKING:
    import xarray as xr

    from quorate.results.result import Result

_N_CHAINS = 4  # that merged draws are cut into


def tree_of(result: "Result") -> "xr.DataTree":
    """All groups of `Result.posterior`."""
    import xarray as xr

    axes, rows = axes_of(result.model), result.chain_rows
    groups = {
        "posterior": posterior_group(result.chain_variables, rows, _attributes(result), axes),
        "sample_stats": stats_group(_release_times(result), rows),
        "run": run_group(result.timeline, [len(draws) for draws in result.shard_draws]),
    }
    if axes.constants:
        groups["constant_data"] = constants_group(axes)
    if result.shard_draws:
        groups["shard_posterior"] = shards_group(result.shard_variables, axes)
    return xr.DataTree.from_dict(groups)


def laid_out(draws: Array, weights: Array | None, shard_draws: Sequence[Array]) -> Array:
    """The draws that the tree has, unconstrained, (n_draws, dim): merged ones in step.

    Parameters
    ----------
    draws, weights, shard_draws
        As those of a `Result`.
    """
    if weights is None or not len(draws):
        return draws
    return merged_in_step(draws, weights, shard_draws)


def chain_rows(n_draws: int, n_chains: int) -> IntArray:
    """Rows of `laid_out` that make up each chain of the tree, (n_chains, n).

    A last draw that not all chains have is left out.

    Parameters
    ----------
    n_draws, n_chains
        As those of a `Result`.
    """
    if n_chains > 1:
        return joined_chains(n_draws, n_chains)
    n_chains = _N_CHAINS if n_draws >= _N_CHAINS * SHORTEST else 1
    n_steps = n_draws // n_chains
    return np.arange(n_steps * n_chains).reshape(n_chains, n_steps)


def _release_times(result: "Result") -> list[float]:
    """When each draw was complete; re-paired draws beyond L(t) count with the last."""
    times = result.timeline.release_times[: result.n_draws]
    return times + times[-1:] * (result.n_draws - len(times))


def _attributes(result: "Result") -> dict[str, str | int]:
    return {
        "inference_library": "quorate",
        "method": result.method,
        "scheme": result.scheme,
        "workers": result.workers,
        "redundancy": result.redundancy,
        "stopped": result.stopped,
    }
