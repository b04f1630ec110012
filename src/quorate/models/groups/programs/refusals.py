"""What programs with local parameters refuse, and what they say then."""

from collections.abc import Mapping

from quorate.errors import BadInputError, require
from quorate.models.groups.quadrature import MOST_DIMENSIONS
from quorate.models.rows import Ability


def require_few_dimensions(dim: int, names: str) -> None:
    """Refuse integrals of too many dimensions."""
    require(
        1 <= dim <= MOST_DIMENSIONS,
        f"A group has {dim} local parameters: {names}. They are integrated out at nodes, which is "
        f"done for 1 to {MOST_DIMENSIONS} of them. Make some of them global.",
    )


def one_level(name: object, what: str) -> str:
    """The name of the one level of a program."""
    if isinstance(name, str) and name:
        return name
    raise BadInputError(
        f"{what} of groups, not {name!r}. Where levels nest, name both, the outer one first: "
        '"outer/inner".'
    )


def lacks_of_plates(ability: Ability, observed: tuple[str, ...], roles: Mapping[str, str]) -> str:
    """What a program with plates of groups lacks, by what it observes and its factors' roles."""
    if ability == "responses" and not observed:
        return "All that the program observes are factors or potentials, which have no responses."
    factors = [name for name, role in roles.items() if role == "prior"]
    if ability != "prior_draws" or not factors:
        return ""
    return f"The prior has factors ({', '.join(factors)}), so it cannot be drawn from."
