"""Rows in place, before a run: shards are planned, and workers tell what is in them."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from quorate._types import Progress
from quorate.data.placed import PlacedShards, Shards, facts_of, places_of, sites_in, told
from quorate.data.placed_groups import labels_of_shards, unpacked_labels, with_groups
from quorate.data.scratch import forget
from quorate.engines.packing import packed
from quorate.engines.workers.in_place import TRANSFORM
from quorate.engines.workers.worker import Job
from quorate.errors import require
from quorate.models.protocol import Model
from quorate.protocol.allocation import Allocation
from quorate.protocol.before import FACTS, RowsQuestion, RowsTold
from quorate.protocol.schemes import SCHEMES
from quorate.protocol.schemes.cmc import SendDraws
from quorate.run.asking import ask_workers
from quorate.run.settings import Settings
from quorate.samplers import make_sampler
from quorate.trust.verdict import Verdict

_FACTS = frozenset({"arrays", "n_rows", "fingerprint"})


@contextmanager
def cut_into_shards(
    model: Model, data: object, settings: Settings, folder: Path, tell: Progress
) -> Iterator[Shards]:
    """Shards in `folder`, for one sitting: rows that are written there, or word of where they lie.

    `tell` is called with the rows, or the shards in place, that are read, and their number.
    """
    if not settings.cut.is_in_place:
        yield settings.cut.write(data, settings.workers, folder, settings.seed, tell)
        return
    with read_in_place(_planned(data, settings, folder), model, settings, tell) as shards:
        yield shards


@contextmanager
def read_in_place(
    planned: PlacedShards,
    model: Model,
    settings: Settings,
    tell: Progress,
    old: PlacedShards | None = None,
) -> Iterator[PlacedShards]:
    """Shards in place for one sitting, once workers have read them; those of `old` are known."""
    with forgotten(planned):
        try:
            shards = _read(planned, model, settings, tell, old)
        except BaseException:
            shutil.rmtree(planned.folder, ignore_errors=True)  # so that a next try finds it free
            raise
        yield shards


def _planned(data: object, settings: Settings, folder: Path) -> PlacedShards:
    """Where the rows of each shard lie, and what workers are to do with them."""
    is_free = not folder.exists() or not any(folder.iterdir())
    require(is_free, f"{folder} holds the shards of another run. Give a new run_dir.")
    cut = settings.cut
    columns = None if cut.columns is None else tuple(dict.fromkeys(cut.columns))
    transform = b"" if cut.transform is None else packed({TRANSFORM: cut.transform})
    has_groups, scratch = ":" in cut.chosen, cut.scratch
    places = places_of(data, settings.workers, whole_files=has_groups)
    return PlacedShards(folder.resolve(), cut.chosen, places, columns, cut.na, transform, scratch)


def _read(
    shards: PlacedShards,
    model: Model,
    settings: Settings,
    tell: Progress,
    old: PlacedShards | None,
) -> PlacedShards:
    """The shards with their fingerprints, once workers have read all of them; written down."""
    facts, labels = ([], []) if old is None else (facts_of(old), labels_of_shards(old))
    question = RowsQuestion(FACTS, shards.n_shards, _FACTS, first=len(facts))
    answers = RowsTold()
    allocation, logs = allocation_of(settings), shards.folder.parent / "logs"
    job = job_on(model, shards, settings.seed)
    ask_workers(settings.engine_options, job, allocation, question, answers, logs, tell)
    for found in answers.labels():
        labels.append({name: unpacked_labels(array) for name, array in found.items()})
    shards = with_groups(told(shards, [*facts, *answers.in_order()]), labels)
    shards.save()
    return shards


def job_on(model: Model | None, shards: PlacedShards, seed: int) -> Job:
    """A job of tasks on rows in place, before there is anything to draw, or even a model."""
    sampler = make_sampler("auto")  # of no use
    folder = str(shards.folder)
    return Job(cast(Model, model), sampler, SendDraws(), folder, shards.n_shards, seed, shards)


def allocation_of(settings: Settings) -> Allocation:
    """Who holds what in the run itself, so that rows are first read where they are needed."""
    return settings.scheme_options.sums(settings.workers, settings.seed).allocation


def settled_for(data: object, settings: Settings) -> Settings:
    """The settings of a run on these data: those of sites have one holder for each shard."""
    if not settings.cut.is_in_place:
        return settings
    sites = sites_in(data)
    if not sites:
        return settings
    if settings.workers % len(sites) and settings.workers == Settings.workers:
        settings = replace(settings, workers=len(sites))
    scheme = settings.scheme_options
    options = SCHEMES.as_json(scheme)
    redundancy = options.get("redundancy", 1)
    require(
        redundancy in (None, 1),
        f"redundancy is {redundancy}, but rows of a site exist only there: a second worker could "
        "not read them. Leave out redundancy.",
    )
    if redundancy is None:
        scheme = SCHEMES.from_json({**options, "redundancy": 1})
    return replace(settings, scheme=scheme, redundancy=None)


def about_sites(sites: Sequence[str]) -> str:
    """A sentence about rows that lie at single sites: the run waits for all of them."""
    named = ", ".join(sites)
    return (
        f"The rows of {named} lie only there: no other worker can answer for a site (redundancy "
        "1), so the run waits for every site, and ends if one is lost"
    )


def with_remarks(verdict: Verdict, shards: PlacedShards | None) -> Verdict:
    """The verdict, with a remark on sites that nobody can stand in for."""
    if shards is None or not shards.sites:
        return verdict
    return replace(verdict, remarks=[*verdict.remarks, about_sites(shards.sites)])


@contextmanager
def forgotten(shards: Shards | None) -> Iterator[None]:
    """Remove what workers on this machine have copied of rows in place, at the end of a sitting."""
    try:
        yield
    finally:
        if isinstance(shards, PlacedShards):
            forget(shards)
