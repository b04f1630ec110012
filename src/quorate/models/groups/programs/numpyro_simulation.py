"""Groups of a NumPyro program that are simulated: their parameters are drawn from the prior."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quorate._extras import jax_in_float64
from quorate.models.arrays import AnyArray
from quorate.models.programs.numpyro_program import Site, drawn, unconstrained

if TYPE_CHECKING:
    from quorate.models.groups.programs.nested_numpyro import NestedNumpyroPlate
    from quorate.models.groups.programs.numpyro import NumpyroPlate


class SitesOfGroups(NamedTuple):
    """Latent sites of the groups of a level, the axis of groups of each, and which are known."""

    sites: Sequence[Site]
    axes: Mapping[str, int]
    is_known: AnyArray  # (m,)


def simulated(
    model: Callable[..., Any],
    arguments: Mapping[str, Any],
    free: Mapping[str, AnyArray],
    levels: Sequence[SitesOfGroups],
    known: Mapping[str, AnyArray],
    key: AnyArray,
) -> dict[str, Any]:
    """The trace of a program that draws what it observes.

    Parameters
    ----------
    model, arguments
        The program and what it takes.
    free
        Unconstrained values of global variables.
    levels
        Levels of groups, the outer one first. The variables of groups that are not known are drawn
        given the global ones, and given those of the groups that they are in.
    known
        Local variables on their natural scale, groups first: (m, *shape) each.
    """
    jax = jax_in_float64()
    *of_levels, of_rows = jax.random.split(key, len(levels) + 1)
    local: dict[str, AnyArray] = {}
    for (sites, axes, is_known), own in zip(levels, of_levels, strict=True):
        trace = drawn(model, arguments, free, own, local)
        for site in sites:
            first = jax.numpy.moveaxis(trace[site.name]["value"], axes[site.name], 0)
            which = is_known.reshape(-1, *(1,) * (first.ndim - 1))
            both = jax.numpy.where(which, known[site.name], first)
            local[site.name] = jax.numpy.moveaxis(both, 0, axes[site.name])
    return drawn(model, arguments, free, of_rows, local)


def prior_draw(plate: "NumpyroPlate | NestedNumpyroPlate", key: AnyArray) -> AnyArray:
    """A draw of the unconstrained global parameters from their prior, (d,)."""
    rows, constants, _ = plate.example
    arguments = {**constants, **plate.split.restored(rows, jax_in_float64().numpy)}
    return unconstrained(plate.sites, drawn(plate.model, arguments, {}, key))
