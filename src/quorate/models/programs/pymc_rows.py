"""The rows of a PyMC model, found in its graph.

Most PyMC models hold their data as plain arrays, which are constants of the graph. What has as many
entries as there are observed rows is one entry for each row. Such constants become `pm.Data` of a
copy of the model, so that they can be cut. A guess that is wrong is found later: the likelihood of
all rows must be the sum of those of their parts.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate._extras import load
from quorate.errors import BadInputError, require
from quorate.models.programs.pymc_graph import (
    ancestors,
    ancestors_in_order,
    data_of,
    observed_in,
    value_of,
)

_BY_HAND = "Say which arrays are cut: from_pymc(model, split={'X': 0, 'y': 0})."
Named = Callable[[Any], str]  # a name for an array of rows


@dataclass(frozen=True)
class WithRows:
    """A PyMC model whose rows are data, and the axis along which each of its arrays is cut."""

    model: Any
    split: Mapping[str, int]


def with_rows(model: Any, named: Named | None = None) -> WithRows:
    """Find the rows of a PyMC model.

    Parameters
    ----------
    model
        The model. It is not changed.
    named
        Names for arrays that have none; `rows_0` and so on by default.

    Raises
    ------
    BadInputError
        If the model observes nothing, or observed variables of different lengths.
    """
    lengths = {
        rv.name: int(np.shape(value_of(model.rvs_to_values[rv]))[:1][0])
        for rv in observed_in(model)
        if np.ndim(value_of(model.rvs_to_values[rv]))
    }
    require(bool(lengths), f"The model observes no rows. {_BY_HAND}")
    same = len(set(lengths.values())) == 1
    require(same, f"Observed variables have different numbers of rows: {lengths}. {_BY_HAND}")
    n_rows = next(iter(lengths.values()))
    found = _promoted(model, n_rows, named or (lambda _: ""))
    held = {name: np.shape(value_of(variable)) for name, variable in data_of(found).items()}
    split = {name: shape.index(n_rows) for name, shape in held.items() if n_rows in shape}
    return WithRows(found, split)


def _promoted(model: Any, n_rows: int, named: Named) -> Any:
    """A copy of a model whose constants with so many rows are data; itself if it has none."""
    if not _constants(observed_in(model), model.free_RVs, n_rows):
        return model
    fgraphs, shared = load("pymc.model.fgraph", "pymc"), load("pytensor", "pymc").shared
    graph, memo = _graph_of(model)
    observed, free = ([memo[rv].owner.inputs[0] for rv in some] for some in _variables(model))
    taken, data, replaced = set(model.named_vars), list[tuple[Any, Any]](), []
    for constant in _constants(observed, free, n_rows):
        value = constant.data
        like = next((held for other, held in data if _same(other, value)), None)
        if like is None:
            name = _free(named(value) or f"rows_{len(data)}", taken)
            like = fgraphs.model_named(shared(value, name=name, shape=constant.type.shape))
            like.name = name
            data.append((value, like))
        replaced.append((constant, like))
    graph.replace_all(replaced, import_missing=True)
    copy = fgraphs.model_from_fgraph(graph, mutate_fgraph=True)
    for old, new in ((model.free_RVs, copy.free_RVs), (model.deterministics, copy.deterministics)):
        order = [variable.name for variable in old]
        new.sort(key=lambda variable, order=order: order.index(variable.name))
    return copy


def _graph_of(model: Any) -> tuple[Any, dict[Any, Any]]:
    """The graph of a copy of a model, and the copies of its variables."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of old objects of Gaussian processes
            found: tuple[Any, dict[Any, Any]] = load("pymc.model.fgraph", "pymc").fgraph_from_model(
                model
            )
            return found
    except (NotImplementedError, ValueError) as error:
        said = str(error).rstrip(".")
        raise BadInputError(
            f"The rows of the model cannot be made pm.Data: {said}. Hold them as pm.Data from the "
            "start."
        ) from None


def _variables(model: Any) -> tuple[list[Any], list[Any]]:
    return observed_in(model), list(model.free_RVs)


def _constants(observed: Sequence[Any], free: Sequence[Any], n_rows: int) -> list[Any]:
    """Constants with so many rows that observed variables depend on, and no prior does."""
    kind = load("pytensor.tensor", "pymc").TensorConstant
    of_priors = set[Any]().union(*(ancestors(rv) for rv in free))
    found = dict.fromkeys(variable for rv in observed for variable in ancestors_in_order(rv))
    return [
        variable
        for variable in found
        if isinstance(variable, kind)
        and n_rows in np.shape(variable.data)
        and variable not in of_priors
    ]


def _same(one: Any, other: Any) -> bool:
    return one is other or (
        one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())
    )


def _free(name: str, taken: set[str]) -> str:
    """The name, with underscores behind it if it is taken."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
