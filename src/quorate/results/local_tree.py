"""Other forms of draws of local parameters: a program's own variables, and a table of rows."""

from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.data.label_text import texts_of
from quorate.errors import BadInputError
from quorate.models.axes import axes_of
from quorate.results.arviz import constants_group, posterior_group

if TYPE_CHECKING:
    import pandas as pd
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


def long_table(draws: "xr.Dataset") -> "pd.DataFrame":
    """A row for each number of `LocalParameters.draws`, level after level."""
    import pandas as pd

    parts = []
    for name, values in draws.items():
        _, _, group, parameter = values.dims
        renamed = values.rename({group: "group", parameter: "parameter"})
        rows = renamed.to_dataframe(name="value").reset_index()
        parts.append(rows.assign(level=str(name).removeprefix("r_")))
    columns = ["level", "group", "parameter", "chain", "draw", "value"]
    table = pd.concat(parts, ignore_index=True)[columns]
    if len(parts) > 1:  # groups of two levels may have labels of two types
        table["group"] = texts_of(table["group"])
    return table
