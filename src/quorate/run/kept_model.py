"""The model and the sampler that are kept with a run, and whether the run began with them.

To open them executes code. The journal holds a checksum of the file, so a file that was damaged or
exchanged is refused before anything in it is executed.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quorate._files import save
from quorate._warnings import warn
from quorate.engines.packing import unpacked
from quorate.errors import BadInputError, ChangedModelWarning
from quorate.models.protocol import Model
from quorate.samplers import SAMPLERS, make_sampler
from quorate.samplers.protocol import Sampler

NAME = "model.pkl"


def keep(folder: Path, things: bytes) -> None:
    """Write the file; `things` is a packed model and sampler."""
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / NAME, things)


def checksum(things: bytes) -> str:
    """What the journal holds of the file."""
    return hashlib.sha256(things).hexdigest()


def opened(
    folder: Path, configuration: Mapping[str, Any], model: Model | None
) -> tuple[Model, Sampler]:
    """The model and the sampler of a run; `model` in place of the one that is kept, if given.

    A file that is not the one that the run began with is not opened. The run then needs `model`,
    and gets the sampler that the journal names, with its defaults.
    """
    try:
        things = _read(folder / NAME, configuration.get("model"))
    except BadInputError as error:
        if model is None:
            raise
        return model, _sampler_named(configuration["settings"]["sampler"], error)
    return things["model"] if model is None else model, things["sampler"]


def _read(path: Path, expected: str | None) -> dict[str, Any]:
    """The content of the file; journals of early versions of 0.2 have no checksum of it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})") from None
    if expected is not None and checksum(data) != expected:
        raise _unusable(path, "is not the one that the run began with: it is damaged, or another")
    try:
        things = unpacked(data)
        _ = things["model"], things["sampler"]
    except Exception as error:
        raise _unusable(path, f"cannot be opened ({type(error).__name__}: {error})") from None
    return things


def _unusable(path: Path, what: str) -> BadInputError:
    return BadInputError(
        f"The model kept in {path} {what}. All draws are in the journal. Put the file back, or "
        "give the model: quorate.resume(run, model=...)."
    )


def _sampler_named(name: str, why: BadInputError) -> Sampler:
    if name not in SAMPLERS:
        raise BadInputError(
            f"The sampler {name!r} of the run was kept in the same file, and has no name that "
            f"quorate knows. {why}"
        ) from None
    warn(
        f"The file of the model was not used, so the run continues with the sampler {name} and "
        "its defaults.",
        ChangedModelWarning,
    )
    return make_sampler(name)
