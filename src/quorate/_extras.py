"""Optional libraries: imported where they are used, with an error that names their extra."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from quorate.errors import MissingExtraError


def load(module: str, extra: str) -> Any:
    """Import a module, or raise an error that says what to install."""
    return load_all({module: extra})


def load_all(needed: Mapping[str, str]) -> Any:
    """Import modules, each of an extra, and return the first of them.

    Raises
    ------
    MissingExtraError
        If any is not installed. It names all that are missing, so that one installation suffices.
    """
    require_installed(needed)
    first, *_ = [import_module(module) for module in needed]
    return first


def require_installed(needed: Mapping[str, str]) -> None:
    """Raise `MissingExtraError` if any of these modules, each of an extra, is not installed."""
    lacking = {module: extra for module, extra in needed.items() if not is_installed(module)}
    if lacking:
        raise MissingExtraError(tuple(lacking), tuple(dict.fromkeys(lacking.values())))


def is_installed(module: str) -> bool:
    """Whether a library of this name can be found, without importing it."""
    return find_spec(module.partition(".")[0]) is not None


def jax_in_float64() -> Any:
    """JAX, with 64-bit numbers switched on for this process: log densities need them."""
    jax = load("jax", "jax")
    jax.config.update("jax_enable_x64", True)
    return jax
