"""A fingerprint of the first rows of a journal: it tells whether a file was made of these rows."""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import starmap

from quorate.journal.records import Row, is_as_written

_CRCS = "SELECT id, crc FROM {} WHERE id <= ? ORDER BY id"
_ROWS = "SELECT id, header, crc, body FROM {} WHERE id <= ? ORDER BY id"


def of_written(connection: sqlite3.Connection, n_rows: int) -> str:
    """Fingerprint of the configuration and the first `n_rows` rows, written by this process."""
    run, log = (connection.execute(_CRCS.format(table), (n,)) for table, n in _tables(n_rows))
    return _digest(run, log)


def of_read(connection: sqlite3.Connection, n_rows: int) -> str | None:
    """Fingerprint of rows read from disk; None if one of them is missing or damaged."""
    try:
        run, log = (
            list(_checked(table, connection.execute(_ROWS.format(table), (n,)), n))
            for table, n in _tables(n_rows)
        )
    except ValueError:
        return None
    return _digest(run, log)


def _tables(n_rows: int) -> list[tuple[str, int]]:
    """Tables, and how many of their rows count."""
    return [("run", 1), ("log", n_rows)]


def _checked(
    table: str, rows: Iterable[tuple[int, bytes, int, bytes]], n_rows: int
) -> Iterator[tuple[int, int]]:
    """Number and checksum of rows; ValueError if they are not the first `n_rows` as written."""
    n_read = 0
    for n_read, row in enumerate(starmap(Row, rows), 1):
        if row.id != n_read or not is_as_written(table, row):
            raise ValueError
        yield row.id, row.crc
    if n_read != n_rows:
        raise ValueError


def _digest(*tables: Iterable[tuple[int, int]]) -> str:
    found = hashlib.sha256()
    for rows in tables:
        for number, crc in rows:
            found.update(b"%d %d," % (number, crc))
        found.update(b";")
    return found.hexdigest()
