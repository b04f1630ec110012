"""PyMC models with two dimensions of groups that nest, both of which are integrated out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.models.arrays import AnyArray, indexed
from quorate.models.axes import Axes, Labels
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.nested import OuterProgram
from quorate.models.groups.programs.nested_examination import NestedExample, examined_levels
from quorate.models.groups.programs.nested_plates import NestedPlateModel, NestedPlateProgram
from quorate.models.groups.programs.plates import Constants
from quorate.models.groups.programs.pymc_reading import (
    Reading,
    held_rows,
    read,
)
from quorate.models.groups.programs.pymc_terms import PymcTerms, shown_values
from quorate.models.programs.pymc_axes import axes_of_pymc
from quorate.models.programs.pymc_graph import ancestors
from quorate.models.protocol import Shard
from quorate.models.rows import Seeds
from quorate.models.splitting import Split


@dataclass(frozen=True)
class NestedPymcPlate(PymcTerms):
    """A PyMC model with two dimensions of groups of any sizes; a `nested_plates.NestedPlate`.

    Parameters
    ----------
    graph, terms
        Its functions, and the terms of its likelihood.
    shown
        Names of what is reported of outer and of inner groups.
    example
        Rows, constants and numbers of groups.
    """

    shown: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    example: NestedExample = ({}, {}, (0, 0))

    def densities(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        outer, inner, of_rows = self.densities_at(x, (u, v), rows, constants)
        return outer, inner, of_rows

    def reported(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray]:
        told = self.graph.told(x, (u, v), rows, constants)
        outer, inner = self.shown
        return shown_values(told, outer, len(u)), shown_values(told, inner, len(v))

    def responses(
        self,
        x: AnyArray,
        u: AnyArray,
        v: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: Seeds,
    ) -> dict[str, Array]:
        local = self.graph.told(x, (u, v), rows, constants)
        marks = np.ones(len(u)), np.ones(len(v))
        return self.simulated(x, local, marks, rows, constants, key)

    def simulated(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: tuple[AnyArray, AnyArray],
        rows: Mapping[str, Any],
        constants: Constants,
        key: Seeds,
    ) -> dict[str, Array]:
        return self.drawn(x, known, is_known, rows, constants, key)

    def observed(
        self, x: AnyArray, u: AnyArray, v: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> dict[str, Array]:
        return self.held(rows, constants)

    def axes(self) -> Axes:
        return axes_of_pymc(self.graph.model, self.graph.global_names, self.graph.split)

    def group_names(self) -> tuple[Labels | None, Labels | None]:
        outer, inner = map(self.graph.coords_of, self.graph.dimensions)
        return outer, inner


@dataclass(frozen=True)
class NestedPymcModel(NestedPlateModel):
    """A model with gradients from a PyMC model with two dimensions of groups."""

    def rows(self, data: Mapping[str, Any] | None = None) -> Shard:
        """The data of shards, rows first; by default those in the PyMC model."""
        plate = self.two.plate
        assert isinstance(plate, NestedPymcPlate)
        return held_rows(plate.graph, data)


def from_nested_pymc(
    model: Any,
    split: Split,
    potentials: Mapping[str, str] | None,
    initial: Any,
    dimensions: tuple[str, str],
) -> NestedPymcModel:
    """The model of `from_pymc` with `local="outer/inner"`."""
    reading = read(model, split, potentials, initial, dimensions)
    (n_outer, n_inner), (q, q_inner) = reading.sizes, reading.local_dims
    plate, none = NestedPymcPlate(reading.graph, reading.terms), Level("", (), ())
    whole = NestedPlateProgram(
        plate,
        split,
        reading.constants,
        shrinking=((), ()),
        parents=(),
        sizes=(n_outer, n_inner),
        columns=("", ""),
        names=reading.names,
        levels=(none, none),
        local_dims=(q, q_inner),
    )
    program, example, _ = examined_levels(whole, reading.rows)
    first, second = program.columns
    outer, inner = _shown(reading)
    levels = _level(first, outer), _level(f"{first}:{second}", inner)
    plate = replace(plate, shown=(tuple(outer), tuple(inner)), example=example)
    program = replace(program, plate=plate, levels=levels)
    return NestedPymcModel(OuterProgram(program), reading.start, JaxBackend())


def _shown(reading: Reading) -> list[dict[str, tuple[int, ...]]]:
    """Names of what is reported of outer and inner groups, with the shapes of one group."""
    graph, (n_outer, n_inner) = reading.graph, reading.sizes
    zeros = reading.zeros(reading.sizes)
    told = graph.told(np.array(reading.start), zeros, reading.rows, reading.constants)
    inner = set(graph.levels[1])
    found: list[dict[str, tuple[int, ...]]] = [{}, {}]
    for name, value in told.items():
        level = int(bool(ancestors(graph.model[name]) & inner))
        if np.shape(value)[:1] == ((n_outer, n_inner)[level],):
            found[level][name] = np.shape(value)[1:]
    return found


def _level(name: str, shown: Mapping[str, tuple[int, ...]]) -> Level:
    labels = tuple(label for one, shape in shown.items() for label in indexed(one, shape))
    return Level(name, labels, (len(labels),))
