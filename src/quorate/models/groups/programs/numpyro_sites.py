"""Sites of a NumPyro program with plates of groups: which belong to groups, and which to rows."""

from collections.abc import Callable, Container, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import AnyArray
from quorate.models.programs.numpyro_program import Site, is_latent, log_probs
from quorate.models.splitting import PER_ROW


def values_of(sites: Iterable[Site], x: AnyArray) -> dict[str, AnyArray]:
    """Unconstrained values of sites, by name, from the vector that they are laid out in."""
    free, start = {}, 0
    for site in sites:
        free[site.name] = x[start : start + prod(site.shape)].reshape(site.shape)
        start += prod(site.shape)
    return free


def values_of_groups(
    sites: Iterable[Site], axes: Mapping[str, int], z: AnyArray
) -> dict[str, AnyArray]:
    """Unconstrained values of sites of groups, by name, from z (m, q); `axes` are of groups."""
    free, start = {}, 0
    for site in sites:
        values = z[:, start : start + prod(site.shape)].reshape(len(z), *site.shape)
        free[site.name] = jax_in_float64().numpy.moveaxis(values, 0, axes[site.name])
        start += prod(site.shape)
    return free


def compiled_values(
    run: Callable[[AnyArray], tuple[dict[str, Any], Any]], names: tuple[str, ...]
) -> Callable[[Array], dict[str, AnyArray]]:
    """A function of points (n, d) to values of sites, where `run` gives the trace at a point."""
    jax = jax_in_float64()

    def natural(x: AnyArray) -> dict[str, AnyArray]:
        trace, _ = run(x)
        return {name: trace[name]["value"] for name in names}

    compiled: Callable[[Array], dict[str, AnyArray]] = jax.jit(jax.vmap(natural))
    return compiled


def axes_in(trace: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, int]:
    """The axis of a plate in the log densities of the sites within it."""
    return {name: len(trace[name]["fn"].batch_shape) + dim for name, dim in dims.items()}


def local_sites_in(found: Iterable[Site], axes: Mapping[str, int]) -> tuple[Site, ...]:
    """Latent variables of groups, with the shapes that they have for one group."""
    own = [site for site in found if site.name in axes]
    require(bool(own), "The plate holds no latent variable, so nothing is local.")
    shapes = [(site.shape[: axes[site.name]], site.shape[axes[site.name] + 1 :]) for site in own]
    return tuple(
        Site(site.name, before + after, ())
        for site, (before, after) in zip(own, shapes, strict=True)
    )


def axes_of_rows(
    trace: Mapping[str, Any], of_groups: Container[str], n_rows: int, roles: Mapping[str, str]
) -> dict[str, int]:
    """For each site with one log density a row, its axis of rows."""
    row_axes = {}
    for name, site in trace.items():
        if site["type"] != "sample" or is_latent(site):
            continue
        shape = np.shape(log_probs(site))
        if n_rows in shape and roles.get(name) != "prior":
            row_axes[name] = shape.index(n_rows)
        else:
            known = name in of_groups or roles.get(name) == "prior"
            require(
                known,
                f"Site {name} has log densities of shape {shape}, for {n_rows} rows. It must have "
                "one for each row: observe it in a plate of rows, without `to_event`.",
            )
    require(bool(row_axes), "The program observes no rows.")
    return row_axes


def refuse_latent_rows(
    sites: Iterable[Site], trace: Mapping[str, Any], row_axes: Iterable[str]
) -> None:
    """Refuse latent variables in a plate of rows."""
    row_plates = {f.name for name in row_axes for f in trace[name]["cond_indep_stack"]}
    for site in sites:
        plates = {f.name for f in trace[site.name]["cond_indep_stack"]}
        require(not plates & row_plates, f"Latent variable {site.name} is one per row. {PER_ROW}")
