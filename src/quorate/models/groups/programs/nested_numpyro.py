"""NumPyro programs with two plates of groups that nest, both of which are integrated out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64
from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import AnyArray, indexed
from quorate.models.axes import Axes
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.inference import local_point
from quorate.models.groups.programs.nested import OuterProgram
from quorate.models.groups.programs.nested_examination import NestedExample, examined_levels
from quorate.models.groups.programs.nested_plates import NestedPlateModel, NestedPlateProgram
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
from quorate.models.groups.programs.plates import Constants, started, sums_along
from quorate.models.groups.programs.refusals import require_few_dimensions
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
from quorate.models.splitting import Split, probes, read_roles, require_same_prior


@dataclass(frozen=True)
class NestedNumpyroPlate:
    """A NumPyro program with two plates of groups of any sizes; a `nested_plates.NestedPlate`.

    Parameters
    ----------
    model, split
        As the user gave them.
    sites
        Global latent variables, in the order of the unconstrained vector.
    local_sites
        Latent variables of outer and of inner groups, with the shapes that they have for one group.
    group_axes
        For outer and for inner groups: the axis of groups of sites with one log density a group.
    row_axes
        For each site with one log density a row, its axis of rows.
    roles
        Role of each factor: prior or likelihood.
    shown, variables
        Names of what is reported of outer and of inner groups, and of global variables.
    example
        Rows, constants and numbers of groups, for runs that need only the prior.
    """

    model: Callable[..., Any]
    split: Split
    sites: tuple[Site, ...]
    local_sites: tuple[tuple[Site, ...], tuple[Site, ...]]
    group_axes: tuple[Mapping[str, int], Mapping[str, int]]
    row_axes: Mapping[str, int]
    roles: Mapping[str, str]
    example: NestedExample
    shown: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    variables: tuple[str, ...] = ()

    prior_draw = prior_draw

    @property
    def local_dims(self) -> tuple[int, int]:
        """Numbers of parameters of an outer and of an inner group."""
        outer, inner = (sum(prod(site.shape) for site in sites) for sites in self.local_sites)
        return outer, inner

    def log_prior(self, x: AnyArray) -> AnyArray:
        trace, jacobians = self._run_example(x)
        names = [site.name for site in self.sites]
        priors = [name for name, role in self.roles.items() if role == "prior"]
        names += [name for name in priors if not any(name in axes for axes in self.group_axes)]
        parts = [log_probs(trace[name]) for name in names]
        parts += [jacobians[site.name] for site in self.sites]
        return sum((part.sum() for part in parts), jax_in_float64().numpy.zeros(()))

    def densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        trace, jacobians = self.run(x, u, v, rows, constants)
        own = []
        for sites, axes in zip(self.local_sites, self.group_axes, strict=True):
            terms = [sums_along(log_probs(trace[name]), axis) for name, axis in axes.items()]
            terms += [sums_along(jacobians[site.name], axes[site.name]) for site in sites]
            own.append(sum(terms))
        of_rows = [sums_along(log_probs(trace[name]), axis) for name, axis in self.row_axes.items()]
        return own[0], own[1], sum(of_rows)

    def reported(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray]:
        trace, _ = self.run(x, u, v, rows, constants)
        outer, inner = (
            jax_in_float64().numpy.concatenate(
                [self._of_group(trace, name, level).reshape(len(z), -1) for name in names], axis=1
            )
            for level, (names, z) in enumerate(zip(self.shown, (u, v), strict=True))
        )
        return outer, inner

    def responses(
        self,
        x: AnyArray,
        u: AnyArray,
        v: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        arguments = {**constants, **self.split.restored(rows, jax_in_float64().numpy)}
        return self._rows_first(drawn(self.model, arguments, self._free(x, u, v), key))

    def simulated(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: tuple[AnyArray, AnyArray],
        rows: Mapping[str, Any],
        constants: Constants,
        key: AnyArray,
    ) -> dict[str, AnyArray]:
        arguments = {**constants, **self.split.restored(rows, jax_in_float64().numpy)}
        each = zip(self.local_sites, self.group_axes, is_known, strict=True)
        levels, free = [SitesOfGroups(*level) for level in each], values_of(self.sites, x)
        return self._rows_first(simulated(self.model, arguments, free, levels, known, key))

    def observed(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> dict[str, Array]:
        trace, _ = self.run(x, u, v, rows, constants)
        return {name: np.asarray(value) for name, value in self._rows_first(trace).items()}

    def _rows_first(self, trace: Mapping[str, Any]) -> dict[str, AnyArray]:
        xp, axes = jax_in_float64().numpy, self.row_axes
        return {
            name: xp.moveaxis(trace[name]["value"], axes[name], 0) for name in self.observed_names
        }

    @property
    def observed_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.row_axes if name not in self.roles)

    def at_points(self, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        return ManyPoints(function)

    def constrain(self, draws: Array) -> dict[str, Array]:
        values = self._natural(draws)
        return {name: np.asarray(values[name]) for name in self.variables}

    def axes(self) -> Axes:
        size = sum(prod(site.shape) for site in self.sites)
        trace, _ = self._run_example(jax_in_float64().numpy.zeros(size))
        return axes_of_trace(trace, self.variables)

    def group_names(self) -> tuple[None, None]:
        """None: plates have no labels."""
        return None, None

    def shown_names(self, level: int) -> tuple[str, ...]:
        """One name for each number that is reported of a group of a level."""
        size = sum(prod(site.shape) for site in self.sites)
        trace, _ = self._run_example(jax_in_float64().numpy.zeros(size))
        return tuple(
            label
            for name in self.shown[level]
            for label in indexed(name, np.shape(self._of_group(trace, name, level))[1:])
        )

    def run(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """The trace of the program, and the log-Jacobians of latent sites."""
        arguments = {**constants, **self.split.restored(rows, jax_in_float64().numpy)}
        return run_at(self.model, arguments, self._free(x, u, v))

    def _free(self, x: AnyArray, u: AnyArray, v: AnyArray) -> dict[str, AnyArray]:
        free = values_of(self.sites, x)
        for sites, axes, z in zip(self.local_sites, self.group_axes, (u, v), strict=True):
            free |= values_of_groups(sites, axes, z)
        return free

    def _of_group(self, trace: Mapping[str, Any], name: str, level: int) -> AnyArray:
        """The value of a site with its axis of groups first."""
        axis = self.group_axes[level].get(name, 0)
        return jax_in_float64().numpy.moveaxis(trace[name]["value"], axis, 0)

    def _run_example(self, x: AnyArray) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        rows, constants, sizes = self.example
        zeros = jax_in_float64().numpy.zeros
        u, v = (zeros((n, q)) for n, q in zip(sizes, self.local_dims, strict=True))
        return self.run(x, u, v, rows, constants)

    @cached_property
    def _natural(self) -> Callable[[Array], dict[str, AnyArray]]:
        return compiled_values(self._run_example, self.variables)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_natural"}


def from_nested_numpyro(
    model: Callable[..., Any],
    split: Split,
    data: Mapping[str, Any],
    factors: Mapping[str, str] | None,
    initial: Any,
    plates: tuple[str, str],
) -> NestedPlateModel:
    """The model of `from_numpyro` with `local="outer/inner"`."""
    rows = split.rows(data)
    constants = {name: value for name, value in data.items() if name not in split.names}
    arguments = {**constants, **split.restored(rows, jax_in_float64().numpy)}
    found, trace = examine(model, arguments)
    frames = [frames_in(trace, plate) for plate in plates]
    roles = read_roles(factors_in(trace), factors, "factor")
    plate = _read(model, split, found, trace, (frames[0][1], frames[1][1]), rows, roles)
    names = tuple(label for site in plate.sites for label in site.labels)
    local = ", ".join(site.name for sites in plate.local_sites for site in sites)
    require_few_dimensions(sum(plate.local_dims), local)
    start = started(initial, np.zeros(len(names)), names)
    none, sizes, dims = Level("", (), ()), (frames[0][0], frames[1][0]), plate.local_dims
    whole = NestedPlateProgram(
        plate, split, constants, ((), ()), (), sizes, ("", ""), names, (none, none), dims
    )
    program, example, fewer = examined_levels(whole, rows)
    plate = _described(replace(plate, example=example), fewer)
    first, second = program.columns
    shown = plate.shown_names(0), plate.shown_names(1)
    levels = (
        Level(first, shown[0], (len(shown[0]),)),
        Level(f"{first}:{second}", shown[1], (len(shown[1]),)),
    )
    program = replace(program, plate=plate, levels=levels)
    return NestedPlateModel(OuterProgram(program), start, JaxBackend())


def _read(
    model: Callable[..., Any],
    split: Split,
    found: tuple[Site, ...],
    trace: Mapping[str, Any],
    dims: tuple[Mapping[str, int], Mapping[str, int]],
    rows: Mapping[str, Any],
    roles: Mapping[str, str],
) -> NestedNumpyroPlate:
    """Which sites are global, which belong to groups of either level, and which to rows."""
    n_rows = len(next(iter(rows.values())))
    both = sorted(dims[0].keys() & dims[1].keys())
    require(
        not both,
        f"{', '.join(both)} lies in both plates. Write plates that nest side by side, not one "
        "within the other, and give an array with the outer group of each inner one.",
    )
    of_groups = axes_in(trace, dims[0]), axes_in(trace, dims[1])
    local = local_sites_in(found, of_groups[0]), local_sites_in(found, of_groups[1])
    sites = tuple(site for site in found if not any(site.name in axes for axes in of_groups))
    row_axes = axes_of_rows(trace, {**of_groups[0], **of_groups[1]}, n_rows, roles)
    for axes in of_groups:
        for name in row_axes:
            axes.pop(name, None)
    refuse_latent_rows(sites, trace, row_axes)
    nothing: NestedExample = ({}, {}, (0, 0))
    return NestedNumpyroPlate(model, split, sites, local, of_groups, row_axes, roles, nothing)


def _described(plate: NestedNumpyroPlate, fewer: NestedExample) -> NestedNumpyroPlate:
    """The plate with the names of what it reports. Priors that depend on rows are refused."""
    runs = [
        _values(plate, example, *scales)
        for example, scales in (
            (plate.example, (1.0, 1.0)),
            (plate.example, (0.5, 1.0)),
            (plate.example, (1.0, 0.5)),
            (fewer, (1.0, 1.0)),
        )
    ]
    for site in plate.sites:
        for _, priors in runs[1:]:
            require_same_prior(site.name, runs[0][1][site.name], priors[site.name])
    values = {name: [told[name] for told, _ in runs] for name in runs[0][0]}
    sizes = list(zip(plate.example[2], fewer[2], strict=True))
    shown = [[site.name for site in sites] for sites in plate.local_sites]
    variables = [site.name for site in plate.sites]
    for name, each in values.items():
        by_outer, by_inner = (not _same(each[0], other) for other in each[1:3])
        lengths = tuple(value.shape[:1] for value in (each[0], each[3]))
        outer, inner = (lengths == tuple((n,) for n in of_level) for of_level in sizes)
        if inner and by_inner:
            shown[1].append(name)
        elif outer and by_outer and not by_inner:
            shown[0].append(name)
        elif all(_same(each[0], other) for other in each[1:]):
            variables.append(name)
    return replace(plate, shown=(tuple(shown[0]), tuple(shown[1])), variables=tuple(variables))


def _values(
    plate: NestedNumpyroPlate, example: NestedExample, *scales: float
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Deterministic variables, and log priors of global ones, at some point."""
    rows, constants, sizes = example
    x = probes(sum(prod(site.shape) for site in plate.sites), 1)[0]
    parts = zip(scales, sizes, plate.local_dims, strict=True)
    u, v = (scale * local_point(n, q) for scale, n, q in parts)

    def evaluate(x: AnyArray, u: AnyArray, v: AnyArray, rows: Any) -> Any:
        trace, _ = plate.run(x, u, v, rows, constants)
        told = {name: s["value"] for name, s in trace.items() if s["type"] == "deterministic"}
        return told, {site.name: log_probs(trace[site.name]).sum() for site in plate.sites}

    jax = jax_in_float64()
    told, priors = jax.tree.map(np.asarray, jax.jit(evaluate)(x, u, v, rows))
    return told, priors


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other))
