"""What the journal of an updated run holds of the run before it: the Gaussian fit."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quorate.errors import BadInputError
from quorate.passes.first_fit import Before

UPDATE_OF = "update_of"  # a key of the configuration, if there was a run before


def kept_before(folder: str, before: Before) -> dict[str, Any]:
    """JSON values for the configuration of a run with rows added to the run in `folder`."""
    return {
        UPDATE_OF: {
            "run": folder,
            "shards": before.n_shards,
            "mean": before.mean.tolist(),
            "lower": before.lower.tolist(),
        }
    }


def before_of(configuration: Mapping[str, Any]) -> Before | None:
    """The fit of the run that rows were added to; None for a run that began with all its rows."""
    kept = configuration.get(UPDATE_OF)
    if kept is None:
        return None
    try:
        mean, lower = (np.array(kept[name], dtype=np.float64) for name in ("mean", "lower"))
        n_shards = int(kept["shards"])
    except (KeyError, TypeError, ValueError) as error:
        raise _unfit(repr(error)) from None
    dim = len(configuration["names"])
    if mean.shape != (dim,) or lower.shape != (dim, dim):
        raise _unfit(f"its shapes are {mean.shape} and {lower.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(lower).all() and (np.diag(lower) > 0).all()):
        raise _unfit("it is not finite")
    return Before(mean, np.tril(lower), n_shards)


def _unfit(what: str) -> BadInputError:
    return BadInputError(
        f"The journal holds no fit of the run before it: {what}. Read it with the quorate that "
        "wrote it, or a later one."
    )
