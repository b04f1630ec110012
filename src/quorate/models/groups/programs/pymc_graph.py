"""The graph of a PyMC model with dimensions of groups, as JAX functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64, load
from quorate._types import Array
from quorate.models.arrays import AnyArray
from quorate.models.axes import Labels, labels_of
from quorate.models.groups.programs.plates import Constants
from quorate.models.groups.programs.pymc_forward import ForwardGraph
from quorate.models.programs.pymc_graph import (
    ancestors,
    compiled,
    data_of,
    observed_terms,
    open_input,
    replaced,
    widened,
)
from quorate.models.splitting import Split

Locals = tuple[AnyArray, ...]  # unconstrained local parameters of each level, (m, q) each


@dataclass(frozen=True)
class LocalGraph:
    """A PyMC model with dimensions of groups, compiled at first use in each process.

    Parameters
    ----------
    model, split
        As the user gave them.
    dimensions
        The dimension of groups of each level, the outer one first.
    roles
        Role of each potential: prior or likelihood.
    shapes
        Shape of the unconstrained value of each latent variable, by its name.
    """

    model: Any
    split: Split
    dimensions: tuple[str, ...]
    roles: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def levels(self) -> list[list[Any]]:
        """Latent variables of the groups of each level."""
        return [
            [rv for rv in self.model.free_RVs if dimension in self.dims_of(rv.name)]
            for dimension in self.dimensions
        ]

    @property
    def local(self) -> list[Any]:
        """Latent variables of groups, level by level."""
        return [rv for level in self.levels for rv in level]

    @property
    def globals(self) -> list[Any]:
        """All other latent variables."""
        local = set(self.local)
        return [rv for rv in self.model.free_RVs if rv not in local]

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the data that are neither cut nor computed from other data."""
        roots = [name for name, variable in data_of(self.model).items() if variable.owner is None]
        return tuple(name for name in roots if name not in self.split.names)

    def log_prior(self, x: AnyArray) -> AnyArray:
        """Log prior of the global parameters, Jacobian included."""
        return _call(self._compiled["prior"], [x])[0]

    def natural(self, x: AnyArray) -> dict[str, AnyArray]:
        """Variables that depend on neither local variables nor rows."""
        values = _call(self._compiled["natural"], [x])
        return dict(zip(self.global_names, values, strict=True))

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Variables that depend on neither local variables nor rows, of many draws."""
        jax = jax_in_float64()
        values = jax.vmap(self.natural)(jax.numpy.asarray(draws))
        return {name: np.asarray(value) for name, value in values.items()}

    def terms(
        self, x: AnyArray, z: Locals, rows: Mapping[str, Any], constants: Constants
    ) -> list[AnyArray]:
        """Log densities of the entries of local variables, and of terms of the likelihood."""
        return list(_call(self._compiled["densities"], self._inputs(x, z, rows, constants)))

    def told(
        self, x: AnyArray, z: Locals, rows: Mapping[str, Any], constants: Constants
    ) -> dict[str, AnyArray]:
        """Natural values of groups, with their axis of groups first."""
        values = _call(self._compiled["told"], self._inputs(x, z, rows, constants))
        named = dict(zip(self.of_groups, values, strict=True))
        move = jax_in_float64().numpy.moveaxis
        return {name: move(value, self.axis_of(name), 0) for name, value in named.items()}

    def axis_of(self, name: str) -> int:
        """The axis of groups of a variable; the first if its dimensions do not say."""
        dims = self.dims_of(name)
        return next((dims.index(one) for one in self.dimensions if one in dims), 0)

    def local_shape(self, rv: Any) -> tuple[int, ...]:
        """The shape of a group's part of an unconstrained local variable."""
        shape, axis = self.shapes[rv.name], self.axis_of(rv.name)
        return shape[:axis] + shape[axis + 1 :]

    def dims_of(self, name: str) -> tuple[str, ...]:
        """The dimensions of a variable; none if it does not say."""
        return tuple(self.model.named_vars_to_dims.get(name, ()))

    def coords_of(self, dimension: str) -> Labels | None:
        """The labels of a dimension, if it has any."""
        values = self.model.coords[dimension]
        return None if values is None else labels_of(values)

    def _inputs(
        self, x: AnyArray, z: Locals, rows: Mapping[str, Any], constants: Constants
    ) -> list[AnyArray]:
        xp, parts = jax_in_float64().numpy, []
        for level, values in zip(self.levels, z, strict=True):
            start = 0
            for rv in level:
                shape = self.local_shape(rv)
                part = values[:, start : start + prod(shape)].reshape(len(values), *shape)
                parts.append(xp.moveaxis(part, 0, self.axis_of(rv.name)))
                start += prod(shape)
        arrays = self.split.restored(rows, xp).values()
        return [x, *parts, *arrays, *(constants[name] for name in self.constants)]

    @cached_property
    def forward(self) -> ForwardGraph:
        """What the model draws."""
        return ForwardGraph(self)

    @cached_property
    def of_groups(self) -> tuple[str, ...]:
        """Names of variables with one entry for each group that depend on local ones."""
        local, cut = set(self.local), self._cut
        own = [rv.name for rv in self.local]
        for variable in self.model.deterministics:
            above = ancestors(variable)
            own += [variable.name] if above & local and not above & cut else []
        return tuple(own)

    @cached_property
    def global_names(self) -> tuple[str, ...]:
        """Names of variables that depend on neither local variables nor rows."""
        local_or_cut = set(self.local) | self._cut
        free = [*self.globals, *self.model.deterministics]
        return tuple(v.name for v in free if not ancestors(v) & local_or_cut)

    @property
    def _cut(self) -> set[Any]:
        data = data_of(self.model)
        return {data[name] for name in self.split.names}

    @cached_property
    def _compiled(self) -> dict[str, Any]:
        """Functions of x; and of x, local values, rows and constants."""
        model = self.model
        x, placed = self.placed()
        fresh = self.fresh
        potentials = model.replace_rvs_by_values(model.potentials)
        named = dict(zip([p.name for p in model.potentials], potentials, strict=True))
        priors = [named[name].sum() for name, role in self.roles.items() if role == "prior"]
        terms = [*model.logp(vars=self.local, sum=False), *observed_terms(model, fresh)]
        terms += [named[name] for name, role in self.roles.items() if role != "prior"]
        told, natural = (
            model.replace_rvs_by_values([model[name] for name in names])
            for names in (self.of_groups, self.global_names)
        )
        inputs, all_placed = [x, *fresh.values()], {**placed, **fresh}
        with jax_in_float64().ensure_compile_time_eval():  # constants are not part of a trace
            return {
                "prior": _compile([x], [model.logp(vars=self.globals) + sum(priors)], placed),
                "natural": _compile([x], natural, placed),
                "densities": _compile(inputs, terms, all_placed),
                "told": _compile(inputs, told, all_placed),
            }

    def placed(self) -> tuple[Any, dict[Any, Any]]:
        """The vector x, and the part of it that replaces the value of each global variable."""
        x = load("pytensor.tensor", "pymc").vector("x", dtype="float64")
        placed, start = {}, 0
        for rv in self.globals:
            value, shape = self.model.rvs_to_values[rv], self.shapes[rv.name]
            placed[value] = x[start : start + prod(shape)].reshape(shape).astype(value.dtype)
            start += prod(shape)
        return x, placed

    @cached_property
    def fresh(self) -> dict[Any, Any]:
        """Inputs that replace values of local variables, rows and other data."""
        data = data_of(self.model)
        values = {rv.name: self.model.rvs_to_values[rv] for rv in self.local}
        held = {name: data[name] for name in (*self.split.names, *self.constants)}
        return {v: open_input(v, name) for name, v in (*values.items(), *held.items())}

    def __getstate__(self) -> dict[str, Any]:
        made = {"_compiled", "fresh", "forward", "of_groups", "global_names"}
        return {name: value for name, value in vars(self).items() if name not in made}


def _compile(inputs: list[Any], outputs: list[Any], placed: Mapping[Any, Any]) -> Any:
    """A PyTensor function in mode JAX."""
    flat = replaced(outputs, {**placed, **widened(outputs)})
    return compiled(inputs, flat, "JAX")


def _call(compiled: Any, inputs: list[AnyArray]) -> Any:
    """The JAX function within a PyTensor function, for JAX to trace."""
    shared = [cell.value for cell in compiled.input_storage[len(inputs) :]]
    return compiled.vm.jit_fn(*inputs, *shared)
