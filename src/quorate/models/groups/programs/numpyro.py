"""NumPyro programs with a plate of groups, whose latent variables are integrated out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.models.arrays import AnyArray, indexed
from quorate.models.axes import Axes
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.examination import Example, examined
from quorate.models.groups.programs.inference import local_point
from quorate.models.groups.programs.nested_numpyro import from_nested_numpyro
from quorate.models.groups.programs.nested_plates import NestedPlateModel
from quorate.models.groups.programs.numpyro_simulation import SitesOfGroups, prior_draw, simulated
from quorate.models.groups.programs.numpyro_sites import (
    axes_in,
    axes_of_rows,
    compiled_values,
    local_sites_in,
    refuse_latent_rows,
    values_of,
    values_of_groups,
)
from quorate.models.groups.programs.plates import (
    Constants,
    PlateModel,
    PlateProgram,
    started,
    sums_along,
)
from quorate.models.groups.programs.refusals import one_level, require_few_dimensions
from quorate.models.programs.jaxed_many import ManyPoints
from quorate.models.programs.numpyro_axes import axes_of_trace
from quorate.models.programs.numpyro_program import (
    Site,
    drawn,
    examine,
    factors_in,
    frames_in,
    log_probs,
    run_at,
)
from quorate.models.splitting import (
    Split,
    probes,
    read_roles,
    refuse_row_latent,
    require_same_prior,
)


@dataclass(frozen=True)
class NumpyroPlate:
    """A NumPyro program with a plate of groups of any size.

    Parameters
    ----------
    model, split
        As the user gave them.
    sites
        Global latent variables, in the order of the unconstrained vector.
    local_sites
        Latent variables of groups, with the shapes that they have for one group.
    group_axes
        For each site with one log density a group, its axis of groups.
    row_axes
        For each site with one log density a row, its axis of rows.
    roles
        Role of each factor: prior or likelihood.
    shown, variables
        Names of what is reported of groups, and of global variables.
    example
        Rows, constants and the number of groups, for runs that need only the prior.
    """

    model: Callable[..., Any]
    split: Split
    sites: tuple[Site, ...]
    local_sites: tuple[Site, ...]
    group_axes: Mapping[str, int]
    row_axes: Mapping[str, int]
    roles: Mapping[str, str]
    example: Example
    shown: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    prior_draw = prior_draw

    def log_prior(self, x: AnyArray) -> AnyArray:
        trace, jacobians = self._run_example(x)
        priors = [log_probs(s) for name, s in trace.items() if self._is_global_prior(name)]
        parts = [*priors, *(jacobians[site.name] for site in self.sites)]
        return sum((part.sum() for part in parts), jax_in_float64().numpy.zeros(()))

    def densities(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray]:
        trace, jacobians = self.run(x, z, rows, constants)
        own = sum(
            sums_along(log_probs(trace[name]), axis) for name, axis in self.group_axes.items()
        )
        own = own + sum(
            sums_along(jacobians[site.name], self.group_axes[site.name])
            for site in self.local_sites
        )
        of_rows = [sums_along(log_probs(trace[name]), axis) for name, axis in self.row_axes.items()]
        return own, sum(of_rows)

    def reported(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> AnyArray:
        trace, _ = self.run(x, z, rows, constants)
        return jax_in_float64().numpy.concatenate(
            [self.of_group(trace, name).reshape(len(z), -1) for name in self.shown], axis=1
        )

    def responses(
        self,
        x: AnyArray,
        z: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        """Draws of what is observed of rows, rows first."""
        arguments = {**constants, **self.split.restored(rows, jax_in_float64().numpy)}
        trace = drawn(self.model, arguments, self.free(x, z), key)
        return self.rows_first(trace)

    def observed(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> dict[str, Array]:
        """What was observed of rows, rows first."""
        trace, _ = self.run(x, z, rows, constants)
        return {name: np.asarray(value) for name, value in self.rows_first(trace).items()}

    def rows_first(self, trace: Mapping[str, Any]) -> dict[str, AnyArray]:
        """Values of the sites that are observed of rows, rows first."""
        xp, axes = jax_in_float64().numpy, self.row_axes
        return {
            name: xp.moveaxis(trace[name]["value"], axes[name], 0) for name in self.observed_names
        }

    @property
    def observed_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.row_axes if name not in self.roles)

    def at_points(self, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        return ManyPoints(function)

    def of_group(self, trace: Mapping[str, Any], name: str) -> AnyArray:
        """The value of a site with its axis of groups first."""
        xp = jax_in_float64().numpy
        return xp.moveaxis(trace[name]["value"], self.group_axis(name), 0)

    def axes(self, n_groups: int) -> Axes:
        trace = self._example_trace()
        plates = {
            frame.name: n_groups
            for site in self.local_sites
            for frame in trace[site.name]["cond_indep_stack"]
            if len(trace[site.name]["fn"].batch_shape) + frame.dim == self.group_axis(site.name)
        }
        return axes_of_trace(trace, (*self.variables, *self.shown), plates)

    def group_axis(self, name: str) -> int:
        return self.group_axes.get(name, 0)

    def group_names(self) -> None:
        """None: plates have no labels."""

    def _example_trace(self) -> dict[str, Any]:
        size = sum(prod(site.shape) for site in self.sites)
        return self._run_example(jax_in_float64().numpy.zeros(size))[0]

    def shown_names(self) -> tuple[str, ...]:
        """One name for each number that is reported of a group."""
        trace = self._example_trace()
        shapes = {name: np.shape(self.of_group(trace, name))[1:] for name in self.shown}
        return tuple(label for name, shape in shapes.items() for label in indexed(name, shape))

    def constrain(self, draws: Array) -> dict[str, Array]:
        values = self._natural(draws)
        return {name: np.asarray(values[name]) for name in self.variables}

    def run(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """The trace of the program, and the log-Jacobians of latent sites."""
        xp = jax_in_float64().numpy
        return run_at(self.model, {**constants, **self.split.restored(rows, xp)}, self.free(x, z))

    def simulated(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        arguments = {**constants, **self.split.restored(rows, jax_in_float64().numpy)}
        level = SitesOfGroups(self.local_sites, self.group_axes, is_known)
        free = values_of(self.sites, x)
        return self.rows_first(simulated(self.model, arguments, free, [level], known, key))

    def free(self, x: AnyArray, z: AnyArray) -> dict[str, AnyArray]:
        """Unconstrained values of all latent variables, by name."""
        own = values_of_groups(self.local_sites, self.group_axes, z)
        return values_of(self.sites, x) | own

    def _run_example(self, x: AnyArray) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        rows, constants, n_groups = self.example
        dim = sum(prod(site.shape) for site in self.local_sites)
        return self.run(x, jax_in_float64().numpy.zeros((n_groups, dim)), rows, constants)

    def _is_global_prior(self, name: str) -> bool:
        if name in self.group_axes:
            return False
        return self.roles.get(name) == "prior" or any(site.name == name for site in self.sites)

    @cached_property
    def _natural(self) -> Callable[[Array], dict[str, AnyArray]]:
        return compiled_values(self._run_example, self.variables)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_natural"}


def from_local_numpyro(
    model: Callable[..., Any],
    split: Split,
    data: Mapping[str, Any],
    factors: Mapping[str, str] | None,
    initial: Any,
    local: str,
) -> PlateModel | NestedPlateModel:
    """The model of `from_numpyro` with `local`."""
    rows = split.rows(data)
    constants = {name: value for name, value in data.items() if name not in split.names}
    arguments = {**constants, **split.restored(rows, jax_in_float64().numpy)}
    found, trace = examine(model, arguments)
    if isinstance(local, str) and local.count("/") == 1 and local not in trace:
        outer, inner = local.split("/")
        return from_nested_numpyro(model, split, data, factors, initial, (outer, inner))
    n_groups, dims = frames_in(trace, one_level(local, "local must name the plate"))
    roles = read_roles(factors_in(trace), factors, "factor")
    plate = _read_plate(model, split, found, trace, dims, len(next(iter(rows.values()))), roles)
    names = tuple(label for site in plate.sites for label in site.labels)
    local_dim = sum(prod(site.shape) for site in plate.local_sites)
    require_few_dimensions(local_dim, ", ".join(site.name for site in plate.local_sites))
    start = started(initial, np.zeros(len(names)), names)
    whole = PlateProgram(plate, split, constants, None, n_groups, names, _NO_LEVEL, local_dim)
    program, example, fewer = examined(whole, rows)
    plate = _described(replace(plate, example=example), fewer)
    values = plate.shown_names()
    level = Level(program.level.name, values, (len(values),))
    program = replace(program, plate=plate, level=level)
    return PlateModel(program, start, JaxBackend())


_NO_LEVEL = Level("", (), ())


def _read_plate(
    model: Callable[..., Any],
    split: Split,
    found: tuple[Site, ...],
    trace: Mapping[str, Any],
    dims: Mapping[str, int],
    n_rows: int,
    roles: Mapping[str, str],
) -> NumpyroPlate:
    """Which sites are global, which belong to groups, and which to rows."""
    group_axes = axes_in(trace, dims)
    sites = tuple(site for site in found if site.name not in dims)
    local_sites = local_sites_in(found, group_axes)
    row_axes = axes_of_rows(trace, group_axes, n_rows, roles)
    for name in row_axes:
        group_axes.pop(name, None)
    refuse_latent_rows(sites, trace, row_axes)
    return NumpyroPlate(model, split, sites, local_sites, group_axes, row_axes, roles, ({}, {}, 0))


def _described(plate: NumpyroPlate, fewer: Example) -> NumpyroPlate:
    """The plate with the names of what it reports. Priors that depend on rows are refused."""
    for rows, constants, _ in (plate.example, fewer):
        arguments = {**constants, **plate.split.restored(rows, jax_in_float64().numpy)}
        shapes = {site.name: site.shape for site in examine(plate.model, arguments)[0]}
        for site in plate.sites:
            refuse_row_latent(site.name, site.shape, shapes.get(site.name, ()))
    runs = [_values(plate, plate.example, 1.0), _values(plate, plate.example, 0.5)]
    runs.append(_values(plate, fewer, 1.0))
    for site in plate.sites:
        for _, priors in runs[1:]:
            require_same_prior(site.name, runs[0][1][site.name], priors[site.name])
    values = {name: [told[name] for told, _ in runs] for name in runs[0][0]}
    sizes = [plate.example[2], plate.example[2], fewer[2]]
    own = [site.name for site in plate.local_sites]
    own += [name for name, each in values.items() if _is_of_groups(each, sizes)]
    variables = [site.name for site in plate.sites]
    variables += [name for name, each in values.items() if _is_global(each)]
    return replace(plate, shown=tuple(own), variables=tuple(variables))


def _values(
    plate: NumpyroPlate, example: Example, scale: float
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Deterministic variables, and log priors of global ones, at some point."""
    rows, constants, n_groups = example
    x = probes(sum(prod(site.shape) for site in plate.sites), 1)[0]
    z = scale * local_point(n_groups, sum(prod(site.shape) for site in plate.local_sites))

    def evaluate(x: AnyArray, z: AnyArray, rows: Any) -> Any:
        trace, _ = plate.run(x, z, rows, constants)
        told = {name: s["value"] for name, s in trace.items() if s["type"] == "deterministic"}
        return told, {site.name: log_probs(trace[site.name]).sum() for site in plate.sites}

    jax = jax_in_float64()
    told, priors = jax.tree.map(np.asarray, jax.jit(evaluate)(x, z, rows))
    return told, priors


def _is_of_groups(values: list[Array], sizes: list[int]) -> bool:
    """Whether a variable has one entry for each group, and depends on the local parameters."""
    sized = all(value.shape[:1] == (n,) for value, n in zip(values, sizes, strict=True))
    return sized and not np.allclose(values[0], values[1])


def _is_global(values: list[Array]) -> bool:
    """Whether a variable depends on neither local parameters nor rows."""
    first, *others = values
    return all(value.shape == first.shape and np.allclose(value, first) for value in others)
