"""Variables taken apart into the scalars that tables and pictures have a line for."""

from collections.abc import Mapping

import numpy as np

from quorate._types import Array


def named_scalars(variables: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """Each scalar of each variable (n_draws, *shape), named like `beta[2]`, with its draws."""
    listed = []
    for name, values in variables.items():
        for index in np.ndindex(values.shape[1:]):
            label = f"{name}[{','.join(map(str, index))}]" if index else name
            listed.append((label, values[(slice(None), *index)]))
    return listed
