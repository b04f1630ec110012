"""Formulas on rows in place: workers learn from the rows, and tell levels, ranges and means."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from quorate.data.complete import NA, require_way
from quorate.data.placed import PlacedShards, places_of
from quorate.engines.options import EngineOptions
from quorate.engines.packing import packed
from quorate.engines.workers.in_place import LEARNER
from quorate.models.formulas.design import Design, learned_design
from quorate.models.formulas.learning import TELLS, Learner
from quorate.protocol.before import LEARN, RowsQuestion, RowsTold
from quorate.run.asking import ask_workers
from quorate.run.in_place import allocation_of, job_on, settled_for
from quorate.run.settings import Settings


def design_in_place(
    formula: str,
    data: object,
    *,
    workers: int = Settings.workers,
    engine: str | EngineOptions = "process",
    allow_python: bool = False,
    na: NA = "raise",
) -> Design:
    """Learn the encoding of a formula from rows that stay where they are.

    Workers read the columns of the formula once, and tell the levels of categories, the range of
    each other column, the moments of what the formula centres, and how many values are missing.
    Workers that are slow or die delay nothing: another one reads the same files.

    Parameters
    ----------
    formula, allow_python, na
        As for `quorate.models.design`.
    data
        As for `sample` with `by="in-place"`: Parquet files that all workers reach, or files by the
        name of the only site that has them.
    workers, engine
        As for `sample`. Fewer workers are used if there are fewer row groups.
    """
    require_way(na)
    learner = Learner(formula, allow_python)
    settings = settled_for(data, Settings(workers=workers, engine=engine, by="in-place"))
    places = places_of(data, settings.workers, fewer_will_do=True)
    settings = replace(settings, workers=len(places))
    given = {LEARNER: np.frombuffer(packed({LEARNER: learner}), dtype=np.uint8)}
    question, answers = RowsQuestion(LEARN, len(places), TELLS, given), RowsTold()
    with tempfile.TemporaryDirectory(prefix="quorate-") as folder:
        shards = PlacedShards(Path(folder), "in-place", places)
        job, logs = job_on(None, shards, settings.seed), Path(folder) / "logs"
        options = settings.engine_options
        ask_workers(options, job, allocation_of(settings), question, answers, logs)
    for told in answers.in_order():
        learner.take(told)
    learner.begin([*learner.scan.levels, *learner.scan.ranges, *learner.groups])
    return learned_design(learner, learner.typical_rows(), na, whole=False)
