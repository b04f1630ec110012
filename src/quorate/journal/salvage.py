"""A new journal of what can be read of a damaged one."""

import sqlite3
import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import copyfile, rmtree

from quorate._files import sync
from quorate.errors import JournalError, JournalWarning
from quorate.journal import file as journal_file
from quorate.journal import lock as journal_lock
from quorate.journal.carving import Carved, carved, trusted
from quorate.journal.reader import JournalReader
from quorate.journal.records import BlockRecord, PassRecord, read_row
from quorate.journal.writer import Journal

_ASIDE = "journal.damaged"
_NEW = ".journal.salvaged"


@dataclass(frozen=True)
class Salvaged:
    """What was saved of a journal.

    Parameters
    ----------
    n_rows, n_lost
        Rows that the journal had, as far as that is known, and those that are lost.
    n_blocks, n_draws
        Blocks that were saved, and the draws in them, all shards counted.
    n_answers, n_events
        Answers to questions of an exact run, and events.
    n_chains, n_stateless
        Chains, and those whose state is lost.
    kept
        Folder in which the damaged journal is kept.
    """

    n_rows: int
    n_lost: int
    n_blocks: int
    n_draws: int
    n_answers: int
    n_events: int
    n_chains: int
    n_stateless: int
    kept: Path

    def __str__(self) -> str:
        saved = (
            f"Salvaged {self.n_rows - self.n_lost:,} of {self.n_rows:,} rows: {self.n_blocks:,} "
            f"blocks with {self.n_draws:,} draws of shards, {self.n_answers:,} answers of exact "
            f"passes and {self.n_events:,} events. {self.n_lost:,} rows are lost; a resumed run "
            "draws again what they held."
        )
        if self.n_stateless:
            saved += f" {self.n_stateless} of {self.n_chains} chains warm up again."
        return f"{saved} The damaged journal is kept in {self.kept}."


def salvage(folder: Path) -> Salvaged | None:
    """Replace a damaged journal by a new one with what can be read; None if it is whole.

    The damaged one is kept in a folder beside it.
    """
    path = folder / journal_file.NAME
    if not path.is_file():
        raise JournalError(str(path), "does not exist", journal_file.NAME_A_RUN)
    with journal_file.told_clearly(path):
        lock, saved = journal_lock.Lock(folder), None
        try:
            saved = None if _is_whole(folder) else _replaced(folder)
        finally:
            lock.close(remove=saved is not None)
    return saved


def _is_whole(folder: Path) -> bool:
    """Whether nothing is wrong with a journal; changes nothing."""
    try:
        with warnings.catch_warnings(), JournalReader(folder) as reader:
            warnings.simplefilter("error", JournalWarning)
            reader.check_structure()
            reader.configuration()
            for _ in reader.records():
                pass
            return all(state is not None for _, state in reader.states())
    except (JournalError, JournalWarning):
        return False


def _replaced(folder: Path) -> Salvaged:
    found, n_rows = carved(folder), journal_lock.known_count(folder)
    new = folder / _NEW
    rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        n_rows = max(n_rows, _write(new, found, folder / journal_file.NAME))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JournalWarning)
            Journal.open(new).close()
        kept = _put_aside(folder)
        told = _counted(new, n_rows, kept)
        (new / journal_file.NAME).replace(folder / journal_file.NAME)
    finally:
        rmtree(new, ignore_errors=True)
    sync([folder])
    return told


def _write(new: Path, found: Carved, damaged: Path) -> int:
    """Write the rows that were found, as they are; returns how many there have been."""
    run = found.rows["run"].get(1)
    configuration = read_row("run", run)[0].get("configuration") if run else None
    if not isinstance(configuration, dict):
        what = "has lost the configuration of its run, without which the rest is of no use"
        raise JournalError(str(damaged), what, journal_file.LOST)
    journal_file.make(new, configuration)
    log = trusted(found.rows["log"])
    n_rows = max(found.n_written, *log, 0)
    connection = sqlite3.connect(new / journal_file.NAME, isolation_level=None)
    try:
        with journal_file.transaction(connection):
            connection.executemany(journal_file.PUT.format("log"), log.values())
            connection.executemany(journal_file.PUT.format("states"), found.rows["states"].values())
    finally:
        connection.close()
    return n_rows


def _put_aside(folder: Path) -> Path:
    """Keep the damaged journal in a folder of its own. The file itself stays too, for a moment."""
    names = (folder / (_ASIDE if i == 1 else f"{_ASIDE}-{i}") for i in count(1))
    kept = next(path for path in names if not path.exists())
    kept.mkdir()
    (kept / journal_file.NAME).hardlink_to(folder / journal_file.NAME)
    copyfile(folder / journal_lock.NAME, kept / journal_lock.NAME)
    if (folder / f"{journal_file.NAME}-wal").exists():
        (folder / f"{journal_file.NAME}-wal").replace(kept / f"{journal_file.NAME}-wal")
    (folder / f"{journal_file.NAME}-shm").unlink(missing_ok=True)
    return kept


def _counted(new: Path, n_rows: int, kept: Path) -> Salvaged:
    kinds: Counter[str] = Counter()
    with JournalReader(new) as reader:
        for record in reader.records():
            if isinstance(record, BlockRecord):
                kinds["block"] += 1
                kinds["draw"] += len(record.payload) * len(record.shards)
            else:
                kinds["answer" if isinstance(record, PassRecord) else "event"] += 1
        states = [state is None for _, state in reader.states()]
    n_good = kinds["block"] + kinds["answer"] + kinds["event"]
    return Salvaged(
        n_rows,
        n_rows - n_good,
        kinds["block"],
        kinds["draw"],
        kinds["answer"],
        kinds["event"],
        len(states),
        sum(states),
        kept,
    )
