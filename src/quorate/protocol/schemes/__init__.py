"""The schemes: who holds what, what a worker sends, when a global draw is complete.

One file for each algorithm box of the paper, and one for ours, in the order of the box: data
allocation, at worker k, at the server; last, the options that a user writes. A scheme is pure: it
knows no engine, clock or process.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from quorate._registry import Registry
from quorate.errors import BadInputError, require
from quorate.protocol.scheme import SchemeOptions
from quorate.protocol.schemes.adaptive import Adaptive, Genie
from quorate.protocol.schemes.cmc import CMC
from quorate.protocol.schemes.coded import Coded
from quorate.protocol.schemes.grouped import Grouped

SCHEMES: Registry[type[SchemeOptions]] = Registry(
    "scheme",
    "quorate.schemes",
    {scheme.name: scheme for scheme in (CMC, Grouped, Coded, Adaptive, Genie)},
)
LIMITS = (Genie.name,)  # schemes that show what cannot be beaten; the planner leaves them out
COV_RIDGE = 10.0  # the paper gives no σ²; this is its authors'


def chosen(scheme: str | SchemeOptions, given: Mapping[str, Any]) -> SchemeOptions:
    """The options of a scheme, from its name and those that were given, or as they are.

    Options that are None count as not given.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if not isinstance(scheme, str):
        listed = ", ".join(given)
        require(not given, f"Give {listed} to {type(scheme).__name__}, not beside it.")
        return scheme
    made_of = SCHEMES[scheme]
    known = option_names(made_of)
    # A redundancy for CMC is one for the other schemes of a comparison.
    unknown = [name for name in given if name not in (*known, "redundancy")]
    require(
        not unknown,
        f"The scheme {scheme} has no option {', '.join(unknown)}. "
        f"Its options are {', '.join(known)}.",
    )
    return made_of(**{name: value for name, value in given.items() if name in known})


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
    given = {name: value for name, value in given.items() if value is not None}
    return chosen(scheme, {**made_of.published, **fitting, **given})


def option_names(scheme: type[SchemeOptions]) -> list[str]:
    """Names of the options that a scheme has."""
    return [field.name for field in fields(scheme)]  # type: ignore[arg-type]


def as_json(scheme: SchemeOptions) -> dict[str, Any]:
    """A scheme with its options, for the journal."""
    return {"name": scheme.name, **asdict(scheme)}  # type: ignore[call-overload]


def from_json(kept: Mapping[str, Any]) -> SchemeOptions:
    """The scheme that `as_json` wrote."""
    options = dict(kept)
    try:
        return SCHEMES[options.pop("name")](**options)
    except (KeyError, TypeError):
        raise BadInputError(
            f"The options of the run's scheme are not known: {dict(kept)}. "
            "Use the version of the package that made the run."
        ) from None
