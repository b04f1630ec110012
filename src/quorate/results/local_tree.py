"""Draws of global and local variables of a program in one tree, under the program's own names."""

from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.errors import BadInputError
from quorate.models.axes import axes_of
from quorate.results.arviz import constants_group, posterior_group

if TYPE_CHECKING:
    import xarray as xr

    from quorate.results.local import LocalParameters


def joint_tree(local: "LocalParameters", n: int | None, asked: dict[str, Any]) -> "xr.DataTree":
    """The tree of `LocalParameters.posterior`."""
    import xarray as xr

    named = getattr(local.model, "local_variables", None)
    if named is None:
        raise BadInputError(
            "The groups of this model have no variables with names of their own. Use "
            "result.local.draws(groups) for their parameters."
        )
    found = local.joint(local.labels(), n, **asked)
    ((labels, draws),) = found.levels
    axes, steps = axes_of(local.model), local.steps(n)
    variables = local.model.constrain(found.points) | named(draws, labels)
    rows = np.arange(len(found.numbers)).reshape(-1, len(steps))
    about = {"inference_library": "quorate"}
    posterior = posterior_group(variables, rows, about, axes).assign_coords(draw=steps)
    groups = {"posterior": posterior}
    if axes.constants:
        groups["constant_data"] = constants_group(axes)
    return xr.DataTree.from_dict(groups)
