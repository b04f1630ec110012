"""The journal of a run: one SQLite file that holds every accepted block and every event.

It is written before anything counts, and read without executing anything. It knows no engine and
no report.
"""

from quorate.journal.events import (
    Checked,
    Event,
    EventKind,
    Excluded,
    Finished,
    PartAnswered,
    PriorRestored,
    Resumed,
    RunEvent,
    Started,
    TaskGiven,
    WorkerEvent,
)
from quorate.journal.reader import JournalReader, Reached
from quorate.journal.records import BlockRecord, ChainKey, PassRecord, Record
from quorate.journal.writer import Journal

__all__ = [
    "BlockRecord",
    "ChainKey",
    "Checked",
    "Event",
    "EventKind",
    "Excluded",
    "Finished",
    "Journal",
    "JournalReader",
    "PartAnswered",
    "PassRecord",
    "PriorRestored",
    "Reached",
    "Record",
    "Resumed",
    "RunEvent",
    "Started",
    "TaskGiven",
    "WorkerEvent",
]
