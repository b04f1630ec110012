"""Labels of groups as text, whatever the type of a column."""

from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest

from quorate.errors import BadInputError
from quorate.results.group_names import as_labels, of_rows, shown

DAYS = np.array(["2024-01-02", "2024-03-04"], dtype="datetime64[us]")


@pytest.mark.parametrize(
    ("values", "labels", "expected"),
    [
        (np.array([2.0, 1.5, np.nan]), np.arange(3), ["2", "1.5", "nan"]),
        (np.array([2, 1]), np.array([1.0, 2.0]), ["2.0", "1.0"]),
        (np.array(["2", "b"]), np.arange(3), ["2", "b"]),
        (np.array(["a", "b"]), np.array(["a"]), ["a", "b"]),
        (np.array([pd.Timestamp("2024-01-02")]), DAYS, DAYS[:1].astype(str)),
        (np.array([date(2024, 1, 2)]), DAYS, DAYS[:1].astype(str)),
        (np.array([datetime(2024, 1, 2)]), DAYS, DAYS[:1].astype(str)),
        (np.array(["2024-01-02"]), DAYS, DAYS[:1].astype(str)),
        (DAYS.astype("datetime64[ns]"), DAYS, DAYS.astype(str)),
        (np.array(["a new one"]), DAYS, ["a new one"]),
    ],
)
def test_values_are_written_as_labels_are(values, labels, expected):
    assert as_labels(values, labels).tolist() == list(expected)


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (DAYS, ["2024-01-02", "2024-03-04"]),
        (DAYS + np.timedelta64(90, "m"), ["2024-01-02T01:30:00", "2024-03-04T01:30:00"]),
        (DAYS[:1] + np.timedelta64(7, "us"), ["2024-01-02T00:00:00.000007"]),
        (np.array(["2024", "NaT"], dtype="M8[Y]"), ["2024-01-01", "NaT"]),
        (DAYS[:0], []),
        (np.array([1, 20]), ["1", "20"]),
        (np.array(["a", "2024-01-02"]), ["a", "2024-01-02"]),
    ],
)
def test_whole_days_are_shown_as_days(labels, texts):
    assert shown(labels) == texts
    assert all(type(text) is str for text in shown(labels))


def test_inner_groups_are_named_after_their_outer_one():
    texts = of_rows([np.array([1.0, 2.0]), np.array(["x", "y"])], np.arange(3))
    assert [text.tolist() for text in texts] == [["1", "2"], ["1:x", "2:y"]]


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
        of_rows([column], np.arange(3))
