"""Options of `quorate sample` for formulas, and the regression that they make."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

import click

from quorate.cli.console import err
from quorate.data.complete import NA
from quorate.data.tables import open_table
from quorate.models.formulas.design import design
from quorate.models.protocol import Model
from quorate.models.regressions.particular_priors import read_priors
from quorate.models.regressions.ready_made import FAMILIES, regression, require_family
from quorate.run.learning import design_in_place

_OPTIONS = (
    click.option(
        "--formula",
        help="Fit a formula such as 'late ~ hour + origin + (1 | plane)', without a model.",
    ),
    click.option(
        "--family",
        metavar="|".join(FAMILIES),
        help="Set the family of the formula.  [default: gaussian]",
    ),
    click.option(
        "--prior",
        multiple=True,
        metavar="[NAME ~] PRIOR",
        help="Give a parameter or a term of the formula a prior, as in 'hour ~ normal(0, 1)'; "
        "without a name, all coefficients that have none. May be repeated.",
    ),
    click.option(
        "--allow-python",
        is_flag=True,
        help="Run any Python that the formula contains. Use it only for formulas that you trust.",
    ),
    click.option(
        "--na",
        type=click.Choice(get_args(NA)),
        default="raise",
        show_default=True,
        help="Drop rows with missing values, or end with an error that counts them.",
    ),
)


def formula_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for formulas to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def regression_of_files(
    formula: str,
    files: Sequence[str],
    family: str | None,
    priors: Sequence[str],
    *,
    in_place: Mapping[str, Any] | None,
    allow_python: bool,
    na: str,
) -> Model:
    """The regression of a formula, which learns its encoding from the files.

    With `in_place`, options of `quorate.design_in_place`, workers read them.
    """
    family = family or "gaussian"
    require_family(family)
    others, named = read_priors(priors)
    way = cast(NA, na)
    if in_place is not None:
        options = {**in_place, "allow_python": allow_python, "na": way}
        learned = design_in_place(formula, list(files), **options)
    else:
        table = open_table(list(files))
        learned = design(formula, table.batches(table.names), allow_python=allow_python, na=way)
    if learned.n_dropped and learned.completeness is not None:
        err.print(f"Dropped: {learned.completeness.in_words}.", soft_wrap=True, markup=False)
    options = {} if others is None else {"prior": others}
    return regression(learned, family, priors=named, **options)
