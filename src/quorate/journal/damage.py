"""How much can still be read of a journal that is refused, told with the refusal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate.errors import JournalError
from quorate.journal import file as journal_file
from quorate.journal import lock as journal_lock
from quorate.journal.carving import carved, trusted


@contextmanager
def told_with_count(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the operating system as `JournalError`.

    If the file is damaged, the error says how many rows can still be read.
    """
    try:
        with journal_file.told_clearly(path):
            yield
    except JournalError as error:
        if error.what.endswith(_END) or error.way_out not in _OF_DAMAGE or not path.is_file():
            raise
        raise _counted(path, error) from error


def refusal(path: Path) -> JournalError:
    """The error of a journal that is damaged, with the number of rows that can be read."""
    return _counted(path, JournalError(str(path), *journal_file.DAMAGED))


_END = "can be read"
_OF_DAMAGE = {
    journal_file.SALVAGE,
    journal_file.LOST,
    journal_file.NAME_A_RUN,
    *journal_file.ANOTHER_VERSION,
}


def _counted(path: Path, error: JournalError) -> JournalError:
    found = carved(path.parent)
    what, way_out = error.what, error.way_out
    if not found.rows["run"]:
        if way_out in (journal_file.NAME_A_RUN, *journal_file.ANOTHER_VERSION):
            return error  # perhaps it never was a journal of ours
        way_out = journal_file.LOST
    elif way_out == journal_file.NAME_A_RUN:
        what, way_out = "does not begin as a journal does", journal_file.SALVAGE
    elif way_out in journal_file.ANOTHER_VERSION:
        way_out = f"{way_out}. If it is damaged, {journal_file.SALVAGE}"
    rows = trusted(found.rows["log"])
    n_rows = max(journal_lock.known_count(path.parent), found.n_written, *rows, 0)
    return JournalError(str(path), f"{what}; {len(rows):,} of its {n_rows:,} rows {_END}", way_out)
