"""Packs models for their way to workers, and fingerprints their code.

Packing is by value, so that models written in a notebook or on standard input travel too.
Unpacking executes code: only what comes from the user's own run is ever unpacked.
"""

import hashlib
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from quorate.errors import BadInputError

_DEPTH = 4  # of attributes of attributes in which functions are looked for


def packed(things: dict[str, Any]) -> bytes:
    """Pack things into bytes. An error names the first of them."""
    import cloudpickle

    name, first = next(iter(things.items()))
    try:
        bytes_of: bytes = cloudpickle.dumps(things)
    except Exception as error:
        raise BadInputError(
            f"The {name}, a {type(first).__name__}, cannot be sent to workers ({error}). "
            "Make it picklable."
        ) from None
    return bytes_of


def unpacked(data: bytes) -> dict[str, Any]:
    """Unpack what `packed` made."""
    import cloudpickle

    things: dict[str, Any] = cloudpickle.loads(data)
    return things


def code_print(model: object) -> str:
    """A fingerprint of the functions that a model was made of, as far as they lie in it.

    The same for the same code under the same Python, wherever it stands.
    """
    digest = hashlib.sha256()
    for function in _functions(model, _DEPTH):
        _add(digest, function.__code__)
    return digest.hexdigest()


def _functions(thing: object, depth: int) -> Iterator[FunctionType]:
    """Functions in the attributes of a thing, and in theirs, and methods of its class.

    Methods of quorate's own classes are left out: its version stands for them.
    """
    if isinstance(thing, FunctionType):
        yield thing
    elif depth and not isinstance(thing, type):
        own = {} if type(thing).__module__.startswith("quorate.") else vars(type(thing))
        for part in (*own.values(), *getattr(thing, "__dict__", {}).values()):
            yield from _functions(part, depth - 1)


def _add(digest: "hashlib._Hash", code: CodeType) -> None:
    digest.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(digest, constant)
        else:
            digest.update(repr(constant).encode())
    digest.update(repr(code.co_names).encode())
