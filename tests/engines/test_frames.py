import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quorate.engines.frames import Arriving, Frame, packed_frame, read_frame, write_frame

arrays = st.dictionaries(
    st.text(max_size=5),
    hnp.arrays(
        st.sampled_from([np.float64, np.complex128, np.uint8, np.int64]),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    max_size=3,
)
fields = st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.integers()))


@given(st.lists(st.builds(Frame, st.text(), fields, arrays), max_size=3))
def test_frames_come_back_as_they_were(frames):
    pipe = io.BytesIO()
    for frame in frames:
        write_frame(pipe, frame)
    pipe.seek(0)
    for frame in frames:
        assert_same(read_frame(pipe), frame)
    assert read_frame(pipe) is None


def assert_same(again, frame):
    assert (again.kind, again.fields) == (frame.kind, frame.fields)
    assert list(again.arrays) == list(frame.arrays)
    for name, array in frame.arrays.items():
        assert again.arrays[name].dtype == array.dtype
        assert again.arrays[name].shape == array.shape
        np.testing.assert_array_equal(again.arrays[name], array)


@given(st.lists(st.builds(Frame, st.text(), fields, arrays), max_size=3), st.data())
def test_frames_that_arrive_in_pieces_are_whole(frames, data):
    """However their bytes are cut; a frame is there as soon as its last byte is."""
    sent = [packed_frame(frame) for frame in frames]
    joined = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(joined)), max_size=6)))
    arriving, found = Arriving(), []
    for start, end in zip([0, *cuts], [*cuts, len(joined)], strict=True):
        found += arriving.whole(joined[start:end])
        ends = np.cumsum([len(each) for each in sent])
        assert len(found) == np.sum(ends <= end)
    for again, frame in zip(found, frames, strict=True):
        assert_same(again, frame)


@pytest.mark.parametrize("n_bytes", [0, 3, 8, 20, 60])
def test_a_pipe_that_breaks_off_is_at_its_end(n_bytes):
    pipe = io.BytesIO()
    write_frame(pipe, Frame("block", {"first_draw": 3}, {"payload": np.ones((4, 5))}))
    assert n_bytes < len(pipe.getvalue())
    assert read_frame(io.BytesIO(pipe.getvalue()[:n_bytes])) is None


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff" * 100,
        b"\0" * 7 + b"\x05hello",
        b"\0" * 7 + b"\x02{}",
        b"\0" * 7 + b'\x16["block",{},[["x",1]]]',
        b"\0" * 7 + b'\x20["block",{},[["x","|O",[1000000]]]]' + b"\0" * 99,
    ],
)
def test_what_is_no_frame_is_an_error_and_nothing_else(nonsense):
    with pytest.raises(ValueError, match=r"."):
        read_frame(io.BytesIO(nonsense))
    with pytest.raises(ValueError, match=r"."):
        list(Arriving().whole(nonsense))
