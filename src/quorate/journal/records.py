"""Records of a journal, and the rows they become: a JSON header, a CRC-32 and raw arrays.

The checksum covers the place of the row, its header and its arrays, so it shows any bit that was
changed and any row that was moved. Reading a row executes nothing.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.errors import BadInputError
from quorate.journal.events import Event, event_fields, event_of
from quorate.protocol.messages import Block, Task

AnyArray = NDArray[Any]
_NUMBERS = "biufc"  # kinds of dtype that are nothing but their bytes
_LOG = "log"  # the table of records
_MAX_BYTES = 900_000_000  # SQLite takes rows of up to 10⁹ bytes


class ChainKey(NamedTuple):
    """A chain of draws. They arrive in order and without gaps, from draw 0."""

    worker: int
    shards: tuple[int, ...]
    chain: int


class BlockRecord(NamedTuple):
    """An accepted block.

    `payload[i]` belongs to draw `first_draw + i`; `extras` are further arrays that came with it.
    `state` is written, but not read back with the block: the arrays of the chain's state after the
    block that have changed since its last block in the journal, or all of them for a new chain.
    """

    time: float  # seconds since the run was started
    worker: int
    attempt: int
    shards: tuple[int, ...]
    chain: int
    first_draw: int
    payload: AnyArray
    extras: Mapping[str, AnyArray] = {}
    state: Mapping[str, AnyArray] = {}

    @property
    def key(self) -> ChainKey:
        """The chain it belongs to."""
        return ChainKey(self.worker, self.shards, self.chain)

    @property
    def next_draw(self) -> int:
        """The draw that the next block of the chain begins with."""
        return self.first_draw + len(self.payload)

    def block(self) -> Block:
        """The block that was recorded, as a task of its own."""
        n_draws = len(self.payload)
        task = Task(self.worker, self.shards, self.chain, self.first_draw, n_draws)
        return Block(task, self.first_draw, self.payload, self.extras)


class PassRecord(NamedTuple):
    """The answer to a question that all shards were asked, or what was found of one shard.

    The questions of a lane are answered in order, from 0.
    """

    time: float
    lane: int  # -1 for what was found of a shard
    number: int  # of the question, or the shard
    arrays: Mapping[str, AnyArray]


Record = BlockRecord | PassRecord | Event


# ---------------------------------------------------------------- rows


class Row(NamedTuple):
    """One row of any table: fields in the order of the columns."""

    id: int
    header: bytes
    crc: int
    body: bytes


class DamagedRowError(ValueError):
    """A row that is not as it was written."""


def write_row(
    table: str, number: int, fields: Mapping[str, Any], arrays: Iterable[AnyArray] = ()
) -> Row:
    """The row `number` of `table`."""
    specs, chunks = [], []
    for array in arrays:
        dtype = array.dtype
        if dtype.kind not in _NUMBERS:
            raise BadInputError(f"A journal holds arrays of numbers, not of {dtype}.")
        specs.append((dtype.str, array.shape))
        chunks.append(array.tobytes())
    header = _encode([fields, specs]).encode()
    body = b"".join(chunks)
    if len(header) + len(body) >= _MAX_BYTES:
        raise BadInputError(
            f"A row of {len(body):,} bytes does not fit: a row of the journal holds less than "
            f"{_MAX_BYTES:,} bytes. Make blocks smaller."
        )
    return Row(number, header, _checksum(table, number, header, body), body)


def read_row(table: str, row: Row) -> tuple[dict[str, Any], list[AnyArray]]:
    """Fields and arrays of a row, or `DamagedRowError`. The arrays are read-only."""
    if not _has_types(row):
        raise DamagedRowError("it has fields of a wrong type")
    number, header, crc, body = row
    if crc != _checksum(table, number, header, body):
        raise DamagedRowError("its checksum does not match")
    try:
        fields, specs = json.loads(header.decode())
        return dict(fields), _arrays(specs, body)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DamagedRowError("it is not written as a row of a journal is") from error


def is_as_written(table: str, row: Row) -> bool:
    """Whether the checksum of a row of `table` is right."""
    number, header, crc, body = row
    return _has_types(row) and crc == _checksum(table, number, header, body)


def _has_types(row: Row) -> bool:
    number, header, _, body = row
    return isinstance(header, bytes) and isinstance(body, bytes) and isinstance(number, int)


def record_row(number: int, record: Record, state: Mapping[str, int]) -> Row:
    """The row of a record; `state` says of each array of the chain's state when it changed."""
    fields: dict[str, Any]
    if isinstance(record, BlockRecord):
        time, worker, attempt, shards, chain, first_draw, payload, extras, _ = record
        fields = {
            "kind": "block",
            "time": time,
            "worker": worker,
            "attempt": attempt,
            "shards": shards,
            "chain": chain,
            "first_draw": first_draw,
            "names": list(extras),
            "state": state,
        }
        return write_row(_LOG, number, fields, [payload, *extras.values()])
    if isinstance(record, PassRecord):
        time, lane, asked, arrays = record
        fields = {
            "kind": "pass",
            "time": time,
            "lane": lane,
            "number": asked,
            "names": list(arrays),
        }
        return write_row(_LOG, number, fields, arrays.values())
    return write_row(_LOG, number, event_fields(record))


def dropped_row(number: int, why: str) -> Row:
    """What stands in for a row that was damaged, once that is known and made good."""
    return write_row(_LOG, number, {"kind": "dropped", "why": why})


def read_record(row: Row) -> tuple[Record | None, dict[str, int]]:
    """The record and when arrays of the state changed; no record if it was dropped."""
    fields, arrays = read_row(_LOG, row)
    try:
        kind, names = fields.pop("kind"), fields.pop("names", [])
        if kind == "block":
            fields["shards"], state = tuple(fields["shards"]), fields.pop("state")
            extras = dict(zip(names, arrays[1:], strict=True))
            record = BlockRecord(**fields, payload=arrays[0], extras=extras)
            require_whole_numbers(*record.shards, *record[1:3], record.chain, record.next_draw)
            return record, dict(state)
        if kind == "pass":
            require_whole_numbers(fields["lane"], fields["number"])
            return PassRecord(**fields, arrays=dict(zip(names, arrays, strict=True))), {}
        return (None if kind == "dropped" else event_of(kind, fields)), {}
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise DamagedRowError("it is not written as a record is") from error


def require_whole_numbers(*values: object) -> None:
    """Refuse what a stranger may have put in the place of an index."""
    if not all(isinstance(value, int) for value in values):
        raise DamagedRowError("it has an index that is not a whole number")


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be written as JSON")


_encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


def _checksum(table: str, number: int, header: bytes, body: bytes) -> int:
    place = f"{table} {number} {len(header)} ".encode()
    return zlib.crc32(body, zlib.crc32(place + header))


def _arrays(specs: Iterable[tuple[str, list[int]]], body: bytes) -> list[AnyArray]:
    arrays, offset = [], 0
    for name, shape in specs:
        dtype = np.dtype(name)
        if dtype.kind not in _NUMBERS or min(shape, default=0) < 0:
            raise ValueError
        array = np.frombuffer(body, dtype, prod(shape), offset).reshape(shape)
        offset += array.nbytes
        arrays.append(array)
    if offset != len(body):
        raise ValueError
    return arrays
