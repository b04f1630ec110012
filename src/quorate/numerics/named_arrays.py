"""One codec for arrays with names: nested mappings of arrays, flat while they travel.

States, extras and fits are mappings of mappings of arrays. Messages and the journal hold them
flat, with the path of each array as its name: `{"fits": {0: {"mean": m}}}` is `{"fits/0/mean": m}`.
"""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

_SEPARATOR = "/"

AnyArray = NDArray[Any]
Nested = Mapping[Any, "AnyArray | Nested"]


def flattened(nested: Nested) -> dict[str, AnyArray]:
    """All arrays of nested mappings, each under its path. Keys must not contain a slash."""
    flat: dict[str, AnyArray] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}{_SEPARATOR}{rest}": array for rest, array in flattened(value).items()}
        else:
            flat[str(key)] = value
    return flat


def part(flat: Mapping[str, AnyArray], *path: object) -> dict[str, AnyArray]:
    """The arrays below `path`, still flat, without it."""
    prefix = "".join(f"{key}{_SEPARATOR}" for key in path)
    return {
        name.removeprefix(prefix): array for name, array in flat.items() if name.startswith(prefix)
    }


def parts(flat: Mapping[str, AnyArray], *path: object) -> dict[str, dict[str, AnyArray]]:
    """The arrays below `path`, by the next key of their paths; arrays right there are left out."""
    found: dict[str, dict[str, AnyArray]] = {}
    for name, array in part(flat, *path).items():
        key, separator, rest = name.partition(_SEPARATOR)
        if separator:
            found.setdefault(key, {})[rest] = array
    return found
