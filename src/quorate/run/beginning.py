"""The beginning of a run, once its shards are there: the model, the journal, and the run."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from quorate.data.placed import PlacedShards, Shards
from quorate.engines.packing import code_print, packed
from quorate.journal import Journal, Record, Started
from quorate.models.axes import axes_of
from quorate.models.protocol import Model
from quorate.models.scales import natural_scales
from quorate.models.subposterior import Target
from quorate.results.result import Result
from quorate.run import kept_model
from quorate.run.configuration import PLACED, TRANSFORMED
from quorate.run.exact import ExactRun
from quorate.run.folder import chosen_folder
from quorate.run.progress import Listener
from quorate.run.run import Run
from quorate.run.settings import Settings
from quorate.run.stopping import Stopping
from quorate.samplers.protocol import Sampler

KINDS: dict[str, type[Run]] = {"merge": Run, "exact": ExactRun}
_PYTHON = ".".join(map(str, sys.version_info[:3]))


@contextmanager
def begun(
    model: Model,
    sampler: Sampler,
    shards: Shards,
    settings: Settings,
    folder: Path,
    stopping: Stopping,
    n_points: int,
    more: Mapping[str, Any] | None = None,
    records: Sequence[Record] = (),
) -> Iterator[Run]:
    """A run whose journal is open.

    Parameters
    ----------
    more
        Further entries of the configuration in the journal.
    records
        Records that the journal begins with.
    """
    Journal.require_none(folder)
    things = packed({"model": model, "sampler": sampler})
    kept_model.keep(folder, things)
    checksum = kept_model.checksum(things)
    configuration = {**_configuration(model, settings, shards, checksum), **(more or {})}
    with Journal.create(folder, configuration) as journal:
        journal.append([Started(0.0), *records])
        kind = KINDS[settings.chosen_method]
        yield kind(model, sampler, shards, settings, folder, journal, stopping, n_points)


def finished(run: Run, listen: Listener) -> Result:
    """Run to the end."""
    for _ in run.steps(listen):
        pass
    return run.final_result()


def run_folder(run_dir: str | Path | None) -> AbstractContextManager[Path]:
    """The run's folder; a temporary one if none is named."""
    if run_dir is not None:
        return nullcontext(Path(run_dir))
    return chosen_folder(Path(tempfile.mkdtemp(prefix="quorate-")))


def _configuration(
    model: Model, settings: Settings, shards: Shards, checksum: str
) -> dict[str, Any]:
    """What the journal holds about a run: enough to say what it is, and whether a model fits."""
    return {
        "settings": settings.as_json(),
        "dim": model.dim,
        "names": list(model.names),
        "scales": natural_scales(model),
        "start": np.asarray(model.initial()).tolist(),
        "axes": axes_of(model).as_json(),
        "has_gradient": Target(model, {}, 1).has_gradient,
        "code": code_print(model),
        "model": checksum,
        "shards": list(shards.fingerprints),
        "rows": list(shards.n_rows),
        PLACED: shards.checksum if isinstance(shards, PlacedShards) else None,
        TRANSFORMED: settings.cut.transform is not None,
        "made_by": dict(settings.cut.made_by or {}),
        "versions": {"quorate": version("quorate"), "numpy": version("numpy"), "python": _PYTHON},
    }
