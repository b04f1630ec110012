"""Events of a run as the journal tells them: one dataclass for each kind, and an enum of the kinds.

All have a time in seconds since the run began, and say who is meant (`worker`, None for the run as
a whole), what happened in a word (`word`) and more in a line (`text`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from quorate.errors import named_shards
from quorate.protocol.messages import Happening


class EventKind(StrEnum):
    """The kinds of events."""

    STARTED = "started"
    RESUMED = "resumed"
    FINISHED = "finished"
    CHECKED = "checked"
    EXCLUDED = "excluded"
    PRIOR = "prior"
    TASK = "task"
    WORKER = "worker"
    PART = "part"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class _RunEvent:
    """Something that happened to the run as a whole, with the date."""

    time: float
    date: str = field(default_factory=_now, kw_only=True)

    kind: ClassVar[EventKind]
    worker: ClassVar[None] = None
    text: ClassVar[str] = ""

    @property
    def word(self) -> str:
        """What happened, in a word."""
        return self.kind.value


@dataclass(frozen=True)
class Started(_RunEvent):
    """The run started."""

    kind: ClassVar[EventKind] = EventKind.STARTED


@dataclass(frozen=True)
class Resumed(_RunEvent):
    """The run was resumed, with these settings."""

    settings: Mapping[str, Any]

    kind: ClassVar[EventKind] = EventKind.RESUMED


@dataclass(frozen=True)
class Finished(_RunEvent):
    """A sitting of the run ended, for this reason."""

    reason: str

    kind: ClassVar[EventKind] = EventKind.FINISHED

    @property
    def text(self) -> str:  # type: ignore[override]
        """The reason."""
        return self.reason


@dataclass(frozen=True)
class Checked(_RunEvent):
    """The draws were checked, with this verdict."""

    verdict: str

    kind: ClassVar[EventKind] = EventKind.CHECKED


@dataclass(frozen=True)
class Excluded(_RunEvent):
    """The run continues without exactly these shards: nobody who holds them is left."""

    shards: tuple[int, ...]

    kind: ClassVar[EventKind] = EventKind.EXCLUDED

    @property
    def text(self) -> str:  # type: ignore[override]
        """Message that no worker is left for the shards."""
        return f"no worker is left that holds {named_shards(self.shards)}"


@dataclass(frozen=True)
class PriorRestored(_RunEvent):
    """The share of the prior of excluded shards was put back, or could not be."""

    share: float
    restored: bool

    kind: ClassVar[EventKind] = EventKind.PRIOR


@dataclass(frozen=True)
class TaskGiven:
    """A worker was given a task."""

    time: float
    worker: int
    attempt: int
    shards: tuple[int, ...]
    chain: int
    first_draw: int
    n_draws: int
    with_state: bool  # whether the state of a chain came along, from this or another worker

    kind: ClassVar[EventKind] = EventKind.TASK


@dataclass(frozen=True)
class PartAnswered:
    """A worker answered for some shards at some points of a question, or surveyed a shard."""

    time: float
    worker: int
    attempt: int
    began: float  # when it was asked
    shards: tuple[int, ...]
    lane: int
    question: int
    n_points: int
    n_floats: int
    together: tuple[int, ...] = ()  # workers that it answers for from now on, if more than one

    kind: ClassVar[EventKind] = EventKind.PART


@dataclass(frozen=True)
class WorkerEvent:
    """Something happened to a worker."""

    time: float
    worker: int
    attempt: int
    what: Happening
    text: str = ""

    kind: ClassVar[EventKind] = EventKind.WORKER

    @property
    def word(self) -> str:
        """What happened, in a word."""
        return self.what.value

    @property
    def takes_away(self) -> bool:
        """Whether the worker is gone afterwards."""
        return self.what.takes_away


RunEvent = Started | Resumed | Finished | Checked | Excluded | PriorRestored
Event = RunEvent | TaskGiven | PartAnswered | WorkerEvent
_CLASSES: dict[str, type[Event]] = {
    found.kind.value: found
    for found in (
        Started, Resumed, Finished, Checked, Excluded, PriorRestored, TaskGiven, PartAnswered,
        WorkerEvent,
    )
}  # fmt: skip


_TYPES: dict[object, type | tuple[type, ...]] = {
    float: (int, float), int: int, bool: bool, str: str,
}  # fmt: skip
_FIELDS = {
    kind: [(field.name, _TYPES.get(field.type, object)) for field in fields(found)]
    for kind, found in _CLASSES.items()
}


def event_fields(event: Event) -> dict[str, Any]:
    """The fields of an event in JSON values, with its kind."""
    return {"kind": event.kind, **vars(event)}


def event_of(kind: str, found: Mapping[str, Any]) -> Event:
    """The event with these fields.

    ValueError, TypeError, KeyError or OverflowError if it is none.
    """
    values = dict(found)
    for name in ("shards", "together"):
        if name in values:
            values[name] = tuple(map(_whole, values[name]))
    if "what" in values:
        values["what"] = Happening(values["what"])
    for name, expected in _FIELDS[kind]:
        if not isinstance(values.get(name), expected):
            raise TypeError(f"{name} is {values.get(name)!r}")
    values["time"] = float(values["time"])
    return _CLASSES[kind](**values)


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value
