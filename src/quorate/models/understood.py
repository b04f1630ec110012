"""What `sample` is given in place of a model: a PyMC or bambi model, or a NumPyro program.

The name of the module that a thing comes from tells which library made it. So no library has to be
imported, or even installed, to find out.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from quorate.data.tables import open_table
from quorate.errors import BadInputError, require
from quorate.models.checks import require_model
from quorate.models.groups.programs.pymc import LocalPymcModel
from quorate.models.programs.bambi import from_bambi
from quorate.models.programs.numpyro import from_numpyro
from quorate.models.programs.pymc import PymcModel, from_pymc
from quorate.models.programs.pymc_rows import with_rows
from quorate.models.protocol import Model

_OTHERWISE = "Say it yourself: from_numpyro(program, split={'X': 0, 'y': 0}, data=data)."


def understood(given: Any, data: Any, *, in_place: bool = False) -> tuple[Model, Any]:
    """A model, and the data to cut, from what a user gives.

    Parameters
    ----------
    given
        A model; a `pm.Model`, whose arrays with one entry for each observed row are cut; a
        `bambi.Model`; or a NumPyro program, of which all arrays in `data` are cut.
    data
        The data. None for models of PyMC and bambi, which hold their own.
    in_place
        Whether workers read the data, and nobody else.
    """
    library = _library(given)
    if library == "pymc":
        found = with_rows(given)
        given = from_pymc(found.model, found.split)
    elif library == "bambi":
        given = from_bambi(given)
    elif library == "numpyro":
        require(
            not in_place,
            "A NumPyro program is traced with its data, which are not read here: they stay in "
            "place. Trace it with a few rows: from_numpyro(program, split={'X': 0, 'y': 0}, "
            "data=some_rows).",
        )
        return _of_numpyro(given, data)
    elif isinstance(given, str):
        raise BadInputError(
            f"{given!r} is text. To fit a formula, give regression(design(formula, table), family) "
            "as the model, with both from quorate.models."
        )
    elif callable(given) and not hasattr(given, "log_likelihood"):
        raise BadInputError(
            "The model is a function, which does not use NumPyro. Give functions of a log prior "
            "and a log-likelihood to from_functions, and a NumPyro program to from_numpyro."
        )
    require_model(given)
    return given, _own_data(given) if data is None else data


def _own_data(model: Model) -> Any:
    """The data that a model of PyMC holds."""
    if isinstance(model, PymcModel | LocalPymcModel):
        return model.rows()
    raise BadInputError("There are no data. Give them after the model: sample(model, data).")


def _of_numpyro(program: Any, data: Any) -> tuple[Model, Any]:
    require(
        data is not None,
        "A NumPyro program needs its arguments: sample(program, data={'X': X, 'y': y}).",
    )
    arguments = data if isinstance(data, Mapping) else _columns(data)
    lengths = {name: len(value) for name, value in arguments.items() if np.ndim(value)}
    same = len(set(lengths.values())) == 1
    require(
        same,
        f"Not all arrays have one entry for each row: their lengths are {lengths}. {_OTHERWISE}",
    )
    model = from_numpyro(program, split=dict.fromkeys(lengths, 0), data=arguments)
    return model, model.rows(arguments)


def _columns(data: Any) -> dict[str, Any]:
    """All columns of a table, or of files."""
    table = open_table(data)
    batches = list(table.batches(table.names))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in table.names}


def _library(given: Any) -> str:
    """The library that an object comes from, or that a function uses; empty for all others."""
    if isinstance(given, partial):
        return _library(given.func)
    if isinstance(given, FunctionType):
        imported = {name.partition(".")[0] for name in _names(given.__code__)}
        uses = imported | {_root(value) for value in _mentioned(given)}
        return "numpyro" if "numpyro" in uses else ""
    for kind in type(given).__mro__:
        if kind.__name__ == "Model" and _root(kind) in ("pymc", "bambi"):
            return _root(kind)
    return ""


def _root(value: Any) -> str:
    """The library that a module, a class or a function belongs to."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return str(name or "").partition(".")[0]


def _mentioned(function: FunctionType) -> Iterator[Any]:
    """Values of the global names, and of the names of outer functions, that a function uses."""
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]
    for cell in function.__closure__ or ():
        yield cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
