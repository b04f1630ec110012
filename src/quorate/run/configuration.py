"""What a journal tells of its run, checked before it is believed.

Reading executes nothing, but a journal may come from a stranger: numbers in it must not make a
reader allocate what the file itself does not hold.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quorate.data.placed import PlacedShards, Shards, open_shards
from quorate.errors import BadInputError, require
from quorate.journal import JournalReader
from quorate.run.settings import Settings

SHARDS = "shards"  # where the folder of a run holds them
PLACED = "placed"  # where a configuration holds the checksum of rows in place
TRANSFORMED = "transformed"  # where it says whether a function was applied to rows
MOST_WORKERS = 10_000
_LARGEST = 1e300


def configuration_of(reader: JournalReader) -> dict[str, Any]:
    """The configuration of a run; `BadInputError` if its parts do not fit each other."""
    kept = reader.configuration()
    names, shards = kept.get("names") or [], kept.get("shards") or []
    settings, start = kept.get("settings"), kept.get("start")
    _require(_strings(names), f"names are {names!r}")
    _require(kept.get("dim") == len(names) > 0, f"dim is {kept.get('dim')!r}")
    _require(_strings(shards), "shards have no fingerprints")
    _require(isinstance(settings, dict), "it has no settings")
    fits = isinstance(start, list) and len(start) == len(names) and all(map(_number, start))
    made = settings_of(settings, len(shards))
    _require(fits or (start is None and made.method == "merge"), "the start is no point")
    for part in ("rows", "versions"):
        kind = list if part == "rows" else dict
        _require(isinstance(kept.get(part, kind()), kind), f"{part} are {kept.get(part)!r}")
    _require(all(map(_number, kept.get("rows", []))), "rows are not counted")
    return kept


def settings_of(kept: Any, n_shards: int) -> Settings:
    """The settings in a journal of a run with so many shards."""
    _require(isinstance(kept, Mapping), f"settings are {kept!r}")
    workers = kept.get("workers")
    _require(
        isinstance(workers, int) and workers == n_shards,
        f"there are {workers!r} workers and {n_shards} shards",
    )
    _require(n_shards <= MOST_WORKERS, f"there are more than {MOST_WORKERS:,} workers")
    try:
        return Settings.from_json(kept)
    except (ArithmeticError, AttributeError, LookupError) as error:
        raise _not_a_run(f"settings are {kept!r}") from error


def same_shards(folder: Path, kept: Mapping[str, Any]) -> Shards:
    """The shards of the run in `folder`, if they are still those that it began with.

    Workers check the content of rows in place, whenever they read them.
    """
    require_rows(folder)
    shards = open_shards(folder / SHARDS)
    require(
        list(shards.fingerprints) == kept["shards"],
        f"The shards in {shards.folder} are not those that the run began with.",
    )
    if isinstance(shards, PlacedShards):
        require(
            shards.checksum == kept.get(PLACED),
            f"{shards.folder} says that rows lie elsewhere, or are read otherwise, than when the "
            "run began. Put its file back.",
        )
        return shards
    for number in range(len(kept["shards"])):
        shards.shard(number).verify()
    return shards


def require_rows(folder: Path) -> None:
    """Raise unless the folder of a run has its rows, or word of where they lie."""
    require(
        folder.is_dir(),
        f"The folder of the run, {folder}, is gone, and with it the rows. Sample with a run_dir of "
        "your own, and keep it.",
    )
    require(
        (folder / SHARDS).is_dir(),
        f"The rows of the run are gone: {folder} has no folder `{SHARDS}`. Put it back, or sample "
        "again. The draws so far are in the journal.",
    )


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LARGEST


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise _not_a_run(what)


def _not_a_run(what: str) -> BadInputError:
    short = what if len(what) <= 100 else f"{what[:100]}…"
    return BadInputError(
        f"The journal does not describe a run: {short}. Read it with the quorate that wrote it, or "
        "a later one."
    )
