"""The files of a result in the folder of its run: draws, summary, densities, story and verdict.

Of a merge, the draws in chains are written too: only a model can tell their natural scale.

They are written together. `checksums.json` shows whether they are as they were written, and whether
all are of the same result.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from quorate._files import Saving
from quorate._types import Array
from quorate.errors import BadInputError, require
from quorate.numerics.names import name_in_file, name_of_file

DRAWS, SUMMARY, VERDICT, DENSITIES = "draws.npz", "summary.json", "verdict.json", "densities.json"
STORY, CHECKSUMS, CHAINS = "story.txt", "checksums.json", "chains.npz"
_AGAIN = "All draws are in the journal: `quorate resume RUN` writes the files again."


def save(
    folder: Path,
    variables: Mapping[str, Array],
    texts: Mapping[str, str],
    chains: Mapping[str, Array] | None = None,
) -> None:
    """Write draws by name and files of text, all of them or, with a `SaveError`, none.

    `chains` are the draws of the tree, if they are others.
    """
    arrays = {DRAWS: variables} | ({} if chains is None else {CHAINS: chains})
    with Saving() as saving:
        sums = {
            name: saving.write(folder / name, partial(_put_text, text))
            for name, text in texts.items()
        }
        sums |= {
            name: saving.write(folder / name, partial(_put_arrays, of))
            for name, of in arrays.items()
        }
        saving.write(folder / CHECKSUMS, partial(_put_text, json.dumps(sums, indent=2)))
    for name in {VERDICT, CHAINS} - {*texts, *arrays}:
        (folder / name).unlink(missing_ok=True)


def load(run_dir: Path, name: str) -> bytes | None:
    """The content of a file as it was saved; None if none was.

    Raises `BadInputError` if it has changed since. Runs of before have no checksums.
    """
    path, sums = run_dir / name, run_dir / CHECKSUMS
    try:
        content = path.read_bytes() if path.is_file() else None
        known = json.loads(sums.read_bytes()) if sums.is_file() else {}
        expected = known.get(name) if known else None
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read ({error}). {_AGAIN}") from None
    if expected is None and (known or content is None):
        return None
    if known and hashlib.sha256(content or b"").hexdigest() != expected:
        raise BadInputError(f"{path} is not as it was saved. {_AGAIN}")
    return content


def load_summary(run_dir: Path) -> dict[str, dict[str, float]]:
    """The summary of a run that was saved: rows of numbers, all with the same columns."""
    content = load(run_dir, SUMMARY)
    if content is None:
        raise BadInputError(
            f"There is no finished run in {run_dir}. Name the folder of a run that has ended, or "
            "resume the run."
        )
    try:
        rows: dict[str, dict[str, float]] = json.loads(content)
        columns = {tuple(row) for row in rows.values()}
        numbers = [value for row in rows.values() for value in row.values()]
        fits = len(columns) <= 1 and all(isinstance(value, int | float) for value in numbers)
    except (ValueError, TypeError, AttributeError, RecursionError):
        fits = False
    require(fits, f"{run_dir / SUMMARY} is not a summary that a run writes. {_AGAIN}")
    return rows


def load_story(run_dir: Path) -> str:
    """What happened in a run that was saved, in a sentence."""
    return (load(run_dir, STORY) or b"").decode("utf-8", "replace").strip()


def load_draws(run_dir: Path, name: str = DRAWS) -> dict[str, Array]:
    """The draws of a run that was saved, by name: `(n_draws, *shape)` each."""
    content = load(run_dir, name)
    if content is None:
        raise BadInputError(f"There are no saved draws in {run_dir}. Resume the run.")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name_of_file(name): arrays[name] for name in arrays.files}
    except (ValueError, OSError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise BadInputError(f"{run_dir / name} cannot be read ({error}). {_AGAIN}") from None


def _put_text(text: str, file: BinaryIO) -> None:
    file.write(text.encode("utf-8", "backslashreplace"))


def _put_arrays(arrays: Mapping[str, Array], file: BinaryIO) -> None:
    """Write an .npz file of arrays of any names; `np.savez` reserves some for its arguments."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name_in_file(name)}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
