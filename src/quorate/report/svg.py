"""Figures of matplotlib as SVG that is part of a page and takes on its colours."""

import io
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from quorate.report.markup import Html, bullet_list, element, joined, note, text

# Stand-ins, each for a colour that style.css gives in light and in dark.
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
_TAG = re.compile(r"<[^>]*>")
_FIRST_LINES = re.compile(r"^.*?<svg[^>]*?viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_STYLE_SHEET = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")
_FONT = re.compile(r" font-family: [^;\"]*;?")
_SPACES, _BETWEEN_TAGS = re.compile(r"\s+"), re.compile(r">\s+<")


@contextmanager
def drawing() -> Iterator[None]:
    """What is drawn inside is drawn for the page."""
    with rc_context(_STYLE), warnings.catch_warnings():
        # Browsers have the letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


def canvas(width: float, height: float) -> Figure:
    """A figure of so many pixels, as wide as that at most."""
    size = width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH
    return Figure(figsize=size, layout="constrained")


def shard_colour(shard: int) -> str:
    """A colour for every shard, all as bright as each other: they show on white and on black."""
    hue = (0.58 + shard * _GOLDEN) % 1.0
    wheel = np.clip(np.abs((hue * 6 + np.array([0.0, 4.0, 2.0])) % 6 - 3) - 1, 0, 1)
    brightness = _LUMINANCE @ wheel
    lightest = wheel + (1 - wheel) * max(_BRIGHT - brightness, 0) / (1 - brightness)
    linear = lightest * min(_BRIGHT / brightness, 1.0)
    return to_hex(tuple(linear ** (1 / 2.2)))


def legend(shards: Sequence[int], excluded: Collection[int] = ()) -> Html:
    """The colours of the shards; those that were left out are named so."""
    if len(shards) > _MOST_NAMED:
        return note("Every shard has its colour; there are too many to name.")
    items = []
    for shard in shards:
        style = f"background:{shard_colour(shard)}"
        swatch = element("span", class_="swatch", style=style)
        items.append(joined([swatch, f"shard {shard}", " (left out)" * (shard in excluded)]))
    return element("div", bullet_list(items), class_="legend")


class Pictures:
    """Makes figures into markup; ids of one page never meet."""

    def __init__(self) -> None:
        self._numbers = count()

    def svg(self, figure: Figure, label: str, class_: str = "") -> Html:
        """The figure; `label` is read to those who do not see it."""
        file = io.StringIO()
        salt: Any = {"svg.hashsalt": f"quorate-{next(self._numbers)}"}
        with drawing(), rc_context(salt):
            figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
        source = _STYLE_SHEET.sub("", _METADATA.sub("", file.getvalue()))
        found = _FIRST_LINES.match(source)
        assert found is not None
        width = figure.get_figwidth() * _PIXELS_PER_INCH
        opening = (
            f'<svg viewBox="{found[1]}" width="{width:.0f}" role="img" class="{class_}" '
            f'aria-label="{text(label)}">'
        )
        drawn = _TAG.sub(_for_the_page, source[found.end() :])
        return Html(opening + _BETWEEN_TAGS.sub("><", drawn).strip())

    def figure(self, figure: Figure, label: str, caption: object, class_: str = "") -> Html:
        """The same with words below."""
        return element("figure", self.svg(figure, label, class_), element("figcaption", caption))


def bare(axes: Axes) -> None:
    """Leave out all but the line at the bottom."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def _for_the_page(found: re.Match[str]) -> str:
    """A tag without what would clash; text, which lies between tags, is not touched."""
    tag = found[0]
    if tag.startswith("<!--"):
        return ""
    if tag.startswith("<g id="):
        return "" if tag.endswith("/>") else "<g>"
    for colour, name in _COLOURS.items():
        tag = tag.replace(colour, f"var(--{name})")
    if "base64" in tag:
        return tag
    shortened = tag if "scale" in tag else _LONG_NUMBER.sub(r"\1", tag)
    return _SPACES.sub(" ", _FONT.sub("", shortened))
