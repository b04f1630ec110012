"""Priors of particular parameters, as users assign them: `hour ~ normal(0, 1)`."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from quorate.errors import BadInputError, require


def read_priors(assigned: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Priors from texts, as the command line takes them.

    Parameters
    ----------
    assigned
        `hour ~ normal(0, 1)` for the prior of one parameter or term, or `normal(0, 1)` for that of
        all other coefficients.

    Returns
    -------
    The prior of all others, or None, and the priors by name.
    """
    others, named = None, dict[str, str]()
    for text in assigned:
        name, tilde, words = (part.strip() for part in text.rpartition("~"))
        if not tilde:
            require(others is None, f"{others!r} and {words!r} are both for all coefficients.")
            others = words
        else:
            require(bool(name), f"{text!r} names no parameter. Write `hour ~ normal(0, 1)`.")
            require(name not in named, f"`{name}` has two priors. Give it one.")
            named[name] = words
    return others, named


def spread_over(
    priors: Mapping[str, str], names: Sequence[str], parts: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Words for single parameters. The prior of a term is that of each of its coefficients.

    Parameters
    ----------
    priors
        Words by name of a parameter or of a term.
    names
        All parameters.
    parts
        Parameters of each term, such as `origin`, or of the standard deviations of a group.

    Raises
    ------
    BadInputError
        If a name is that of no parameter and of no term.
    """
    found: dict[str, str] = {}
    known = set(names)
    for name in (name for name in priors if name not in known):
        require_known(name, names, parts)
        found |= dict.fromkeys(parts[name], priors[name])
    return found | {name: words for name, words in priors.items() if name in known}


def require_known(name: str, names: Sequence[str], parts: Mapping[str, Sequence[str]]) -> None:
    """Raise if a prior is for something that the model does not have."""
    if name in parts:
        return
    terms = [term for term in parts if term not in names]
    close = get_close_matches(name, [*names, *terms], n=1)
    hint = f"Did you mean `{close[0]}`? " if close else ""
    more = f", and the terms {', '.join(terms)}" if terms else ""
    raise BadInputError(
        f"No parameter named `{name}` for a prior. {hint}There are {', '.join(names)}{more}."
    )
