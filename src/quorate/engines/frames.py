"""Frames: a JSON header and raw arrays. Reading one executes nothing."""

import io
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_LENGTH = struct.Struct(">Q")
_LONGEST_HEADER = 1 << 26


@dataclass(frozen=True)
class Frame:
    """One message: what it is, its fields, and its arrays by name."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def pieces_of(frame: Frame) -> list[bytes | memoryview]:
    """The bytes of a frame, in order; those of its arrays are not copied."""
    arrays = {name: np.asarray(array, order="C") for name, array in frame.arrays.items()}
    shapes = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    header = json.dumps([frame.kind, frame.fields, shapes]).encode()
    return [_LENGTH.pack(len(header)) + header, *_bytes_of(arrays.values())]


def write_frame(file: BinaryIO, frame: Frame) -> None:
    """Write a frame, whole, and flush."""
    for piece in pieces_of(frame):
        file.write(piece)
    file.flush()


def read_frame(file: BinaryIO) -> Frame | None:
    """The next frame; None where the pipe has ended, in the middle of a frame or between two.

    What is no frame is a `ValueError`.
    """
    try:
        frame = _empty_frame(_exactly(file, _length(_exactly(file, _LENGTH.size))))
        for view in _bytes_of(frame.arrays.values()):
            _fill(file, view)
    except EOFError:
        return None
    return frame


class Arriving:
    """Frames that arrive in pieces, from a pipe that nobody waits at."""

    def __init__(self) -> None:
        self._data = bytearray()  # of frames that are not whole yet
        self._frame: Frame | None = None  # the first of them, if its header is there
        self._end = _LENGTH.size  # of what is needed to go on

    def whole(self, piece: bytes) -> Iterator[Frame]:
        """The frames that are whole with one more piece. What is no frame is a `ValueError`."""
        self._data += piece
        while len(self._data) >= self._end:
            if self._frame is not None:
                yield self._filled(self._frame)
            elif self._end == _LENGTH.size:
                self._end += _length(self._data[: self._end])
            else:
                self._frame = _empty_frame(self._data[_LENGTH.size : self._end])
                del self._data[: self._end]
                self._end = sum(array.nbytes for array in self._frame.arrays.values())

    def _filled(self, frame: Frame) -> Frame:
        start = 0
        for view in _bytes_of(frame.arrays.values()):
            view[:] = self._data[start : start + len(view)]
            start += len(view)
        del self._data[:start]
        self._frame, self._end = None, _LENGTH.size
        return frame


def packed_frame(frame: Frame) -> bytes:
    """A frame, as it would be written."""
    return b"".join(pieces_of(frame))


def frames_in(data: bytes) -> Iterator[Frame]:
    """The frames that were packed, one after the other."""
    file = io.BytesIO(data)
    while (frame := read_frame(file)) is not None:
        yield frame


def _length(found: bytearray) -> int:
    """Bytes of the header that comes next."""
    (length,) = _LENGTH.unpack(found)
    if length > _LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    return int(length)


def _empty_frame(header: bytearray) -> Frame:
    """The frame with this header, whose arrays have yet to be filled."""
    try:
        kind, fields, shapes = json.loads(header.decode())
        arrays = {name: np.empty(shape, dtype=np.dtype(dtype)) for name, dtype, shape in shapes}
        if any(array.dtype.hasobject for array in arrays.values()):
            raise ValueError("arrays of objects")
    except (TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"no frame: {error}") from error
    return Frame(kind, fields, arrays)


def _bytes_of(arrays: Iterable[NDArray[Any]]) -> list[memoryview]:
    """The bytes of arrays, to be read or filled."""
    return [array.reshape(-1).data.cast("B") for array in arrays if array.size]


def _exactly(file: BinaryIO, n: int) -> bytearray:
    buffer = bytearray(n)
    _fill(file, memoryview(buffer))
    return buffer


def _fill(file: BinaryIO, view: memoryview) -> None:
    while view:
        n = file.readinto(view)  # type: ignore[attr-defined]
        if not n:
            raise EOFError
        view = view[n:]
