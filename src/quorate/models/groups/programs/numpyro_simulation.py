"""Groups of a NumPyro program that are simulated: their parameters are drawn from the prior."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quorate._extras import jax_in_float64
from quorate.models.arrays import AnyArray
from quorate.models.programs.numpyro_program import drawn, unconstrained

if TYPE_CHECKING:
    from quorate.models.groups.programs.numpyro import NumpyroPlate
    from quorate.models.groups.programs.plates import Constants


def simulated(
    plate: "NumpyroPlate",
    x: AnyArray,
    known: Mapping[str, AnyArray],
    is_known: AnyArray,
    rows: Mapping[str, Any],
    constants: "Constants",
    key: AnyArray,
) -> dict[str, AnyArray]:
    """Draws of what is observed of rows, rows first.

    Parameters
    ----------
    x
        Unconstrained global parameters, (d,).
    known
        Local variables on their natural scale, groups first: (m, *shape) each.
    is_known
        Whether they count, (m,). The variables of other groups are drawn given x.
    """
    jax = jax_in_float64()
    of_groups, of_rows = jax.random.split(key)
    arguments = {**constants, **plate.split.restored(rows, jax.numpy)}
    free = plate.free_globals(x)
    trace = drawn(plate.model, arguments, free, of_groups)
    local = {}
    for site in plate.local_sites:
        value, axis = trace[site.name]["value"], plate.group_axes[site.name]
        first = jax.numpy.moveaxis(value, axis, 0)
        which = is_known.reshape(-1, *(1,) * (first.ndim - 1))
        local[site.name] = jax.numpy.moveaxis(
            jax.numpy.where(which, known[site.name], first), 0, axis
        )
    return plate.rows_first(drawn(plate.model, arguments, free, of_rows, local))


def prior_draw(plate: "NumpyroPlate", key: AnyArray) -> AnyArray:
    """A draw of the unconstrained global parameters from their prior, (d,)."""
    rows, constants, _ = plate.example
    arguments = {**constants, **plate.split.restored(rows, jax_in_float64().numpy)}
    return unconstrained(plate.sites, drawn(plate.model, arguments, {}, key))
