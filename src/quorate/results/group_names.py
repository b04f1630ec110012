"""Labels of groups as text: those of rows, and those that a user asks for."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from difflib import get_close_matches
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._types import BoolArray, IntArray
from quorate._words import counted
from quorate.data.label_text import joined, text_of, texts_of
from quorate.data.numerals import number_in
from quorate.errors import BadInputError, require

_MOST_NAMED = 5
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d(:\d\d){0,2}(\.\d+)?)?")
_TEXT, _NUMBERS, _DATES, _TRUTH = "text", "numbers", "dates", "true and false"
_KINDS = dict.fromkeys("UTS", _TEXT) | dict.fromkeys("iuf", _NUMBERS) | {"M": _DATES, "b": _TRUTH}


def as_labels(values: Any, labels: NDArray[Any]) -> NDArray[np.str_]:
    """Text of `values`, for a comparison with the text of labels.

    Where labels are numbers or dates, so is what a text says: "2.0" is 2.
    """
    values = np.asarray(values)
    texts, read = texts_of(values), _READ.get(_kind_of(labels))
    if read is None or values.dtype.kind not in "OUT":
        return texts
    distinct, place = np.unique(texts, return_inverse=True)
    return np.array([read(text) for text in distinct.tolist()], dtype=str)[place]


def _number_in(text: str) -> str:
    """The text of a number that is written as Python writes it; `007` is none."""
    number = number_in(text)
    return text if number is None or repr(number) != text else text_of(number)


def _date_in(text: str) -> str:
    try:
        return text_of(np.datetime64(text)) if _DATE.fullmatch(text) else text
    except ValueError:
        return text


_READ: dict[str, Callable[[str], str]] = {_NUMBERS: _number_in, _DATES: _date_in}


def of_rows(
    columns: Sequence[NDArray[Any]], labels: Sequence[NDArray[Any]]
) -> list[NDArray[np.str_]]:
    """The label of each row's group, level by level: `WA`, and `WA:King` within it.

    `labels` has those that the run knows, of each column.
    """
    texts = []
    for column, known in zip(map(np.asarray, columns), labels, strict=True):
        _require_no_gaps(column)
        texts.append(as_labels(column, known))
        _require_same_kind(column, texts[-1], known)
    return texts if len(texts) == 1 else [texts[0], joined(*texts)]


def codes_of(labels: NDArray[Any], groups: Iterable[object] | object, level: str) -> IntArray:
    """Codes of the groups with these labels, in rising order. A single label may be given alone."""
    wanted = _listed(groups)
    require(bool(len(wanted)), "Name at least one group.")
    texts = texts_of(labels)
    order = np.argsort(texts)
    asked = as_labels(wanted, labels)
    places = np.minimum(np.searchsorted(texts[order], asked), len(texts) - 1)
    codes = order[places]
    unknown = [group for group, code in zip(asked, codes, strict=True) if texts[code] != group]
    if unknown:
        raise BadInputError(_unknown(unknown, texts, level))
    return np.unique(codes).astype(np.int64)


def _listed(groups: Any) -> NDArray[Any]:
    """Labels of groups as an array; those of an index of groups and parameters are its first."""
    if getattr(groups, "nlevels", 1) > 1:
        groups = groups.get_level_values(0).unique()
    if hasattr(groups, "__array__"):
        groups = np.atleast_1d(np.asarray(groups))
    is_one = isinstance(groups, str | bytes) or not isinstance(groups, Iterable)
    wanted = [] if groups is None else [groups] if is_one else list(groups)
    for group in wanted:
        require(
            np.ndim(group) == 0,
            f"{group!r} is no label of a group. Give a list of labels, such as those in the first "
            "level of the index of summary().",
        )
    found = np.empty(len(wanted), dtype=object)
    found[:] = wanted
    return found


def _unknown(groups: Sequence[str], texts: NDArray[np.str_], level: str) -> str:
    """Which groups are unknown, and which were perhaps meant."""
    shown = ", ".join(map(repr, map(str, groups[:_MOST_NAMED])))
    more = f" and {len(groups) - _MOST_NAMED:,} more" if len(groups) > _MOST_NAMED else ""
    close = get_close_matches(str(groups[0]), texts.tolist(), n=_MOST_NAMED)
    meant = close or texts[:_MOST_NAMED].tolist()
    if len(meant) == 1:
        are = "A close one is" if close else "The only one is"
    else:
        are = "Close ones are" if close else "The first ones are"
    return f"{level} has no group {shown}{more}. {are} {', '.join(map(repr, meant))}."


def _require_no_gaps(column: NDArray[Any]) -> None:
    missing = _is_missing(column)
    if missing.any():
        where = np.flatnonzero(missing)
        rows = ", ".join(map(str, where[:_MOST_NAMED])) + ", …" * (len(where) > _MOST_NAMED)
        raise BadInputError(
            f"The group is missing in {len(where):,} of {counted(len(column), 'row')} "
            f"(row{'s' * (len(where) > 1)} {rows}). "
            "Name a group; rows with a name that the run does not know belong to a new group."
        )


def _is_missing(column: NDArray[Any]) -> BoolArray:
    if column.dtype.kind not in "OfM":
        return np.zeros(len(column), dtype=bool)
    return np.array([value is None or value != value for value in column.tolist()], dtype=bool)


def _require_same_kind(column: NDArray[Any], texts: NDArray[np.str_], labels: NDArray[Any]) -> None:
    """Refuse rows whose groups are all unknown because they are of another kind than labels.

    Text that is no number may well name new groups among numbers.
    """
    given, expected = _kind_of(column), _kind_of(labels)
    if "" in (given, expected) or given == expected or np.isin(texts, texts_of(labels)).any():
        return
    names_new = given == _TEXT and any(number_in(text) is None for text in texts.tolist())
    require(
        names_new,
        f"None of the rows has a group that the run knows. Groups of the run are {expected}, such "
        f"as {labels[0].item()!r}; those of the rows are {given}, such as {column.tolist()[0]!r}. "
        "Write them as in the data of the run. Give names such as 'new 1' to groups that are new.",
    )


def _kind_of(values: NDArray[Any]) -> str:
    """Text, numbers or dates, in words; empty for no values, or values of several kinds."""
    if not len(values):
        return ""
    if values.dtype.kind != "O":
        return _KINDS.get(values.dtype.kind, "")
    kinds = {_kind_of_value(value) for value in values.tolist()}
    return kinds.pop() if len(kinds) == 1 else ""


def _kind_of_value(value: object) -> str:
    if isinstance(value, str | bytes):
        return _TEXT
    if isinstance(value, bool):
        return _TRUTH
    if isinstance(value, Number):
        return _NUMBERS
    return _DATES if isinstance(value, date) else ""
