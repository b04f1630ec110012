"""Names of variables: of the scalars that they consist of, and of their files."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import numpy as np

from quorate._types import Array


def named_scalars(variables: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """Name, such as `beta[2]`, and draws of each scalar of each variable (n_draws, *shape)."""
    return [
        (indexed_at(name, index), values[(slice(None), *index)])
        for name, values in variables.items()
        for index in np.ndindex(values.shape[1:])
    ]


def indexed_at(name: str, index: Sequence[int]) -> str:
    """`name` with its index in brackets; `name` alone for an empty index."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f\ud800-\udfff]|%(?=[0-9A-Fa-f]{2})")


def name_in_file(name: str) -> str:
    """A name that leads nowhere when it is taken for that of a file: `../x` becomes `..%2Fx`."""
    return _UNSAFE.sub(_escaped, name)


def name_of_file(name: str) -> str:
    """The name that `name_in_file` was given."""
    return unquote(name, errors="surrogatepass")


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
