"""The text of labels of groups: of single values, and of groups within groups.

Nothing else writes labels as text. A value has the same text whatever the type of its column: 2 and
2.0 are `2`, and a day is `2024-01-02` in each of the many types of dates.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BETWEEN, _QUOTE = ":", '"'
_MOST_WHOLE = 2.0**64  # columns of whole numbers hold none beyond


def text_of(value: object) -> str:
    """The text of one label."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float | np.floating):
        number = float(value)
        whole = number.is_integer() and abs(number) < _MOST_WHOLE
        return str(int(number)) if whole else repr(number)
    if isinstance(value, date | np.datetime64):
        return _text_of_moment(value)
    return str(value)


def texts_of(values: Any) -> NDArray[np.str_]:
    """The text of each label."""
    values = np.asarray(values)
    if values.dtype.kind in "Uiub":
        return np.asarray(values.astype(str))
    if values.dtype.kind in "OT":
        return np.array([text_of(value) for value in values.tolist()], dtype=str)
    distinct, place = np.unique(values, return_inverse=True)
    return np.asarray(np.array([text_of(value) for value in distinct], dtype=str)[place])


def _text_of_moment(value: Any) -> str:
    """A date, and the time of day unless it is midnight, in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if hasattr(value, "to_datetime64"):  # of pandas, with nanoseconds
        value = value.to_datetime64()
    moment = np.datetime64(value)
    text = str(moment.astype(np.promote_types(moment.dtype, "M8[s]")))
    day, _, time = text.partition("T")
    time = time.rstrip("0").rstrip(".") if "." in time else time
    return day if time in ("", "00:00:00") else f"{day}T{time}"


def joined(outer: Iterable[str], inner: Iterable[str]) -> NDArray[np.str_]:
    """Texts of groups within groups, such as `WA:King`.

    Different pairs have different texts: an outer label that has a colon itself is quoted, as in
    `"a:b":c`.
    """
    pairs = zip(outer, inner, strict=True)
    return np.array([f"{_quoted(of)}{_BETWEEN}{within}" for of, within in pairs], dtype=str)


def parted(text: str) -> tuple[str, str]:
    """The labels of the outer and the inner group, from the text that `joined` made of them."""
    if not text.startswith(_QUOTE):
        outer, _, inner = text.partition(_BETWEEN)
        return outer, inner
    doubled = _QUOTE + _QUOTE
    end = 1
    while text[end] != _QUOTE or text[end : end + 2] == doubled:
        end += 2 if text[end] == _QUOTE else 1
    return text[1:end].replace(doubled, _QUOTE), text[end + 2 :]


def _quoted(outer: str) -> str:
    if _BETWEEN not in outer and not outer.startswith(_QUOTE):
        return outer
    return f"{_QUOTE}{outer.replace(_QUOTE, _QUOTE + _QUOTE)}{_QUOTE}"
