"""The schemes: who holds what, what a worker sends, when a global draw is complete.

One file for each algorithm box of the paper, and one for ours, in the order of the box: data
allocation, at worker k, at the server; last, the options that a user writes. A scheme is pure: it
knows no engine, clock or process.
"""

from collections.abc import Mapping
from typing import Any

from quorate._registry import OptionsRegistry, option_names
from quorate.protocol.scheme import SchemeOptions
from quorate.protocol.schemes.adaptive import Adaptive, Genie
from quorate.protocol.schemes.cmc import CMC
from quorate.protocol.schemes.coded import Coded
from quorate.protocol.schemes.grouped import Grouped

__all__ = [
    "CMC",
    "COV_RIDGE",
    "LIMITS",
    "SCHEMES",
    "Adaptive",
    "Coded",
    "Genie",
    "Grouped",
    "as_published",
    "chosen",
]

SCHEMES: OptionsRegistry[SchemeOptions] = OptionsRegistry(
    "scheme",
    "quorate.schemes",
    {scheme.name: scheme for scheme in (CMC, Grouped, Coded, Adaptive, Genie)},
)
LIMITS = (Genie.name,)  # schemes that show what cannot be beaten; the planner leaves them out
COV_RIDGE = 10.0  # the paper gives no σ²; this is its authors'


def chosen(scheme: str | SchemeOptions, given: Mapping[str, Any]) -> SchemeOptions:
    """A scheme by its name and the options that were given, or as it is.

    A redundancy for CMC is ignored: it is meant for the other schemes of a comparison.
    """
    return SCHEMES.chosen(scheme, given, ignored=["redundancy"])


def as_published(
    scheme: str | SchemeOptions, usual: Mapping[str, Any], given: Mapping[str, Any]
) -> SchemeOptions:
    """The options with which the paper's experiments run a scheme of this name.

    `usual` are options that hold for every scheme that has them; `given` must be known to it.
    """
    if not isinstance(scheme, str):
        return chosen(scheme, given)
    made_of = SCHEMES[scheme]
    known = option_names(made_of)
    fitting = {name: value for name, value in usual.items() if name in known}
    explicit = {name: value for name, value in given.items() if value is not None}
    return chosen(scheme, {**made_of.published, **fitting, **explicit})
