"""The SQLite file of a journal: how it is created, opened, recognised and closed.

Whatever goes wrong with it is raised as a `JournalError`, never as an error of SQLite.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from quorate._files import sync
from quorate.errors import JournalError
from quorate.journal.records import DamagedRowError, Row, read_row, write_row

NAME = "journal.sqlite"
SCHEMA = 2  # what the tables hold; raised whenever an older quorate could not read them
_WRITTEN_BY = {1: "open it with quorate 0.1"}  # older schemas
_APPLICATION = 0x71757261  # "qura", in the header of the file
TABLES = {
    "run": "CREATE TABLE run (id INTEGER PRIMARY KEY, header TEXT, crc INTEGER, body BLOB)",
    "log": "CREATE TABLE log "
    "(id INTEGER PRIMARY KEY AUTOINCREMENT, header TEXT, crc INTEGER, body BLOB)",
    "states": "CREATE TABLE states (id INTEGER PRIMARY KEY, header TEXT, crc INTEGER, body BLOB)",
}
_SQLITE_TABLES = {"sqlite_sequence": "CREATE TABLE sqlite_sequence(name,seq)"}
PUT = "INSERT OR REPLACE INTO {} VALUES (?, CAST(? AS TEXT), ?, ?)"
PAGE_BYTES = 16384
_CHECKPOINT_BYTES = 32 * 2**20
_WRITER = f"""
    PRAGMA synchronous = NORMAL;
    PRAGMA wal_autocheckpoint = {_CHECKPOINT_BYTES // PAGE_BYTES};
    PRAGMA journal_size_limit = {2 * _CHECKPOINT_BYTES};
"""
_PATIENCE_MS = 5000
_PRIMARY = 0xFF  # of the codes of SQLite: the rest says more
SALVAGE = "`quorate salvage RUN` makes a new journal of what can be read"
LOST = "restore it from a copy, or start a new run in another folder"
NAME_A_RUN = "name the folder of a run"
LATER = "open it with the quorate that wrote it, or a later one"
ANOTHER_VERSION = {LATER, *_WRITTEN_BY.values()}
DAMAGED = ("is damaged", SALVAGE)
_TROUBLES = {
    sqlite3.SQLITE_NOTADB: ("is not a journal", NAME_A_RUN),
    sqlite3.SQLITE_FULL: (
        "cannot grow because the disk is full",
        "what was written before is safe: make room and resume the run",
    ),
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written because the disk reports an error or is full",
        "what was written before is as safe as the disk: repair it and resume the run",
    ),
    sqlite3.SQLITE_BUSY: ("is locked by another process", "end that process"),
    sqlite3.SQLITE_READONLY: ("cannot be written", "check the permissions of file and folder"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check the permissions of file and folder"),
    sqlite3.SQLITE_PERM: ("cannot be opened", "check the permissions of file and folder"),
}


@contextmanager
def told_clearly(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the operating system as `JournalError`."""
    try:
        yield
    except sqlite3.Error as error:
        if not hasattr(error, "sqlite_errorcode"):  # a mistake in our calls, not in the file
            raise
        what, way_out = _TROUBLES.get(error.sqlite_errorcode & _PRIMARY, DAMAGED)
        raise JournalError(str(path), f"{what} ({error})", way_out) from error
    except UnicodeDecodeError as error:  # a message of SQLite that quotes damaged text
        raise JournalError(str(path), *DAMAGED) from error
    except OSError as error:
        what = f"cannot be used ({error.strerror})"
        raise JournalError(str(path), what, "check disk, file and folder") from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write everything inside or nothing; read as of one moment."""
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def require_none(folder: Path) -> None:
    """Refuse a folder that has a journal."""
    path = folder / NAME
    if path.exists():
        way_out = "resume that run, or choose another folder"
        raise JournalError(str(path), "exists already", way_out)


def make(folder: Path, configuration: Mapping[str, Any]) -> None:
    """Create the file atomically: after an interruption it is complete or absent."""
    path = folder / NAME
    require_none(folder)
    partial = folder / f"{NAME}.partial"
    for left_over in (partial, f"{partial}-wal", f"{partial}-shm", f"{path}-wal", f"{path}-shm"):
        Path(left_over).unlink(missing_ok=True)
    connection = sqlite3.connect(partial, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # it is synced in the end, once
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        for table in TABLES.values():
            connection.execute(table)
        row = write_row("run", 1, {"configuration": dict(configuration), "counted": True})
        connection.execute(PUT.format("run"), row)
    finally:
        connection.close()
    sync([partial])
    partial.replace(path)
    sync([folder])


def require_file(path: Path) -> None:
    """Refuse a journal that does not exist or is empty."""
    if not path.is_file():
        raise JournalError(str(path), "does not exist", NAME_A_RUN)
    if not path.stat().st_size:
        raise JournalError(str(path), "is empty", "the run has no draws: start a new one")


def connect(folder: Path, *, writable: bool) -> sqlite3.Connection:
    """A connection to a file that is known to be a journal of this schema.

    In a folder that cannot be written, a run that was closed is read as it lies there.
    """
    path = folder / NAME
    require_file(path)
    size, closed = path.stat().st_size, not has_log(folder)
    as_it_lies = closed and not writable and not os.access(folder, os.W_OK)
    how = "immutable=1" if as_it_lies else f"mode={'rw' if writable else 'ro'}"
    uri = f"{path.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.text_factory = bytes
        _check(connection, path, log_ahead=not as_it_lies)
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        if closed and size % page_bytes:
            raise JournalError(str(path), f"is cut short, at {size:,} bytes", DAMAGED[1])
        if writable:
            connection.executescript(_WRITER)
    except BaseException:
        connection.close()
        raise
    return connection


def checkpoint(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file, and sync it.

    While another process reads, SQLite leaves the log where it is, and rows are as safe there.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")


def close_written(connection: sqlite3.Connection, folder: Path) -> bool:
    """Move the write-ahead log into the file and close it; whether all of it is there."""
    try:
        with suppress(sqlite3.Error):
            checkpoint(connection)
    finally:
        connection.close()
    return not has_log(folder)


def close_read(connection: sqlite3.Connection, folder: Path) -> None:
    """Close it, and remove the empty files that a connection that only reads leaves behind."""
    connection.close()
    path = folder / NAME
    if not path.exists() or not Path(f"{path}-wal").exists() or has_log(folder):
        return
    with suppress(sqlite3.Error):  # the last connection that may write removes them
        last = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
        try:
            last.execute("PRAGMA user_version").fetchone()
        finally:
            last.close()


def has_log(folder: Path) -> bool:
    """Whether there are rows in the write-ahead log."""
    try:
        return (folder / f"{NAME}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _check(connection: sqlite3.Connection, path: Path, *, log_ahead: bool) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise JournalError(str(path), "is an SQLite file of another program", NAME_A_RUN)
    if version in _WRITTEN_BY:
        what = f"has schema {version}, which this quorate does not read"
        raise JournalError(str(path), what, _WRITTEN_BY[version])
    if version > SCHEMA:
        what = f"has schema {version}, and this quorate reads schema {SCHEMA}"
        raise JournalError(str(path), what, LATER)
    tables = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    expected = {name.encode(): sql.encode() for name, sql in (TABLES | _SQLITE_TABLES).items()}
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if version != SCHEMA or tables != expected or (log_ahead and mode != b"wal"):
        raise JournalError(str(path), *DAMAGED)


def check_structure(connection: sqlite3.Connection, path: Path) -> None:
    """Reject a file with inconsistent pages; reads all of it."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != (b"ok",):
        raise JournalError(str(path), *DAMAGED)


def configuration(connection: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """What the run was started with."""
    found = _of_run(connection).get("configuration")
    if not isinstance(found, dict):
        raise JournalError(str(path), "has lost the configuration of its run", LOST)
    return found


def is_counted(connection: sqlite3.Connection) -> bool:
    """Whether acknowledged rows are counted beside it: not in early versions of 0.2."""
    return bool(_of_run(connection).get("counted"))


def _of_run(connection: sqlite3.Connection) -> dict[str, Any]:
    row = connection.execute("SELECT id, header, crc, body FROM run WHERE id = 1").fetchone()
    try:
        return read_row("run", Row(*row))[0] if row else {}
    except DamagedRowError:
        return {}
