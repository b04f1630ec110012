"""The file of local summaries in the folder of a run: `local.npz`.

It is written whole or not at all. It says which draws of the global parameters it was made from, so
that a summary from before a resume is not taken for one of all draws. Nothing in it is pickled.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from quorate._files import Saving
from quorate._types import Array
from quorate.errors import BadInputError
from quorate.results.level_summary import LevelSummary

FILE = "local.npz"
_ABOUT = "about"
_ARRAYS = ("labels", "means", "sds", "skewnesses")


@dataclass(frozen=True, eq=False)
class LocalSummaries:
    """Summaries of all levels.

    Parameters
    ----------
    digest
        `digest_of` the draws that they were made from.
    n_points
        Number of points that was asked for.
    """

    levels: tuple[LevelSummary, ...]
    digest: str
    n_points: int

    def save(self, folder: Path) -> None:
        """Write the file, or raise `SaveError` and leave what was there before."""
        named = [{"name": level.name, "parameters": level.parameters} for level in self.levels]
        about = {"digest": self.digest, "points": self.n_points, "levels": named}
        arrays: dict[str, NDArray[Any]] = {
            _ABOUT: np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
        }
        for i, level in enumerate(self.levels):
            arrays |= {f"{name}_{i}": getattr(level, name) for name in _ARRAYS}

        def put(file: BinaryIO) -> None:
            np.savez(file, allow_pickle=False, **arrays)

        with Saving() as saving:
            saving.write(folder / FILE, put)


def load(folder: Path) -> LocalSummaries | None:
    """The summaries in the folder of a run; None if there are none."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            about = json.loads(arrays[_ABOUT].tobytes())
            levels = tuple(_level(arrays, i, named) for i, named in enumerate(about["levels"]))
        return LocalSummaries(levels, str(about["digest"]), int(about["points"]))
    except (
        *(ValueError, TypeError, OSError, LookupError, AttributeError, EOFError, RecursionError),
        *(zipfile.BadZipFile, MemoryError, NotImplementedError),
    ):
        raise BadInputError(
            f"{path} is damaged: it holds no summaries of groups that quorate has written. Remove "
            "it; `quorate local RUN` writes it again."
        ) from None


def digest_of(draws: Array) -> str:
    """SHA-256 of draws of the global parameters."""
    return hashlib.sha256(np.ascontiguousarray(draws).tobytes()).hexdigest()


def _level(arrays: Any, i: int, named: dict[str, Any]) -> LevelSummary:
    labels, *numbers = (arrays[f"{name}_{i}"] for name in _ARRAYS)
    parameters = tuple(map(str, named["parameters"]))
    shape = (len(labels), len(parameters))
    for array in numbers:
        if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"level {i} has numbers of shape {array.shape}, not {shape}")
    if labels.shape != shape[:1] or not parameters:
        raise ValueError(f"level {i} has labels of shape {labels.shape}")
    return LevelSummary(str(named["name"]), parameters, labels, *numbers)
