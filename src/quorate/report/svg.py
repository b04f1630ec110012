"""Figures of matplotlib as SVG inside a page, in the colours of its style sheet."""

import io
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from xml.etree import ElementTree

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from quorate.results.html import Html, bullet_list, element, joined, note, plain

# Each stands for a colour that style.css defines for light and for dark pages.
INK, MUTED, FAINT = "#010203", "#010204", "#010205"
ACCENT, BAD, PAPER = "#010206", "#010207", "#010208"
_COLOURS = {
    INK: "ink",
    MUTED: "muted",
    FAINT: "faint",
    ACCENT: "accent",
    BAD: "bad",
    PAPER: "paper",
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.size": 10.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": FAINT,
    "legend.frameon": False,
    "text.usetex": False,
    "path.simplify_threshold": 0.2,
}
_GOLDEN = 0.6180339887  # steps of hue that never meet
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])  # of red, green and blue light
_BRIGHT = 0.27
_MOST_NAMED = 24  # shards in a legend
_PIXELS_PER_INCH = 96.0
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the style of the page."""
    with rc_context(_STYLE), warnings.catch_warnings():
        # Browsers have the characters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


def canvas(width: float, height: float) -> Figure:
    """A figure of this size in pixels; a narrow page shrinks it."""
    size = width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH
    return Figure(figsize=size, layout="constrained")


def shard_colour(shard: int) -> str:
    """A colour for every shard, all of the same brightness: visible on white and on black."""
    hue = (0.58 + shard * _GOLDEN) % 1.0
    wheel = np.clip(np.abs((hue * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1, 0, 1)
    brightness = _LUMINANCE @ wheel
    lightest = wheel + (1 - wheel) * max(_BRIGHT - brightness, 0) / (1 - brightness)
    linear = lightest * min(_BRIGHT / brightness, 1.0)
    return to_hex(tuple(linear ** (1 / 2.2)))


def legend(shards: Sequence[int], excluded: Collection[int] = ()) -> Html:
    """The colours of the shards; excluded ones are marked."""
    if len(shards) > _MOST_NAMED:
        return note("Every shard has its own colour; there are too many to list.")
    items = []
    for shard in shards:
        style = f"background:{shard_colour(shard)}"
        swatch = element("span", class_="swatch", style=style)
        items.append(joined([swatch, f"shard {shard}", " (left out)" * (shard in excluded)]))
    return element("div", bullet_list(items), class_="legend")


class Pictures:
    """Turns figures into markup, with ids that are unique on the page."""

    def __init__(self) -> None:
        self._numbers = count()

    def svg(self, figure: Figure, label: str, class_: str = "") -> Html:
        """The figure as an `svg` element; screen readers read `label`."""
        file = io.StringIO()
        salt: Any = {"svg.hashsalt": f"quorate-{next(self._numbers)}"}
        with drawing(), rc_context(salt):
            figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
        root = ElementTree.fromstring(file.getvalue())  # noqa: S314 (matplotlib wrote it just now)
        for parent in root.iter():
            for child in list(parent):
                if _is_needless(child):
                    parent.remove(child)
        for part in root.iter():
            _fit(part)
        root.attrib = {
            "viewBox": root.attrib["viewBox"],
            "width": f"{figure.get_figwidth() * _PIXELS_PER_INCH:.0f}",
            "role": "img",
            "class": class_,
            "aria-label": plain(label),
        }
        return Html(ElementTree.tostring(root, encoding="unicode"))

    def figure(self, figure: Figure, label: str, caption: object, class_: str = "") -> Html:
        """The figure with a caption below."""
        return element("figure", self.svg(figure, label, class_), element("figcaption", caption))


def bare(axes: Axes) -> None:
    """Leave out everything but the line at the bottom."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def _is_needless(part: ElementTree.Element) -> bool:
    """Whether the page is better off without a part: metadata, style sheets, empty groups."""
    kind = _local(part.tag)
    holds_style = kind == "defs" and any(_local(child.tag) == "style" for child in part)
    return kind == "metadata" or holds_style or (kind == "g" and not len(part))


def _fit(part: ElementTree.Element) -> None:
    """Fit a part into the page: no namespaces and names of groups, few digits, colours of ours."""
    part.tag = _local(part.tag)
    if part.tag == "g":
        part.attrib.pop("id", None)
    part.attrib = {_local(name): _fitted(_local(name), v) for name, v in part.attrib.items()}
    part.tail = None
    if part.tag != "text":
        part.text = None


def _fitted(name: str, value: str) -> str:
    if name == "href":
        return "".join(value.split())
    if name == "style":
        entries = (entry.strip() for entry in value.split(";"))
        value = "; ".join(e for e in entries if e and not e.startswith("font-family"))
        for colour, variable in _COLOURS.items():
            value = value.replace(colour, f"var(--{variable})")
    return value if "scale" in value else _LONG_NUMBER.sub(r"\1", " ".join(value.split()))


def _local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("}")[2]
