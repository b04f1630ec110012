"""Reads a journal: executes nothing, holds little in memory, and works while the run goes on.

A damaged row is left out, and so are the later rows of the same chain, because the draws of a chain
must have no gaps.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from quorate._warnings import warn
from quorate.errors import JournalWarning
from quorate.journal import file as journal_file
from quorate.journal import fingerprint
from quorate.journal import lock as journal_lock
from quorate.journal.carving import MOST_MISSING
from quorate.journal.damage import refusal, told_with_count
from quorate.journal.records import (
    AnyArray,
    BlockRecord,
    ChainKey,
    DamagedRowError,
    PassRecord,
    Record,
    Row,
    read_record,
    read_row,
    require_whole_numbers,
)

_BATCH, _LARGEST_BATCH = 16, 512  # rows; between batches the writer may tidy up
_BATCH_BYTES = 2**20  # of rows as large as those of the last batch
_ROWS = "SELECT id, header, crc, body FROM {} WHERE id > ? ORDER BY id LIMIT ?"

Place = tuple[ChainKey, str]  # of an array of a state: whose, and its name


class Reached(NamedTuple):
    """How far a chain has come.

    `state` says of each array of its state at which draw it changed last.
    """

    next_draw: int
    state: dict[str, int]


class JournalReader:
    """Goes through a journal once, and on from there as often as asked: for a look at a live run.

    Attributes
    ----------
    chains
        How far each chain has come, by what was read so far.
    dropped
        Rows left out so far, and why.
    n_lacking
        Rows that are missing at the end.
    last_row
        Number of the last good row read so far; rows are counted from 1.
    """

    def __init__(self, folder: Path) -> None:
        self.chains: dict[ChainKey, Reached] = {}
        self.dropped: dict[int, str] = {}
        self._n_questions: dict[int, int] = {}  # answered, of each lane
        self.last_row = self.n_lacking = 0
        self._n_acknowledged = 0
        self._at_once = _BATCH
        self._count_is_lost = False
        self._folder, self._path = folder, folder / journal_file.NAME
        with told_with_count(self._path):
            self._connection = journal_file.connect(folder, writable=False)

    def __enter__(self) -> "JournalReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        journal_file.close_read(self._connection, self._folder)

    def configuration(self) -> dict[str, Any]:
        """What the run was started with."""
        with told_with_count(self._path):
            return journal_file.configuration(self._connection, self._path)

    def check_structure(self) -> None:
        """Reject a file with inconsistent pages; reads all of it."""
        with told_with_count(self._path):
            journal_file.check_structure(self._connection, self._path)

    def fingerprint(self, n_rows: int) -> str | None:
        """The fingerprint of the first rows; None if one of them is missing or damaged."""
        with told_with_count(self._path), journal_file.transaction(self._connection):
            return fingerprint.of_read(self._connection, n_rows)

    def records(self) -> Iterator[Record]:
        """Records that were not given before, in the order in which they were written.

        Warns in the end if rows had to be left out.
        """
        told = self._told
        self._look_at_count()
        after = self.last_row
        while rows := self._batch(after):
            for row in rows:
                record = self._take(row)
                if record is not None:
                    yield record
            after = self._further(after, rows)
        if self._told != told:
            self._warn()

    @property
    def _told(self) -> tuple[int, int, bool]:
        """What there is to warn of."""
        return len(self.dropped), self.n_lacking, self._count_is_lost

    def states(self) -> Iterator[tuple[ChainKey, dict[str, AnyArray] | None]]:
        """The state in which each chain read so far was left; None where it has been lost."""
        places = self.state_places()
        for key, reached in self.chains.items():
            yield key, self._state(key, reached.state, places)

    def state_places(self) -> dict[Place, int]:
        """Row of each array of the states, by chain and name, as far as they are not damaged."""
        places, after = {}, 0
        while rows := self._rows("states", after, _BATCH):
            for row in rows:
                with suppress(DamagedRowError):
                    fields, _ = read_row("states", row)
                    places[_owner(fields)] = row.id
            after = self._further(after, rows)
        return places

    def _state(
        self, key: ChainKey, changed: dict[str, int], places: dict[Place, int]
    ) -> dict[str, AnyArray] | None:
        arrays = {}
        for name, draw in changed.items():
            try:
                (row,) = self._rows("states", places[key, name] - 1, 1)
                fields, (arrays[name],) = read_row("states", row)
            except (KeyError, ValueError):
                return None
            if fields != state_fields(key, name, draw):
                return None
        return arrays

    def _rows(self, table: str, after: int, limit: int) -> list[Row]:
        with told_with_count(self._path):
            found = self._connection.execute(_ROWS.format(table), (after, limit)).fetchall()
        return [Row(*row) for row in found]

    def _further(self, after: int, rows: list[Row]) -> int:
        """The furthest row; pages of a damaged file may lead back."""
        furthest = max(row.id for row in rows)
        if furthest <= after:
            raise refusal(self._path)
        return furthest

    def _batch(self, after: int) -> list[Row]:
        """Rows of the log, or at its end, at the same moment, a look at whether all are there."""
        with told_with_count(self._path), journal_file.transaction(self._connection):
            rows = self._rows("log", after, self._at_once)
            if not rows:
                self._count_lacking()
        largest = max((len(row.body) for row in rows if isinstance(row.body, bytes)), default=0)
        self._at_once = min(max(_BATCH, _BATCH_BYTES // (largest + 1)), _LARGEST_BATCH)
        return rows

    def _look_at_count(self) -> None:
        """Take in how many rows the writer has acknowledged by now: all of them must be there."""
        try:
            found = journal_lock.acknowledged(self._folder)
        except journal_lock.DamagedCountError:
            self._count_is_lost = True
            return
        self._n_acknowledged = found or 0
        if found is None and self._has_log_without_count():
            self._count_is_lost = True

    def _has_log_without_count(self) -> bool:
        with told_with_count(self._path):
            counted = journal_file.is_counted(self._connection)
        lock = self._folder / journal_lock.NAME
        return counted and journal_file.has_log(self._folder) and not lock.exists()

    def _count_lacking(self) -> None:
        """Compare with the two counts, SQLite's own and that of the lock.

        The first shows that the end of the table is gone, the second that the end of the log is.
        """
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'log'"
        (n_written,) = self._connection.execute(query).fetchone() or (0,)
        furthest = max(self.last_row, *self.dropped, 0)
        n_written = max(n_written if isinstance(n_written, int) else 0, self._n_acknowledged)
        self.n_lacking = max(n_written - furthest, 0)

    def _take(self, row: Row) -> Record | None:
        try:
            record, state = read_record(row)
        except DamagedRowError as damage:
            self.dropped[row.id] = str(damage)
            return None
        if not 0 < row.id - self.last_row <= MOST_MISSING:
            raise refusal(self._path)
        for missing in range(self.last_row + 1, row.id):
            self.dropped.setdefault(missing, "it is missing")
        self.last_row = row.id
        if isinstance(record, BlockRecord):
            reached = self.chains.get(record.key)
            if record.first_draw != (reached.next_draw if reached else 0):
                self.dropped[row.id] = "it comes after a gap in its chain"
                return None
            self.chains[record.key] = Reached(record.next_draw, state)
        if isinstance(record, PassRecord) and record.lane >= 0:
            n_answered = self._n_questions.get(record.lane, 0)
            if record.number > n_answered:
                self.dropped[row.id] = "it comes after a gap in its lane"
                return None
            self._n_questions[record.lane] = max(n_answered, record.number + 1)
        return record

    def _warn(self) -> None:
        warn(
            f"The journal {self._path} is damaged. {self._losses()}. A resumed run draws again "
            "what is lost. `quorate salvage` may bring back some of it, if it is used before",
            JournalWarning,
        )

    def _losses(self) -> str:
        """What is known to be lost, in words."""
        shown = [f"row {row}: {why}" for row, why in sorted(self.dropped.items())]
        n_lost, n_rows = len(shown) + self.n_lacking, self.last_row + self.n_lacking
        listed = shown[:5] + [f"and {len(shown) - 5} more"] * (len(shown) > 5)
        if self.n_lacking:
            listed.append(f"the last {self.n_lacking}: missing")
        told = f"{n_lost} of {n_rows} rows are lost ({'; '.join(listed)})" if n_lost else ""
        if not self._count_is_lost:
            return told
        unknown = f"{journal_lock.NAME} is damaged or missing, so more rows may be lost at the end"
        return f"{told or f'{n_rows} rows can be read'}. {unknown}"


def state_fields(key: ChainKey, name: str, draw: int) -> dict[str, Any]:
    """Fields of the row of an array that is part of the state of a chain since `draw`."""
    return {"key": [key.worker, list(key.shards), key.chain], "name": name, "draw": draw}


def _owner(fields: dict[str, Any]) -> Place:
    try:
        (worker, shards, chain), name = fields["key"], str(fields["name"])
        require_whole_numbers(worker, *shards, chain)
        return ChainKey(worker, tuple(shards), chain), name
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRowError("it is not written as a state is") from error
