"""Journals of runs that never were, and of a small exact run, for tests of what reads them."""

from dataclasses import fields

import numpy as np

import quorate
from quorate.journal import (
    BlockRecord,
    Finished,
    Journal,
    JournalReader,
    PassRecord,
    Started,
    TaskGiven,
    WorkerEvent,
)
from quorate.models import linear
from quorate.protocol.messages import Happening
from quorate.protocol.schemes import chosen
from quorate.run.settings import Settings


def settings_of(**given):
    """Settings as a journal holds them; what is no setting is an option of the scheme."""
    given = {"scheme": "grouped", "workers": 2, "redundancy": 2, "draws": 40, **given}
    known = {field.name for field in fields(Settings)} - {"scheme", "redundancy"}
    options = {name: value for name, value in given.items() if name not in known}
    scheme = chosen(options.pop("scheme"), options)
    rest = {name: value for name, value in given.items() if name in known}
    return Settings(scheme=scheme, sampler="ellipse", **rest).as_json()


def configuration(names=("a", "b"), **settings):
    kept = settings_of(**settings)
    return {
        "settings": kept,
        "dim": len(names),
        "names": list(names),
        "code": "0",
        "shards": ["0"] * kept["workers"],
        "rows": [100] * kept["workers"],
        "versions": {"quorate": "0.1.0", "numpy": "2", "python": "3"},
    }


def block(time, worker, n=4, first=0, shards=(0, 1), attempt=0, chain=None, dim=2, seed=0):
    rng = np.random.default_rng([seed, worker, first])
    payload = rng.normal(size=(n, len(shards), dim))
    state = {"position": payload[-1, 0]}
    chain = worker if chain is None else chain
    return BlockRecord(time, worker, attempt, shards, chain, first, payload, state=state)


def coded(time, worker, n=4, first=0, shards=(0, 1), dim=2):
    payload = np.random.default_rng(first).normal(size=(n, dim))
    state = {"position": payload[-1]}
    return BlockRecord(time, worker, 0, shards, 0, first, payload, state=state)


def task(time, worker, first, n, shards=(0, 1), chain=None):
    chain = worker if chain is None else chain
    return TaskGiven(time, worker, 0, shards, chain, first, n, with_state=False)


def happened(time, what, worker, text=""):
    return WorkerEvent(time, worker, 0, Happening(what), text)


def write(folder, records, finished=True, **settings):
    """A run folder with a journal of `records`."""
    end = max((record.time for record in records), default=0.0)
    with Journal.create(folder, configuration(**settings)) as journal:
        journal.append([Started(0.0), *records])
        if finished:
            journal.append([Finished(end, "done")])
    return folder


def a_run():
    """Two workers that share two shards: the second is lost on the way, and not seen again."""
    return [
        task(0.5, 0, 0, 40),
        task(0.5, 1, 0, 40),
        *(block(1.0 + i, 0, n=4, first=4 * i) for i in range(8)),
        block(2.5, 1, n=4),
        block(4.5, 1, n=4, first=4),
        happened(5.0, "lost", 1, "ended by signal 9"),
        happened(6.0, "restarted", 1),
    ]


def exact_run(folder, progress=False):
    """A small exact run: a linear model on three workers. Returns its result."""
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(300), rng.normal(size=300)])
    data = {"X": x, "y": x @ [1.0, -2.0] + rng.normal(size=300)}
    return quorate.sample(
        linear(["one", "x"]),
        data,
        method="exact",
        workers=3,
        draws=200,
        run_dir=folder,
        engine=quorate.Processes(1),
        progress=progress,
        every=0.0,
    )


def passes_of(folder):
    """The answers in the journal of an exact run."""
    with JournalReader(folder) as reader:
        return [record for record in reader.records() if isinstance(record, PassRecord)]


def killed(folder, target, n_passes):
    """A copy of the journal of a run, up to its n-th PassRecord: as if it was killed there."""
    with JournalReader(folder) as reader:
        records = list(reader.records())
        configuration = reader.configuration()
    places = [i for i, record in enumerate(records) if isinstance(record, PassRecord)]
    end = places[n_passes - 1] + 1 if n_passes else 1
    with Journal.create(target, configuration) as journal:
        journal.append(records[:end])
    return target
