"""The journal: a run on disk, written before anything counts.

One SQLite file, `journal.sqlite`, with a write-ahead log beside it, in the folder of the run. The
folder must be on a disk of this machine: SQLite cannot share a log over a network. Tables: `run`
(the configuration, JSON), `log` (blocks and events in order of arrival) and `states` (the latest
arrays of the state of each chain). All have the same columns: a number, a JSON header, a CRC-32
and raw bytes. There are no pickles.

Once `append` has returned, its records survive the death of any process. A power cut may cost the
records since the last sync, which happens once a second while records arrive. What is left then is
the run as it was a moment before, never a file that cannot be read.

>>> journal = Journal.create(folder, {"seed": 1})
>>> journal.append([BlockRecord(0.2, worker=0, attempt=0, shards=(0,), chain=0, first_draw=0,
...                             payload=draws, state={"position": draws[-1, 0]})])
>>> journal.close()
>>> with JournalReader(folder) as reader:
...     records, states = list(reader.records()), dict(reader.states())
"""

import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from quorate.errors import BadInputError
from quorate.journal import file as journal_file
from quorate.journal.reader import JournalReader, Place, Reached, state_fields
from quorate.journal.records import (
    AnyArray,
    BlockRecord,
    ChainKey,
    Record,
    Row,
    dropped_row,
    record_row,
    write_row,
)

_SYNC_SECONDS = 1.0
_PUT_LOG, _PUT_STATE = journal_file.PUT.format("log"), journal_file.PUT.format("states")


class Journal:
    """The writer, one process at a time. Made by `create`, or by `open` to resume a run."""

    def __init__(self, folder: Path, lock: journal_file.Lock) -> None:
        self._path = folder / journal_file.NAME
        self._lock = lock
        self._chains: dict[ChainKey, Reached] = {}
        self._places: dict[Place, int] = {}
        self._last_row = self._last_place = 0
        self._last_sync = time.monotonic()
        self._connection = journal_file.connect(folder, writable=True)

    @classmethod
    def create(cls, folder: Path, configuration: Mapping[str, Any]) -> "Journal":
        """The journal of a new run, which `configuration`, of JSON values, describes."""
        with journal_file.told_clearly(folder / journal_file.NAME):
            folder.mkdir(parents=True, exist_ok=True)
            lock = journal_file.Lock(folder)
            try:
                journal_file.make(folder, configuration)
                return cls(folder, lock)
            except BaseException:
                lock.close()
                raise

    @classmethod
    def open(cls, folder: Path) -> "Journal":
        """The journal of a run to resume, read through and checked.

        Rows that are damaged are marked as dropped, with a warning; see `JournalReader`.
        """
        path = folder / journal_file.NAME
        journal_file.require_file(path)
        with journal_file.told_clearly(path):
            lock = journal_file.Lock(folder)
            try:
                journal = cls(folder, lock)
            except BaseException:
                lock.close()
                raise
            try:
                journal._catch_up(folder)
            except BaseException:
                journal.close()
                raise
        return journal

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release the lock."""
        try:
            with journal_file.told_clearly(self._path):
                journal_file.close_written(self._connection)
        finally:
            self._lock.close()

    def append(self, records: Sequence[Record]) -> None:
        """Write records, all of them or, with an error, none."""
        log: list[Row] = []
        chains: dict[ChainKey, Reached] = {}
        arrays: dict[Place, tuple[dict[str, Any], AnyArray]] = {}
        for row, record in enumerate(records, self._last_row + 1):
            changed: dict[str, int] = {}
            if isinstance(record, BlockRecord):
                changed = self._follow(record, chains, arrays)
            log.append(record_row("log", row, record, changed))
        new = [place for place in arrays if place not in self._places]
        places = dict(zip(new, count(self._last_place + 1)))
        states = [
            write_row("states", places.get(place) or self._places[place], fields, [array])
            for place, (fields, array) in arrays.items()
        ]
        self._write(log, states)
        self._chains |= chains
        self._places |= places
        self._last_row += len(log)
        self._last_place += len(places)

    def _follow(
        self,
        block: BlockRecord,
        chains: dict[ChainKey, Reached],
        arrays: dict[Place, tuple[dict[str, Any], AnyArray]],
    ) -> dict[str, int]:
        """Note how far the block advances its chain, and which arrays of its state change."""
        key, next_draw = block.key, block.next_draw
        reached = chains.get(key) or self._chains.get(key) or Reached(0, {})
        if block.first_draw != reached.next_draw:
            raise BadInputError(
                f"A block begins with draw {block.first_draw}, but the next draw of {key} is "
                f"{reached.next_draw}."
            )
        changed = reached.state | dict.fromkeys(block.state, next_draw)
        chains[key] = Reached(next_draw, changed)
        for name, array in block.state.items():
            arrays[key, name] = (state_fields(key, name, next_draw), array)
        return changed

    def _write(self, log: list[Row], states: list[Row]) -> None:
        sync = time.monotonic() - self._last_sync > _SYNC_SECONDS
        with journal_file.told_clearly(self._path):
            if sync:
                self._connection.execute("PRAGMA synchronous = FULL")
            with journal_file.transaction(self._connection):
                self._connection.executemany(_PUT_LOG, log)
                self._connection.executemany(_PUT_STATE, states)
            if sync:
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._last_sync = time.monotonic()

    def _catch_up(self, folder: Path) -> None:
        """Find out how far the run has come, and drop damaged rows."""
        journal_file.check_structure(self._connection, self._path)
        with JournalReader(folder) as reader:
            reader.configuration()
            for _ in reader.records():
                pass
            self._places = reader.state_places()
            self._last_place = max(self._places.values(), default=0)
            for key, state in reader.states():
                next_draw, changed = reader.chains[key]
                self._chains[key] = Reached(next_draw, {} if state is None else changed)
            self._last_row = reader.last_row
            if reader.dropped or reader.n_lacking:
                self._drop(reader.dropped)

    def _drop(self, dropped: Mapping[int, str]) -> None:
        with journal_file.transaction(self._connection):
            self._connection.executemany(
                "DELETE FROM log WHERE id = ?", [(row,) for row in dropped]
            )
            rows = [dropped_row("log", n, why) for n, why in dropped.items() if n <= self._last_row]
            self._connection.executemany(_PUT_LOG, rows)
            self._connection.execute(
                "UPDATE sqlite_sequence SET seq = ? WHERE name = 'log'", (self._last_row,)
            )
