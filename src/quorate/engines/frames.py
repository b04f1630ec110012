"""Frames: a JSON header and raw arrays. Reading one executes nothing."""

import io
import json
import struct
from collections.abc import Iterator
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


def write_frame(file: BinaryIO, frame: Frame) -> None:
    """Write a frame, whole, and flush."""
    arrays = {name: np.asarray(array, order="C") for name, array in frame.arrays.items()}
    shapes = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    header = json.dumps([frame.kind, frame.fields, shapes]).encode()
    file.write(_LENGTH.pack(len(header)) + header)
    for array in arrays.values():
        file.write(array.reshape(-1).data.cast("B") if array.size else b"")
    file.flush()


def read_frame(file: BinaryIO) -> Frame | None:
    """The next frame; None where the pipe has ended, in the middle of a frame or between two.

    What is no frame is a `ValueError`.
    """
    try:
        (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size))
        if length > _LONGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        kind, fields, shapes = json.loads(bytes(_exactly(file, length)))
        arrays = {name: _array(file, dtype, shape) for name, dtype, shape in shapes}
    except EOFError:
        return None
    except (TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"no frame: {error}") from error
    return Frame(kind, fields, arrays)


def packed_frame(frame: Frame) -> bytes:
    """A frame, as it would be written."""
    file = io.BytesIO()
    write_frame(file, frame)
    return file.getvalue()


def frames_in(data: bytes) -> Iterator[Frame]:
    """The frames that were packed, one after the other."""
    file = io.BytesIO(data)
    while (frame := read_frame(file)) is not None:
        yield frame


def _array(file: BinaryIO, dtype: str, shape: list[int]) -> NDArray[Any]:
    array = np.empty(shape, dtype=np.dtype(dtype))
    if array.size:
        _fill(file, array.reshape(-1).data.cast("B"))
    return array


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
