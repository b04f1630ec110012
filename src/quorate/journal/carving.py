"""Rows of a damaged journal, read from its pages without the help of SQLite.

A row's checksum covers its table, number and content, so a row is known to be good wherever it
lies. All leaf pages of tables are searched, in the file and in the write-ahead log, however damaged
the pages are that should lead there. The format is that of https://sqlite.org/fileformat2.html.
"""

import mmap
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from quorate.journal.file import NAME, PAGE_BYTES, TABLES
from quorate.journal.records import DamagedRowError, Row, read_row

_LEAF = 0x0D
_LEAF_HEADER, _LOG_HEADER, _FRAME_HEADER = 8, 32, 24
_FRAME_BYTES = _FRAME_HEADER + PAGE_BYTES
_MOST_LOCAL = PAGE_BYTES - 35  # bytes of a cell that has no overflow pages
_LEAST_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes, by type
_CONSTANTS = {8: 0, 9: 1}
MOST_MISSING = 100_000  # rows in a row; beyond that their numbers are not to be trusted
_MOST_SHARED = 8  # times that a page is read on average: in a forged file, all rows may lead to it
Value = int | bytes | None


@dataclass
class Carved:
    """Rows of each table by number, and how many the log had by SQLite's own count."""

    rows: dict[str, dict[int, Row]] = field(
        default_factory=lambda: {table: dict[int, Row]() for table in TABLES}
    )
    n_written: int = 0


class _Cell(NamedTuple):
    """One row in a page: its number, the length of all of it, and what the page has of it."""

    number: int
    length: int
    local: bytes
    overflow: int  # page that continues it, or 0


def carved(folder: Path) -> Carved:
    """Everything that can be read of the journal in `folder`.

    The file is read first as it is and then with the pages of the log in it, because a page of
    either may be damaged. Of a state, the later one counts.
    """
    found = Carved()
    with _content(folder / NAME) as content:
        _carve(_Pages(content, {}), found)
        if log := _log_pages(folder / f"{NAME}-wal"):
            _carve(_Pages(content, log), found)
    return found


def trusted(rows: dict[int, Row]) -> dict[int, Row]:
    """Rows in order, up to a gap so wide that their numbers are not to be trusted."""
    kept: dict[int, Row] = {}
    last = 0
    for number in sorted(rows):
        if not 0 < number - last <= MOST_MISSING:
            break
        kept[number], last = rows[number], number
    return kept


@contextmanager
def _content(path: Path) -> Iterator[bytes | mmap.mmap]:
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


class _Pages:
    """Pages by number, counted from 1: those of the log before those of the file."""

    def __init__(self, content: bytes | mmap.mmap, log: dict[int, bytes]) -> None:
        self._content, self._log = content, log
        self.n_bytes = len(content) + PAGE_BYTES * len(log)
        self.left = _MOST_SHARED * self.n_bytes  # bytes of rows that are yet to be read

    def __iter__(self) -> Iterator[int]:
        n_pages = -(-len(self._content) // PAGE_BYTES)
        yield from range(1, n_pages + 1)
        yield from (number for number in self._log if number > n_pages)

    def __getitem__(self, number: int) -> bytes:
        """The page; empty or cut short beyond the end of the file."""
        start = (number - 1) * PAGE_BYTES
        return self._log.get(number) or self._content[start : start + PAGE_BYTES]


def _log_pages(path: Path) -> dict[int, bytes]:
    """The latest version of each page in the log, whether or not earlier frames are damaged."""
    log = path.read_bytes() if path.is_file() else b""
    starts = range(_LOG_HEADER, len(log) - _FRAME_BYTES + 1, _FRAME_BYTES)
    generations = Counter(log[start + 8 : start + 16] for start in starts)
    pages: dict[int, bytes] = {}
    for start in starts:
        if log[start + 8 : start + 16] == generations.most_common(1)[0][0]:
            (number,) = struct.unpack_from(">I", log, start)
            pages[number] = log[start + _FRAME_HEADER : start + _FRAME_BYTES]
    return pages


def _carve(pages: _Pages, found: Carved) -> None:
    for number in pages:
        for cell in _cells(pages[number]):
            values = _values(_payload(pages, cell))
            if len(values) == 2 and values[0] == b"log" and isinstance(values[1], int):
                found.n_written = max(found.n_written, values[1])
            elif len(values) == 4:
                _take(cell.number, values, found)


def _take(number: int, values: list[Value], found: Carved) -> None:
    _, header, crc, body = values
    if not (isinstance(header, bytes) and isinstance(crc, int) and isinstance(body, bytes)):
        return
    row = Row(number, header, crc, body)
    for table, rows in found.rows.items():
        try:
            fields, _ = read_row(table, row)
        except DamagedRowError:
            continue
        before = rows.get(number)
        if before is None or _draw(fields) >= _draw(read_row(table, before)[0]):
            rows[number] = row
        return


def _draw(fields: dict[str, Any]) -> int:
    """The draw at which a state was left; 0 for other rows."""
    draw = fields.get("draw", 0)
    return draw if isinstance(draw, int) else 0


def _cells(page: bytes) -> Iterator[_Cell]:
    if len(page) < _LEAF_HEADER or page[0] != _LEAF:
        return
    (n_cells,) = struct.unpack_from(">H", page, 3)
    ends = min(_LEAF_HEADER + 2 * n_cells, len(page) - 1)
    for place in range(_LEAF_HEADER, ends, 2):
        (start,) = struct.unpack_from(">H", page, place)
        length, start = _varint(page, start)
        number, start = _varint(page, start)
        n_local = _n_local(length)
        local = page[start : start + n_local]
        link = page[start + n_local : start + n_local + 4] if n_local < length else bytes(4)
        if len(local) == n_local and len(link) == 4:
            yield _Cell(number, length, local, int.from_bytes(link, "big"))


def _n_local(length: int) -> int:
    """How many bytes of a cell lie in its own page."""
    if length <= _MOST_LOCAL:
        return length
    n_local = _LEAST_LOCAL + (length - _LEAST_LOCAL) % (PAGE_BYTES - 4)
    return n_local if n_local <= _MOST_LOCAL else _LEAST_LOCAL


def _payload(pages: _Pages, cell: _Cell) -> bytes:
    """The bytes of a row, from all of its pages; of a row longer than the file, only the first."""
    parts, lacking, link = [cell.local], cell.length - len(cell.local), cell.overflow
    if lacking > min(pages.n_bytes, pages.left):
        return cell.local
    pages.left -= lacking
    while lacking > 0 and link > 0 and (page := pages[link]):
        parts.append(page[4 : 4 + lacking])
        lacking -= PAGE_BYTES - 4
        link = int.from_bytes(page[:4], "big")
    return b"".join(parts)


def _values(payload: bytes) -> list[Value]:
    """The columns of a row; of damaged ones as far as they make sense."""
    end, place = _varint(payload, 0)
    values: list[Value] = []
    at = end
    while place < min(end, len(payload)):
        kind, place = _varint(payload, place)
        n_bytes = _INTEGERS.get(kind, 0) if kind < 12 else (kind - 12) // 2
        content = payload[at : at + n_bytes]
        at += n_bytes
        if kind in _INTEGERS:
            values.append(int.from_bytes(content, "big", signed=True))
        else:
            values.append(content if kind >= 12 else _CONSTANTS.get(kind))
    return values


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends; 0 beyond the end of the data."""
    value = 0
    for i, byte in enumerate(data[place : place + 9], 1):
        if i == 9:
            return value << 8 | byte, place + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + i
    return 0, place + 9
