import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quorate.engines.frames import Frame, read_frame, write_frame

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
        again = read_frame(pipe)
        assert (again.kind, again.fields) == (frame.kind, frame.fields)
        assert list(again.arrays) == list(frame.arrays)
        for name, array in frame.arrays.items():
            assert again.arrays[name].dtype == array.dtype
            assert again.arrays[name].shape == array.shape
            np.testing.assert_array_equal(again.arrays[name], array)
    assert read_frame(pipe) is None


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
