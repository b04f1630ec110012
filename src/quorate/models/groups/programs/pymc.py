"""PyMC models with a dimension of groups, whose latent variables are integrated out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate._types import Array
from quorate.models.arrays import AnyArray, indexed
from quorate.models.axes import Axes, Labels
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.backends import JaxBackend
from quorate.models.groups.programs.examination import Example, examined
from quorate.models.groups.programs.nested_plates import NestedPlateModel
from quorate.models.groups.programs.nested_pymc import from_nested_pymc
from quorate.models.groups.programs.plates import Constants, PlateModel, PlateProgram
from quorate.models.groups.programs.pymc_reading import (
    held_rows,
    read,
)
from quorate.models.groups.programs.pymc_terms import PymcTerms, shown_values
from quorate.models.groups.programs.refusals import one_level
from quorate.models.programs.pymc_axes import axes_of_pymc
from quorate.models.protocol import Shard
from quorate.models.rows import Seeds
from quorate.models.splitting import Split


@dataclass(frozen=True)
class PymcPlate(PymcTerms):
    """A PyMC model with a dimension of groups of any size; a `plates.Plate`.

    Parameters
    ----------
    graph, terms
        Its functions, and the terms of its likelihood.
    shown
        Names of what is reported of groups.
    example
        Rows, constants and the number of groups.
    """

    shown: tuple[str, ...] = ()
    example: Example = ({}, {}, 0)

    def densities(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> tuple[AnyArray, AnyArray]:
        own, of_rows = self.densities_at(x, (z,), rows, constants)
        return own, of_rows

    def reported(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> AnyArray:
        return shown_values(self.graph.told(x, (z,), rows, constants), self.shown, len(z))

    def responses(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants, key: Seeds
    ) -> dict[str, Array]:
        local = self.graph.told(x, (z,), rows, constants)
        return self.simulated(x, local, np.ones(len(z)), rows, constants, key)

    def simulated(
        self,
        x: AnyArray,
        known: Mapping[str, AnyArray],
        is_known: AnyArray,
        rows: Mapping[str, Any],
        constants: Constants,
        key: Seeds,
    ) -> dict[str, Array]:
        return self.drawn(x, known, (is_known,), rows, constants, key)

    def observed(
        self, x: AnyArray, z: AnyArray, rows: Mapping[str, Any], constants: Constants
    ) -> dict[str, Array]:
        return self.held(rows, constants)

    def axes(self, n_groups: int) -> Axes:
        graph = self.graph
        return axes_of_pymc(graph.model, (*graph.global_names, *self.shown), graph.split)

    def group_axis(self, name: str) -> int:
        return self.graph.axis_of(name)

    def group_names(self) -> Labels | None:
        return self.graph.coords_of(self.graph.dimensions[0])


@dataclass(frozen=True)
class LocalPymcModel(PlateModel):
    """A model with gradients from a PyMC model with a dimension of groups."""

    def rows(self, data: Mapping[str, Any] | None = None) -> Shard:
        """The data of shards, rows first; by default those in the PyMC model."""
        plate = self.program.plate
        assert isinstance(plate, PymcPlate)
        return held_rows(plate.graph, data)


def from_local_pymc(
    model: Any, split: Split, potentials: Mapping[str, str] | None, initial: Any, local: str
) -> LocalPymcModel | NestedPlateModel:
    """The model of `from_pymc` with `local`."""
    dimension = one_level(local, "local must name the dimension")
    if local.count("/") == 1 and local not in model.coords:
        outer, inner = local.split("/")
        return from_nested_pymc(model, split, potentials, initial, (outer, inner))
    reading = read(model, split, potentials, initial, (dimension,))
    graph, rows = reading.graph, reading.rows
    (n_groups,), (local_dim,), names = reading.sizes, reading.local_dims, reading.names
    plate, none = PymcPlate(graph, reading.terms), Level("", (), ())
    whole = PlateProgram(plate, split, reading.constants, None, n_groups, names, none, local_dim)
    program, example, _ = examined(whole, rows)
    some_rows, some_constants, n_some = example
    x, zeros = np.array(reading.start), reading.zeros((n_some,))
    told = graph.told(x, zeros, some_rows, some_constants)
    shown = {name: np.shape(v)[1:] for name, v in told.items() if np.shape(v)[:1] == (n_some,)}
    labels = tuple(label for name, shape in shown.items() for label in indexed(name, shape))
    level = Level(program.level.name, labels, (len(labels),))
    plate = replace(plate, shown=tuple(shown), example=example)
    program = replace(program, plate=plate, level=level)
    return LocalPymcModel(program, reading.start, JaxBackend())
