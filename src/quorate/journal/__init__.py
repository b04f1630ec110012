"""The journal of a run: one SQLite file that holds every accepted block and every event.

Written before anything counts, read without executing anything. It knows no engine and no report.
"""

from quorate.journal.reader import JournalReader, Reached
from quorate.journal.records import (
    BlockRecord,
    ChainKey,
    EventRecord,
    FitRecord,
    Record,
    run_event,
)
from quorate.journal.writer import Journal

__all__ = [
    "BlockRecord",
    "ChainKey",
    "EventRecord",
    "FitRecord",
    "Journal",
    "JournalReader",
    "Reached",
    "Record",
    "run_event",
]
