"""Optional libraries: imported where used, with an error that names the extra."""

from importlib import import_module
from typing import Any

from quorate.errors import BadInputError


def import_extra(module: str, extra: str) -> Any:
    """The module, or an error that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        way_out = f"it is an optional library: pip install 'quorate[{extra}]'"
        raise BadInputError(module, "not installed", way_out) from error


def jax_in_float64() -> Any:
    """JAX, with 64-bit numbers switched on for this process: log densities need them."""
    jax = import_extra("jax", "jax")
    jax.config.update("jax_enable_x64", True)
    return jax
