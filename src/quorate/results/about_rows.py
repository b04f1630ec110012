"""Log-likelihoods of rows and groups, PSIS-LOO and WAIC: methods of a result.

Workers compute them where the rows are, when they are asked for. See `Result.log_likelihood`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate._types import IntArray, Progress
from quorate.errors import BadInputError, require
from quorate.models.groups.levels import levels_of
from quorate.models.protocol import Model
from quorate.models.rows import require_ability
from quorate.protocol.after import Answers
from quorate.protocol.row_questions import By, RowQuestion
from quorate.results.arviz import for_arviz
from quorate.results.criterion import Criterion, CriterionAnswers, Kind
from quorate.results.row_tables import Places, Table, TableAnswers, require_memory
from quorate.results.thinned import N_DRAWS, Thinned

if TYPE_CHECKING:
    from quorate.results.result import Result


class RowWork(Protocol):
    """What asks the workers of a run about rows: `quorate.run.row_work.RowRun`."""

    @property
    def seed(self) -> int:
        """The seed of the run."""

    @property
    def rows(self) -> tuple[dict[int, IntArray], IntArray]:
        """For each shard the places of its rows in a result, and the number of each row."""

    def groups(self) -> tuple[IntArray, NDArray[Any]]:
        """Codes of the groups that are asked about, and their labels."""

    def ask(self, question: RowQuestion, answers: Answers, **options: Any) -> None:
        """Ask about all rows or groups that have a part in the draws."""


def log_likelihood(
    result: "Result",
    draws: int = N_DRAWS,
    *,
    by: By | None = None,
    path: str | Path | None = None,
    engine: Any = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Log-likelihood of every row, or of every group, at some draws, in ArviZ's form.

    The workers that hold the rows compute it. The result has the groups `posterior` and
    `log_likelihood` with the same draws, so ArviZ's `loo` and `waic` work on it: a DataTree, or
    InferenceData for an ArviZ before 1.0. Rows are in the order of the data. `loo` and `waic` of a
    result hold no such table, and work at any size.

    Parameters
    ----------
    draws
        About how many draws, evenly spaced; every chain gives as many, and at least one.
    by
        `row`, or for models with groups `group`. That is their default: the log-likelihood of all
        rows of a group, with the parameters of the group integrated out, is what tells how well a
        new group is predicted. By row it is conditional on draws of these parameters.
    path
        A file for the log-likelihoods, which is mapped into memory. Without one, they are held in
        memory, if they take no more than 2 GB.
    engine
        As for `sample`; that of the run by default.
    workers
        Number of workers to ask; as many as the run had by default.
    progress
        A function to call with the pieces of work that are done, and their number.
    """
    import xarray as xr

    work, thinned = work_of(result, "log_likelihood"), Thinned.of(result, draws)
    chosen = _by(result.model, by)
    places, labels = _items(work, chosen)
    if path is None:
        require_memory(8.0 * len(labels) * len(thinned.numbers))
    answers = TableAnswers(places, Table(len(labels), thinned.shape, path))
    asked = {"engine": engine, "workers": workers, "progress": progress}
    question = RowQuestion("log_likelihood", chosen, thinned.points, thinned.numbers)
    work.ask(question, answers, **asked)
    posterior = thinned.posterior(result)
    variables = {observed_name(result.model): (("chain", "draw", chosen), answers.table.done())}
    coords = {"chain": posterior["chain"], "draw": posterior["draw"], chosen: labels}
    dataset = xr.Dataset(variables, coords, {"inference_library": "quorate"})
    return for_arviz(xr.DataTree.from_dict({"posterior": posterior, "log_likelihood": dataset}))


def loo(
    result: "Result",
    draws: int = N_DRAWS,
    *,
    by: By | None = None,
    pointwise: bool = False,
    engine: Any = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Criterion:
    """PSIS-LOO: how well the model predicts a row, or a group, that it has not seen.

    Workers compute it row by row, and only sums travel, so it works at any size. The result
    is that of ArviZ, for the log-likelihoods that `log_likelihood` gives.

    Parameters
    ----------
    draws, by, engine, workers, progress
        As for `log_likelihood`.
    pointwise
        Whether to keep the criteria of every row: 32 bytes for each.
    """
    asked = {"engine": engine, "workers": workers, "progress": progress}
    return _criterion(result, "loo", draws, by, pointwise, **asked)


def waic(
    result: "Result",
    draws: int = N_DRAWS,
    *,
    by: By | None = None,
    pointwise: bool = False,
    engine: Any = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Criterion:
    """WAIC, the widely applicable information criterion; parameters are those of `loo`."""
    asked = {"engine": engine, "workers": workers, "progress": progress}
    return _criterion(result, "waic", draws, by, pointwise, **asked)


def _criterion(
    result: "Result", kind: Kind, draws: int, by: By | None, pointwise: bool, **asked: Any
) -> Criterion:
    work, thinned = work_of(result, "log_likelihood"), Thinned.of(result, draws)
    n_draws, chosen = len(thinned.numbers), _by(result.model, by)
    require(n_draws >= 2, f"{n_draws} draws are too few for {kind}. Use some hundreds.")
    places, labels = _items(work, chosen)
    answers = CriterionAnswers(kind, chosen, n_draws, places, labels, pointwise)
    given = {"r_eff": np.array(thinned.r_eff(result))}
    question = RowQuestion("criteria", chosen, thinned.points, thinned.numbers, given)
    work.ask(question, answers, **asked)
    return answers.criterion()


def work_of(result: "Result", ability: Any) -> RowWork:
    """What asks the workers of a result, if its model can answer."""
    require_ability(result.model, ability)
    if result.row_work is None:
        raise BadInputError("This result is of no run, so there are no workers to ask.")
    return result.row_work


def observed_name(model: Model) -> str:
    """The name of what is observed, as ArviZ's groups have it."""
    names: tuple[str, ...] = getattr(model, "observed_names", ("y",))
    return names[0] if len(names) == 1 else "rows"


def row_places(work: RowWork) -> tuple[Places, IntArray]:
    """Where rows of a shard belong in a result, and the number of every row."""
    of_shards, numbers = work.rows
    return lambda shard, items: of_shards[shard][items], numbers


def _items(work: RowWork, by: By) -> tuple[Places, NDArray[Any]]:
    """Where items of a shard belong in a result, and the labels of all items."""
    if by == "row":
        return row_places(work)
    codes, labels = work.groups()
    return lambda shard, items: np.searchsorted(codes, items), labels


def _by(model: Model, by: By | None) -> By:
    grouped = bool(levels_of(model))
    require(by in (None, "row", "group"), f"by must be 'row' or 'group', not {by!r}.")
    require(by != "group" or grouped, "The model has no groups. Use by='row'.")
    return by or ("group" if grouped else "row")
