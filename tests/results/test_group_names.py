"""Labels of groups as text, whatever the type of a column."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

from quorate.data.label_text import joined, parted, texts_of
from quorate.errors import BadInputError
from quorate.results.group_names import as_labels, of_rows

NAMES = np.array(["001", "002"])
DAYS = np.array(["2024-01-02", "2024-03-04"], dtype="datetime64[us]")
CET = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([2.0, 1.5, -0.0, 1e300]), ["2", "1.5", "0", "1e+300"]),
        (np.array([2, -1]), ["2", "-1"]),
        (np.array([2**63 + 1], dtype=np.uint64), ["9223372036854775809"]),
        (np.array([0.1], dtype=np.float32), ["0.10000000149011612"]),  # as stored labels have it
        (np.array([True, False]), ["True", "False"]),
        (np.array([b"a", "é".encode()]), ["a", "é"]),
        (np.array([2, 2.0, "2", True], dtype=object), ["2", "2", "2", "True"]),
        (DAYS, ["2024-01-02", "2024-03-04"]),
        (DAYS.astype("M8[ns]"), ["2024-01-02", "2024-03-04"]),
        (DAYS.astype("M8[D]"), ["2024-01-02", "2024-03-04"]),
        (DAYS.astype("M8[M]"), ["2024-01-01", "2024-03-01"]),
        (np.array(["2024-01-02T05"], dtype="M8[h]"), ["2024-01-02T05:00:00"]),
        (
            np.array([date(2024, 1, 2), datetime(2024, 1, 2, 5)]),
            ["2024-01-02", "2024-01-02T05:00:00"],
        ),
        (
            np.array([pd.Timestamp("2024-01-02 00:00:00.000000120")]),
            ["2024-01-02T00:00:00.00000012"],
        ),
        (np.array([pd.Timestamp("2024-01-02", tz=CET)]), ["2024-01-01T23:00:00"]),
        (np.array([datetime(2024, 1, 2, tzinfo=UTC)]), ["2024-01-02"]),
        (np.array([], dtype=float), []),
        (np.array([], dtype=object), []),
    ],
)
def test_a_value_has_one_text_in_all_types(values, expected):
    assert texts_of(values).tolist() == expected


@pytest.mark.parametrize(
    ("values", "labels", "expected"),
    [
        (["2", "2.0", "007", "b"], np.arange(3), ["2", "2", "007", "b"]),
        (["2.0", "1.5"], np.array([2.0, 1.5]), ["2", "1.5"]),
        (["2.0"], NAMES, ["2.0"]),
        (["2024-01-02", "2024-03-04 00:00:00"], DAYS, ["2024-01-02", "2024-03-04"]),
        (["2024", "a new one", "2024-13-01"], DAYS, ["2024", "a new one", "2024-13-01"]),
    ],
)
def test_text_is_read_as_labels_are(values, labels, expected):
    assert as_labels(np.array(values), labels).tolist() == expected
    assert as_labels(np.array(values, dtype=object), labels).tolist() == expected


def test_inner_groups_are_named_after_their_outer_one():
    texts = of_rows([np.array([1.0, 2.0]), ["x", "y"]], [np.arange(3), np.array(["x"])])
    assert [text.tolist() for text in texts] == [["1", "2"], ["1:x", "2:y"]]
    texts = of_rows([["a"], ["2024-01-02"]], [np.array(["a"]), DAYS])
    assert texts[1].tolist() == ["a:2024-01-02"]


def test_different_pairs_have_different_texts():
    parts = ["", "a", ":", "a:", ":a", '"', '"a', 'a"', '":', '":"', '""', 'a":b', "a:b"]
    pairs = [(outer, inner) for outer in parts for inner in parts]
    texts = joined(*zip(*pairs, strict=True)).tolist()
    assert len(set(texts)) == len(pairs)
    assert [parted(text) for text in texts] == pairs
    assert joined(["WA", "a:b"], ["King", "c"]).tolist() == ["WA:King", '"a:b":c']


@pytest.mark.parametrize(
    "column",
    [
        np.array([1.0, np.nan]),
        np.array(["a", None], dtype=object),
        np.array([DAYS[0], "NaT"], DAYS.dtype),
    ],
)
def test_a_missing_group_is_refused(column):
    with pytest.raises(BadInputError, match=r"missing in 1 of 2 rows \(row \d\)\. "):
        of_rows([column], [np.arange(3)])


@pytest.mark.parametrize(
    ("column", "labels", "said"),
    [
        (
            np.array([1, 2]),
            NAMES,
            "are text, such as '001'; those of the rows are numbers, such as 1",
        ),
        (np.array([1.0], dtype=object), NAMES, "numbers, such as 1.0"),
        (DAYS, NAMES, "of the rows are dates"),
        (NAMES, np.arange(3), "are numbers, such as 0; those of the rows are text, such as '001'"),
        (np.array([5, 6]), np.array([True]), "are true and false"),
    ],
)
def test_groups_of_another_kind_are_refused_if_all_are_unknown(column, labels, said):
    with pytest.raises(BadInputError, match=f"None of the rows.*{said}"):
        of_rows([column], [labels])


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (np.array(["new", "newer"]), np.arange(3)),
        (np.array([1, 2]), np.array(["1"])),
        (np.array([7.0]), np.arange(3)),
        (np.array([], dtype=float), NAMES),
        (np.array([7]), NAMES[:0]),
        (np.array([7, "a"], dtype=object), NAMES),
    ],
)
def test_unknown_groups_may_be_new(column, labels):
    assert len(of_rows([column], [labels])[0]) == len(column)
