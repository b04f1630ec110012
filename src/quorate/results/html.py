"""A writer of HTML that escapes everything but markup, and words for numbers."""

import re
from collections.abc import Iterable
from html import escape
from importlib import resources
from math import isfinite
from numbers import Real

# Control characters, and those that turn the direction of all text that follows.
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_LONGEST_NAME, _LONGEST_LINE = 40, 200


def palette() -> str:
    """Style sheet with the colours of all pages, on light and on dark screens."""
    return resources.files("quorate.results").joinpath("palette.css").read_text("utf-8")


class Html(str):
    """Markup; any other string is text."""

    __slots__ = ()


def plain(value: object) -> str:
    """Text on one line without control characters, which every browser and encoder accepts."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value).replace("\n", " "))


def text(value: object) -> Html:
    """Markup as it is; anything else escaped."""
    return value if isinstance(value, Html) else Html(escape(plain(value)))


def element(tag: str, *children: object, **attributes: str) -> Html:
    """`<tag attribute="…">children</tag>`; write `class_` for the attribute `class`."""
    named = "".join(f' {name.rstrip("_")}="{text(v)}"' for name, v in attributes.items())
    return Html(f"<{tag}{named}>{joined(children)}</{tag}>")


def joined(parts: Iterable[object]) -> Html:
    """Parts one after the other."""
    return Html("".join(map(text, parts)))


def note(*children: object) -> Html:
    """A paragraph in smaller print."""
    return element("p", *children, class_="note")


def code(value: object) -> Html:
    """A command or a value in the font of code."""
    return element("code", value)


def bullet_list(items: Iterable[object]) -> Html:
    """A list with bullets."""
    return element("ul", *(element("li", item) for item in items))


def table(head: Iterable[object], rows: Iterable[Iterable[object]], **attributes: str) -> Html:
    """A table. Each row begins with its name; all other cells are numbers."""
    headings = element("tr", *(element("th", name, scope="col") for name in head))
    lines = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    ]
    return element("table", element("thead", headings), element("tbody", *lines), **attributes)


def scrolling(*children: object) -> Html:
    """A box that scrolls sideways where the page is narrow."""
    return element("div", *children, class_="scroll")


def shortened(name: object, longest: int = _LONGEST_NAME) -> str:
    """The beginning of a long name."""
    shown = plain(name)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def without_middle(name: object, longest: int) -> str:
    """The beginning and the end of a long name: names that are alike often differ at the end."""
    shown, half = plain(name), longest // 2
    return shown if len(shown) <= longest else f"{shown[: half - 1]}…{shown[-half:]}"


def first_line(told: str) -> str:
    """The first line of a message, shortened; an empty string if there is none."""
    return "".join(shortened(line, _LONGEST_LINE) for line in told.strip().splitlines()[:1])


def number(value: object, digits: int = 4) -> str:
    """A number with so many significant digits; anything else as text."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return plain(value)
    if isinstance(value, int) or not isfinite(value):
        return f"{value:,}" if isinstance(value, int) else "—"
    if abs(value) >= 10**digits:
        return fixed(float(value), 0)
    return f"{float(value):#.{digits}g}".rstrip(".").replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """A number with so many digits after the point."""
    return f"{value:z,.{decimals}f}".replace("-", "−")


def count(value: float) -> str:
    """A count such as an effective sample size; a dash if it is not finite."""
    return fixed(value, 0) if isfinite(value) else "—"


def seconds(value: float) -> str:
    """A duration; "never" if it is infinite."""
    if not isfinite(value):
        return "never"
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"
