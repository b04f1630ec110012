"""Rows that arrive after a run: `quorate.update`.

The new run has the shards of the old one and further ones. Its journal begins with what the old
run found of its shards and with the Gaussian fit of its posterior, so old shards are not surveyed
again. Each of K shards has a share 1/K of the prior; K is now the number of all shards, so the sum
over them is the log posterior of all rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate._extras import require_installed
from quorate.data.append import append_shards
from quorate.data.cut import COMMAND, Cut
from quorate.data.placed import PlacedShards, Shards, sites_in
from quorate.data.placed_further import with_further
from quorate.engines.options import EngineOptions
from quorate.errors import require
from quorate.journal import JournalReader, PassRecord
from quorate.models.protocol import Model
from quorate.passes.first_fit import Before
from quorate.protocol.inquirer import SURVEYS
from quorate.protocol.messages import Arrays
from quorate.results.result import Result
from quorate.run import kept_model
from quorate.run.beginning import begun, finished, run_folder
from quorate.run.configuration import SHARDS, TRANSFORMED, same_shards
from quorate.run.earlier_fit import UPDATE_OF, kept_before
from quorate.run.history import History
from quorate.run.in_place import read_in_place
from quorate.run.progress import Listener, cutting
from quorate.run.progress_shown import shown
from quorate.run.run import N_POINTS
from quorate.run.settings import Settings
from quorate.run.stopping import Stopping, Until


def update(
    run: str | Path | Result,
    rows: object,
    *,
    shards: int | None = None,
    by: str | Cut | None = None,
    model: Model | None = None,
    draws: int | None = None,
    seed: int | None = None,
    engine: str | EngineOptions | None = None,
    until: str | Until | None = None,
    run_dir: str | Path | None = None,
    progress: bool | Listener = True,
    every: float = 0.5,
    check: bool = True,
) -> Result:
    """Add rows to an exact run that has draws, and draw from the posterior of all rows.

    The old run stays as it is. The new one has its own folder, with the old shards linked into it
    and further shards for the new rows. It begins at the fit of the old posterior: only new shards
    are surveyed, and then passes over all shards are made. Without `model`, the one that is stored
    with the run is loaded, which executes its code: update only runs that you trust.

    Parameters
    ----------
    run
        Folder of the run, or its result.
    rows
        The new rows, with the columns or arrays that the run was made with; new Parquet files, or
        files by site, if the rows of the run stay in place. A formula encodes them as it encoded
        the first rows; a level of a factor that these did not have is refused. So are rows of a
        group that the run has, in models with groups.
    shards
        Number of further shards, and of further workers. By default they are about as large as the
        old ones.
    by
        How the new rows are cut, if not as before: see `sample`. If the run was made with a `Cut`
        that has a transform, give one with the same transform. For rows that stay in place it is
        left out: new files are read, and transformed, as those of the run.
    model
        A model with the parameters of the one of the run, in place of that.
    draws, seed, engine
        As for `sample`; those of the run by default.
    until, run_dir, progress, every, check
        As for `sample`.
    """
    folder = Path(run.run_dir if isinstance(run, Result) else run)
    known = _Known.of(folder)
    own, sampler = kept_model.opened(folder, known.configuration, model)
    names = known.configuration["names"]
    require(
        list(own.names) == names,
        f"The model has parameters {list(own.names)}, but the run has parameters {names}.",
    )
    old = same_shards(folder, known.configuration)
    require(
        by is None or not isinstance(old, PlacedShards),
        f"The rows of {folder} stay in place, and new ones are read as they are. Leave out `by`.",
    )
    settings = known.settings.without_faults(
        draws=known.settings.draws if draws is None else draws,
        seed=known.settings.seed if seed is None else seed,
        engine=engine or known.settings.engine,
        until=until,
        by=by or known.settings.by,
        every=every,
    ).for_model(own)
    require(
        isinstance(old, PlacedShards)
        or settings.cut.transform is not None
        or not known.configuration.get(TRANSFORMED),
        f"The rows of {folder} were transformed by a function, and the new ones are not. Give "
        "by=Cut(transform=...) with that function.",
    )
    require_installed(settings.engine_options.needs)
    stopping, n_points = Stopping(settings.chosen_until), N_POINTS if check else 0
    with (
        shown(progress) as listen,
        stopping.on_signals(),
        run_folder(run_dir) as new_folder,
    ):
        place, more = new_folder / SHARDS, known.for_journal(folder)
        with _added(old, rows, shards, own, settings, place, listen) as whole:
            settings = replace(settings, workers=whole.n_shards)
            made_of = own, sampler, whole, settings, new_folder, stopping, n_points
            with begun(*made_of, more, known.surveys) as new, JournalReader(new_folder) as reader:
                new.replay(reader)
                return finished(new, listen)


@contextmanager
def _added(
    old: Shards,
    rows: object,
    n_new: int | None,
    model: Model,
    settings: Settings,
    place: Path,
    listen: Listener,
) -> Iterator[Shards]:
    """The old shards and further ones, which are written, or stay in place as the old ones do."""
    in_place = isinstance(old, PlacedShards)
    tell = cutting(settings.workers, settings.draws, listen, in_place=in_place)
    if not isinstance(old, PlacedShards):
        yield append_shards(old, rows, n_new, place, settings.cut, settings.seed, tell)
        return
    require(
        settings.shards_per_worker == 1 or not sites_in(rows),
        f"The run has redundancy {settings.shards_per_worker}, but rows of a site exist only "
        "there: a second worker could not read them. Sample all files again.",
    )
    planned = with_further(old, rows, n_new, place)
    settings = replace(settings, workers=planned.n_shards)
    with read_in_place(planned, model, settings, tell, old) as whole:
        yield whole


@dataclass(frozen=True, eq=False)
class _Known:
    """What the journal of the old run tells."""

    configuration: Mapping[str, Any]
    settings: Settings
    before: Before
    found: Mapping[int, Arrays]  # by shard

    @classmethod
    def of(cls, folder: Path) -> "_Known":
        with History(folder) as history:
            history.read()
            require(
                history.passes is not None,
                f"The run in {folder} merged draws of its shards. Rows can be added to exact runs "
                "only: sample all rows anew, with method='exact'.",
            )
            assert history.passes is not None
            fit, n_shards = history.passes.inquiry.fit, history.n_workers
            require(
                fit is not None and history.n_global > 0,
                f"The run in {folder} has no draws yet. Resume it, and then add rows.",
            )
            assert fit is not None
            before = Before(fit.base.mean, fit.base.lower, n_shards)
            return cls(history.configuration, history.settings, before, history.passes.surveys)

    @property
    def surveys(self) -> list[PassRecord]:
        """What was found of the old shards, for the new journal."""
        return [PassRecord(0.0, SURVEYS, shard, of) for shard, of in sorted(self.found.items())]

    def for_journal(self, folder: Path) -> dict[str, Any]:
        """Further entries of the configuration of the new run."""
        made_by = dict(self.configuration.get("made_by", {}))
        made_by.pop(COMMAND, None)  # it draws from the posterior of the old rows
        name = str(folder.resolve())
        return {"made_by": {**made_by, UPDATE_OF: name}, **kept_before(name, self.before)}
