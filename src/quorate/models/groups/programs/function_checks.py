"""What functions with local parameters return, checked."""

from typing import Any

import numpy as np

from quorate.errors import WrongShapeError
from quorate.models.checks import require_real


def require_shape(what: str, values: Any, n: int, each: str) -> None:
    """Refuse an array without one number for each of `n` rows or groups."""
    shape = np.shape(values)
    if shape != (n,):
        raise WrongShapeError(
            f"{what} returned an array of shape {shape} for {n} {each}s. It must return one number "
            f"for each {each}, shape ({n},): sum over the parameters of a group, not over {each}s."
        )
    require_real(what, values)
