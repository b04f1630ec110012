"""HTML in which all that is not markup is escaped."""

import re
from collections.abc import Iterable
from html import escape
from math import isfinite
from numbers import Real

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LONGEST_WORD = 40


class Html(str):
    """Markup; any other string is text."""

    __slots__ = ()


def plain(value: object) -> str:
    """Text that every browser and every encoder takes: on one line, no control characters."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value).replace("\n", " "))


def text(value: object) -> Html:
    """Markup as it is; anything else escaped."""
    return value if isinstance(value, Html) else Html(escape(plain(value)))


def element(tag: str, *children: object, **attributes: str) -> Html:
    """`<tag attribute="…">children</tag>`; an underscore at the end of an attribute is left out."""
    named = "".join(f' {name.rstrip("_")}="{text(v)}"' for name, v in attributes.items())
    return Html(f"<{tag}{named}>{joined(children)}</{tag}>")


def joined(parts: Iterable[object]) -> Html:
    """One after the other."""
    return Html("".join(map(text, parts)))


def paragraph(*children: object) -> Html:
    """Running text."""
    return element("p", *children)


def note(*children: object) -> Html:
    """Smaller print."""
    return element("p", *children, class_="note")


def code(value: object) -> Html:
    """As a machine reads it."""
    return element("code", value)


def bullet_list(items: Iterable[object]) -> Html:
    """A list without order."""
    return element("ul", *(element("li", item) for item in items))


def table(head: Iterable[object], rows: Iterable[Iterable[object]], class_: str = "") -> Html:
    """Rows begin with their name; all else in them is numbers. On a phone `stacked` ones have it
    on a line of its own.
    """
    headings = element("tr", *(element("th", name, scope="col") for name in head))
    lines = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    ]
    grid = element("table", element("thead", headings), element("tbody", *lines), class_=class_)
    return element("div", grid, class_="scroll")


def shortened(name: object, longest: int = _LONGEST_WORD) -> str:
    """The beginning of a long name."""
    shown = plain(name)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def number(value: object, digits: int = 4) -> str:
    """So many digits that matter; what is no number, as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return plain(value)
    if isinstance(value, int) or not isfinite(value):
        return f"{value:,}" if isinstance(value, int) else "—"
    if abs(value) >= 10**digits:
        return fixed(float(value), 0)
    return f"{float(value):.{digits}g}".replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """So many digits after the point."""
    return f"{value:,.{decimals}f}".replace("-", "−")


def seconds(value: float) -> str:
    """A time."""
    if not isfinite(value):
        return "never"
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"
