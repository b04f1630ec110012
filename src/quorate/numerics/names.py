"""Names of the scalars that variables consist of, for tables and plots."""

from collections.abc import Mapping

import numpy as np

from quorate._types import Array


def named_scalars(variables: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """Name, such as `beta[2]`, and draws of each scalar of each variable (n_draws, *shape)."""
    listed = []
    for name, values in variables.items():
        for index in np.ndindex(values.shape[1:]):
            label = f"{name}[{','.join(map(str, index))}]" if index else name
            listed.append((label, values[(slice(None), *index)]))
    return listed
