"""Dims and coords of a PyMC model, and the data that it holds besides its rows."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from quorate.models.axes import Axes, labels_of
from quorate.models.programs.pymc_graph import value_of
from quorate.models.splitting import Split


def axes_of_pymc(model: Any, names: Iterable[str], split: Split) -> Axes:
    """Axes of the variables `names` of a PyMC model, and of `pm.Data` that are not cut."""
    constants = {
        str(variable.name): np.asarray(value_of(variable))
        for variable in model.data_vars
        if variable.name not in split.names
    }
    dims = {}
    for name in (*names, *constants):
        given = model.named_vars_to_dims.get(name)
        if given is not None:
            dims[name] = tuple(
                f"{name}_dim_{i}" if d is None else str(d) for i, d in enumerate(given)
            )
    used = {dim for some in dims.values() for dim in some if dim in model.coords}
    return Axes(dims, {dim: _labels(model, dim) for dim in sorted(used)}, {}, constants)


def _labels(model: Any, dim: str) -> Any:
    """Labels along a dimension; numbers from 0 where the model gives only its length."""
    values = model.coords[dim]
    return np.arange(int(model.dim_lengths[dim].eval())) if values is None else labels_of(values)
