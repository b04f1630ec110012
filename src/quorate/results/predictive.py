"""Methods of a result that draw responses: of its rows, of new rows, and from the prior."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from quorate._types import Array, IntArray, Progress
from quorate.errors import require
from quorate.models.axes import Axes, axes_of
from quorate.models.groups.levels import levels_of
from quorate.models.rows import PriorModel, require_ability
from quorate.protocol.messages import Arrays
from quorate.protocol.row_questions import RowQuestion
from quorate.results.about_rows import RowWork, row_places, work_of
from quorate.results.arviz import for_arviz, labelled, posterior_group
from quorate.results.predicted import predicted
from quorate.results.prediction import Prediction
from quorate.results.row_tables import ResponseAnswers, Table
from quorate.results.thinned import N_DRAWS, Thinned

if TYPE_CHECKING:
    import xarray as xr

    from quorate.results.result import Result


def predict(
    result: "Result",
    rows: Any,
    n: int = N_DRAWS,
    *,
    seed: int = 0,
    variable: str | None = None,
    **asked: Any,
) -> Prediction:
    """Predict new rows: their expected responses, and responses.

    By a regression, rows of groups that the run knows are predicted with the coefficients of these
    groups. Other groups are new: their coefficients are drawn from the distribution of groups.
    NumPyro and PyMC programs draw what they observe, and functions need `simulate`. In programs
    with `local` variables, a group number that the run does not know is a new group.

    Parameters
    ----------
    rows
        A table with the columns that the formula reads; the response is not needed. For models
        of no formula a dictionary of the arrays that they take; `group` and `inner` are labels.
    n
        Number of draws to predict with, from all chains.
    seed
        The same seed gives the same responses.
    variable
        Which variable to predict, for programs that observe several.
    asked
        `engine`, `workers` and `progress` for the work on known groups, as for
        `LocalParameters.summary`.
    """
    known = result.local if levels_of(result.model) else None
    points = result.unconstrained
    return predicted(result.model, points, rows, known, n, seed, variable, **asked)


def posterior_predictive(
    result: "Result",
    draws: int = N_DRAWS,
    *,
    seed: int | None = None,
    path: str | Path | None = None,
    engine: Any = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Replicated responses of all rows of the run, one for each of some draws, in ArviZ's form.

    The workers that hold the rows draw them. The result has the groups `posterior`,
    `posterior_predictive` and `observed_data`, with rows in the order of the data: a DataTree, or
    InferenceData for an ArviZ before 1.0. They depend on the seed alone, not on who draws them.

    Parameters
    ----------
    draws
        About how many draws, evenly spaced; every chain gives as many, and at least one.
    seed
        That of the run by default.
    path
        A file for the responses, which is mapped into memory. Without one, they are held in
        memory, if they take no more than 2 GB. For programs that observe several variables, each
        but the first has a file with its name added.
    engine, workers, progress
        As for `log_likelihood`.
    """
    work, thinned = work_of(result, "responses"), Thinned.of(result, draws)
    given = {"seed": np.array(work.seed if seed is None else seed)}
    asked = {"engine": engine, "workers": workers, "progress": progress}
    posterior = thinned.posterior(result)
    points, numbers = thinned.points, thinned.numbers
    found = _responses(work, points, numbers, thinned.shape, given, path, **asked)
    return _tree("posterior", posterior, "posterior_predictive", found, work.rows[1])


def prior_predictive(
    result: "Result",
    draws: int = 500,
    *,
    seed: int | None = None,
    path: str | Path | None = None,
    engine: Any = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Responses of all rows of the run at draws from the prior, in ArviZ's form.

    The result has the groups `prior`, `prior_predictive` and `observed_data`. Flat priors are
    refused. Parameters are those of `posterior_predictive`.
    """
    require(draws >= 1, f"draws must be at least 1, not {draws}.")
    require_ability(result.model, "prior_draws")
    work = work_of(result, "responses")
    chosen = work.seed if seed is None else seed
    points = cast(PriorModel, result.model).prior_draws(draws, np.random.default_rng([chosen, 1]))
    given = {"seed": np.array(chosen), "of_prior": np.array(True)}
    asked = {"engine": engine, "workers": workers, "progress": progress}
    numbers, about = np.arange(draws), {"inference_library": "quorate"}
    variables = result.model.constrain(points)
    prior = posterior_group(variables, numbers[None], about, axes_of(result.model))
    found = _responses(work, points, numbers, (1, draws), given, path, **asked)
    return _tree("prior", prior, "prior_predictive", found, work.rows[1])


def _responses(
    work: RowWork,
    points: Array,
    numbers: IntArray,
    shape: tuple[int, int],
    given: Arrays,
    path: str | Path | None,
    **asked: Any,
) -> ResponseAnswers:
    """All responses, in memory or in files."""
    places, rows = row_places(work)
    first: list[str] = []

    def new(name: str) -> Table:
        first.append(name)
        return Table(len(rows), shape, path if len(first) == 1 else _named(path, name))

    answers = ResponseAnswers(places, len(rows), new)
    work.ask(RowQuestion("responses", "row", points, numbers, given), answers, **asked)
    return answers


def _named(path: str | Path | None, name: str) -> Path | None:
    """The file for another variable."""
    if path is None:
        return None
    whole = Path(path)
    return whole.with_name(f"{whole.stem}-{name}{whole.suffix}")


def _tree(base: str, draws: "xr.Dataset", kind: str, found: ResponseAnswers, rows: IntArray) -> Any:
    """Parameters, responses and what was observed, in groups."""
    import xarray as xr

    about = {"inference_library": "quorate"}
    axes = ("chain", "draw", "row")
    tables = {name: table.done() for name, table in found.tables.items()}
    coords = {"chain": draws["chain"], "draw": draws["draw"], "row": rows}
    named, _ = labelled(tables, axes, Axes())
    groups = {base: draws, kind: xr.Dataset(named, coords, about)}
    if found.observed:
        of_rows, _ = labelled(found.observed, ("row",), Axes())
        groups["observed_data"] = xr.Dataset(of_rows, {"row": rows}, about)
    return for_arviz(xr.DataTree.from_dict(groups))
