"""A model from a model that bambi has built, through PyMC."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from quorate._extras import load, require_installed
from quorate.errors import BadInputError, require
from quorate.models.groups.levels import Level
from quorate.models.groups.programs.plates import PlateModel
from quorate.models.groups.programs.pymc import PymcPlate
from quorate.models.groups.quadrature import MOST_DIMENSIONS
from quorate.models.programs.pymc import PymcModel, from_pymc
from quorate.models.programs.pymc_rows import with_rows

_AUTO = "auto"
_GROUPS = "__factor_dim"  # ends bambi's names of dimensions of groups
_OFFSET = "_offset"  # ends bambi's names of standardised effects, which its results leave out


def from_bambi(
    model: Any, *, local: str | None = _AUTO, initial: Any = None, mode: str | None = None
) -> PymcModel | PlateModel:
    """A model from a bambi model, with its family, its terms and its priors.

    Parameters
    ----------
    model
        The bambi model. It is built if it has not been.
    local
        The factor whose group-specific terms become local parameters, as in `(1 | county)`: each
        group is then integrated out on its own. By default the factor with most levels, unless a
        group has more than three coefficients. None keeps all group-specific terms global.
    initial, mode
        As for `from_pymc`.

    Notes
    -----
    bambi centres the columns of a model with an intercept. As in bambi's own results, `Intercept`
    is that of the columns as they were; the sampled one is `Intercept_centred`.

    Raises
    ------
    BadInputError
        If the likelihood does not factor over rows. See `from_pymc`.
    """
    require_installed({"bambi": "bambi", "pymc": "bambi", "jax": "bambi"})
    whose = type(model).__module__.partition(".")[0]
    require(whose == "bambi", f"model must be a bambi.Model, not a {type(model).__name__}.")
    if not model.built:
        model.build()
    require(
        not model.response_component.term.is_weighted,
        "bambi keeps the weights of rows out of its graph, so they cannot be cut with the rows. "
        "Use a formula of quorate's own: `y | weights(w) ~ x`.",
    )
    factors = list(_factors(model))
    found = with_rows(model.backend.model, _Names(factors))
    for shift in _shifts(model):
        _uncentre(found.model, shift)
    chosen = _chosen(found.model, factors, local)
    if chosen is None:
        return from_pymc(found.model, found.split, initial=initial, mode=mode)
    built = from_pymc(found.model, found.split, initial=initial, mode=mode, local=chosen.dimension)
    assert isinstance(built, PlateModel)
    return _without_offsets(built)


class _Factor(NamedTuple):
    """A factor of group-specific terms."""

    name: str
    dimension: str
    index: Any  # the group of each row


def _factors(model: Any) -> Iterator[_Factor]:
    """The factors of the group-specific terms of a bambi model, each once."""
    seen = set()
    for component in model.distributional_components.values():
        for term in component.group_specific_terms.values():
            dimension = next(name for name in term.coords if name.endswith(_GROUPS))
            if dimension not in seen:
                seen.add(dimension)
                name = dimension.removesuffix(_GROUPS)
                yield _Factor(name, dimension, np.asarray(term.group_index))


class _Names:
    """Names the arrays of rows that say which group a row belongs to."""

    def __init__(self, factors: list[_Factor]) -> None:
        self.factors = factors

    def __call__(self, values: Any) -> str:
        if np.asarray(values).dtype.kind not in "iu":
            return ""
        same = (one for one in self.factors if np.array_equal(one.index, values))
        return next((one.name for one in same), "")


def _chosen(built: Any, factors: list[_Factor], local: str | None) -> _Factor | None:
    """The factor whose terms become local parameters."""
    if local is None:
        return None
    if local == _AUTO:
        few = [one for one in factors if _n_local(built, one.dimension) <= MOST_DIMENSIONS]
        return max(few, key=lambda one: len(built.coords[one.dimension]), default=None)
    for one in factors:
        if local in (one.name, one.dimension):
            return one
    names = ", ".join(one.name for one in factors) or "none"
    raise BadInputError(f"No group-specific term has the factor {local!r}. The factors: {names}.")


def _n_local(built: Any, dimension: str) -> int:
    """How many coefficients a group of this dimension has."""
    dims = built.named_vars_to_dims
    own = [dims[rv.name] for rv in built.free_RVs if dimension in dims.get(rv.name, ())]
    return sum(prod(len(built.coords[d]) for d in of if d != dimension) for of in own)


class _Shift(NamedTuple):
    """How the intercept of a component changes if its columns are not centred."""

    intercept: str
    coefficients: list[str]
    means: Any


def _shifts(model: Any) -> Iterator[_Shift]:
    """The components of a bambi model whose columns are centred."""
    for component in model.backend.distributional_components.values():
        columns, own = component.design_matrix_without_intercept, component.component
        if columns is not None:
            terms = own.common_terms.values()
            names = [term.alias or term.name for term in terms]
            intercept = own.intercept_term
            yield _Shift(intercept.alias or intercept.name, names, np.asarray(columns).mean(axis=0))


def _uncentre(built: Any, shift: _Shift) -> None:
    """Rename the sampled intercept, and add that of columns as they were."""
    pymc, tensor = (load(name, "bambi") for name in ("pymc", "pytensor.tensor"))
    rv = built[shift.intercept]
    value, dims = built.rvs_to_values[rv], built.named_vars_to_dims.pop(rv.name, None)
    del built.named_vars[rv.name]
    value.name = value.name.replace(shift.intercept, f"{shift.intercept}_centred", 1)
    rv.name = f"{shift.intercept}_centred"
    built.add_named_variable(rv, dims=dims)
    parts = [built[name] for name in shift.coefficients]
    coefficients = [part[None] if part.ndim == rv.ndim else part for part in parts]
    moved = tensor.dot(shift.means, tensor.concatenate(coefficients, axis=0))
    with built:
        pymc.Deterministic(shift.intercept, rv - moved, dims=dims)


def _without_offsets(built: PlateModel) -> PlateModel:
    """The model without the standardised effects among what it reports of groups."""
    program, plate = built.program, built.program.plate
    assert isinstance(plate, PymcPlate)
    shown = tuple(name for name in plate.shown if not name.endswith(_OFFSET))
    labels = tuple(label for label in program.level.names if label.partition("[")[0] in shown)
    if not shown or shown == plate.shown:
        return built
    level = Level(program.level.name, labels, (len(labels),))
    plate = replace(plate, shown=shown)
    return replace(built, program=replace(program, plate=plate, level=level))
