"""Optional libraries: imported where they are used, with an error that names their extra."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from quorate.errors import MissingExtraError


def load(module: str, extra: str) -> Any:
    """Import a module, or raise an error that says what to install."""
    if not is_installed(module):
        raise MissingExtraError(module, extra)
    return import_module(module)


def is_installed(module: str) -> bool:
    """Whether a library of this name can be found, without importing it."""
    return find_spec(module.partition(".")[0]) is not None


def jax_in_float64() -> Any:
    """JAX, with 64-bit numbers switched on for this process: log densities need them."""
    jax = load("jax", "jax")
    jax.config.update("jax_enable_x64", True)
    return jax
