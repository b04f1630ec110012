"""The journal: a run on disk, written before anything counts.

One SQLite file, `journal.sqlite`, in the folder of the run. While it is written, a write-ahead log
lies beside it, and `journal.lock` with the number of rows; once it is closed it is one file. The
folder must be on a disk of this machine: SQLite cannot share a log over a network. Tables: `run`
(the configuration, JSON), `log` (blocks and events in order of arrival) and `states` (the latest
arrays of the state of each chain). All have the same columns: a number, a JSON header, a CRC-32
and raw bytes. There are no pickles.

Once `append` has returned, its records survive the death of any process. Once a second, while
records arrive, the log is moved into the file and synced. A power cut may cost the records since
then, and so may damage of the log; the number of rows tells how many. What is left is the run as it
was a moment before, never a file that cannot be read.

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

from quorate._warnings import warn
from quorate.errors import BadInputError, JournalError, JournalWarning
from quorate.journal import file as journal_file
from quorate.journal import fingerprint
from quorate.journal.damage import told_with_count
from quorate.journal.lock import Lock
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
_REMOVED = "put its folder back and resume the run, or start a new one"
_PUT_LOG, _PUT_STATE = journal_file.PUT.format("log"), journal_file.PUT.format("states")


class Journal:
    """The writer, one process at a time. Made by `create`, or by `open` to resume a run."""

    def __init__(self, folder: Path, lock: Lock) -> None:
        self._folder, self._path = folder, folder / journal_file.NAME
        self._lock = lock
        self._chains: dict[ChainKey, Reached] = {}
        self._places: dict[Place, int] = {}
        self._last_row = self._last_place = 0
        self._last_sync = time.monotonic()
        self._connection = journal_file.connect(folder, writable=True)
        self._identity = _identity(self._path)

    @staticmethod
    def require_none(folder: Path) -> None:
        """Refuse a folder that has a journal, before anything is written to it."""
        journal_file.require_none(folder)

    @classmethod
    def create(cls, folder: Path, configuration: Mapping[str, Any]) -> "Journal":
        """The journal of a new run, which `configuration`, of JSON values, describes."""
        with journal_file.told_clearly(folder / journal_file.NAME):
            folder.mkdir(parents=True, exist_ok=True)
            lock = Lock(folder)
            try:
                journal_file.make(folder, configuration)
                journal = cls(folder, lock)
                lock.count(0)
                return journal
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
        with told_with_count(path):
            lock = Lock(folder)
            try:
                return cls._caught_up(folder, lock)
            except BaseException:
                lock.close()
                raise

    @classmethod
    def _caught_up(cls, folder: Path, lock: Lock) -> "Journal":
        """Find out how far the run has come, and drop damaged rows.

        A file that cannot be read to its end stays as it is, for `quorate salvage`.
        """
        with JournalReader(folder) as reader:
            reader.check_structure()
            reader.configuration()
            for _ in reader.records():
                pass
            places, states = reader.state_places(), dict(reader.states())
            journal = cls(folder, lock)
            try:
                journal._take_over(reader, places, states)
            except BaseException:
                journal._connection.close()
                raise
        return journal

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release the lock."""
        is_whole = False
        try:
            with journal_file.told_clearly(self._path):
                is_whole = journal_file.close_written(self._connection, self._folder)
        finally:
            self._lock.close(remove=is_whole)

    def append(self, records: Sequence[Record]) -> None:
        """Write records, all of them or, with an error, none."""
        log: list[Row] = []
        chains: dict[ChainKey, Reached] = {}
        arrays: dict[Place, tuple[dict[str, Any], AnyArray]] = {}
        for row, record in enumerate(records, self._last_row + 1):
            changed: dict[str, int] = {}
            if isinstance(record, BlockRecord):
                changed = self._follow(record, chains, arrays)
            log.append(record_row(row, record, changed))
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

    def fingerprint(self) -> tuple[int, str]:
        """The number of rows so far, and their fingerprint; see `JournalReader.fingerprint`."""
        with journal_file.told_clearly(self._path):
            return self._last_row, fingerprint.of_written(self._connection, self._last_row)

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
        with journal_file.told_clearly(self._path):
            if _identity(self._path) != self._identity:
                raise JournalError(str(self._path), "was removed or moved during the run", _REMOVED)
            if time.monotonic() - self._last_sync > _SYNC_SECONDS:
                journal_file.checkpoint(self._connection)
                self._last_sync = time.monotonic()
            with journal_file.transaction(self._connection):
                self._connection.executemany(_PUT_LOG, log)
                self._connection.executemany(_PUT_STATE, states)
            self._lock.count(self._last_row + len(log))

    def _take_over(
        self,
        reader: JournalReader,
        places: dict[Place, int],
        states: Mapping[ChainKey, object],
    ) -> None:
        self._places = places
        self._last_place = max(places.values(), default=0)
        for key, state in states.items():
            next_draw, changed = reader.chains[key]
            self._chains[key] = Reached(next_draw, {} if state is None else changed)
        n_lost = sum(state is None for state in states.values())
        if n_lost:
            self._warn_of_states(n_lost)
        self._last_row = reader.last_row
        if reader.dropped or reader.n_lacking:
            self._drop(reader.dropped)
        self._lock.count(self._last_row)

    def _warn_of_states(self, n_lost: int) -> None:
        warn(
            f"The journal {self._path} has lost the state of {n_lost} of {len(self._chains)} "
            "chains. They warm up again",
            JournalWarning,
        )

    def _drop(self, dropped: Mapping[int, str]) -> None:
        with journal_file.transaction(self._connection):
            self._connection.executemany(
                "DELETE FROM log WHERE id = ?", [(row,) for row in dropped]
            )
            rows = [dropped_row(n, why) for n, why in dropped.items() if n <= self._last_row]
            self._connection.executemany(_PUT_LOG, rows)
            self._connection.execute(
                "UPDATE sqlite_sequence SET seq = ? WHERE name = 'log'", (self._last_row,)
            )


def _identity(path: Path) -> tuple[int, int]:
    """Which file lies there; (0, 0) if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino
