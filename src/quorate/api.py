"""What people call to draw from a posterior: `sample`."""

import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from quorate._types import Array
from quorate.coordinator import Coordinator
from quorate.engines import process
from quorate.errors import require
from quorate.ess import bulk_ess
from quorate.latency import parse_dead, parse_slow
from quorate.model import Model
from quorate.result import Result
from quorate.samplers import make_sampler
from quorate.scheme import Scheme
from quorate.schemes import scheme_maker
from quorate.schemes.cmc import CMC
from quorate.schemes.grouped import GroupedCMC
from quorate.shards import Transform, write_shards
from quorate.worker import Handicap, Job

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = "interrupted"
_SECONDS_BETWEEN_LOOKS = 1.0  # at the effective number of draws, which costs some work
Watch = Callable[[float, int], None]


def sample(
    model: Model,
    data: object,
    *,
    workers: int = 8,
    redundancy: int | None = None,
    scheme: str = "grouped",
    draws: int = 2000,
    seed: int = 1,
    sampler: str = "auto",
    thin: int = 1,
    max_time: float | None = None,
    target_ess: float | None = None,
    run_dir: str | Path | None = None,
    by: str = "shuffle",
    columns: Sequence[str] | None = None,
    transform: Transform | None = None,
    cov_ridge: float = 0.0,
    precision_ridge: float | None = None,
    code: str = "grouped",
    slow: str | None = None,
    dead: str | None = None,
    straggle: float | None = None,
    watch: Watch = lambda seconds, n_draws: None,
) -> Result:
    """Draw from the posterior of a model on the processes of this machine.

    The run ends with the number of draws asked for, enough effective draws, the end of its time or
    Ctrl-C, whichever is first, and gives what was drawn by then.

    Parameters
    ----------
    model
        Whose posterior to draw from.
    data
        Arrays by name, a pandas, polars or Arrow table, or Parquet files; rows are cut into as many
        shards as there are workers.
    workers, redundancy, scheme
        K, r and one of `cmc`, `grouped`, `coded`. r is 2 by default, 1 where there is one worker.
        There may be more workers than cores.
    draws
        Global draws to get.
    sampler, thin
        One of `quorate.samplers`, and how many of its steps make a draw.
    max_time, target_ess
        Seconds after which to stop; effective draws of every parameter that are enough.
    run_dir
        Folder for shards and logs, a temporary one by default.
    by, columns, transform
        How rows are given to shards, and what of them; see `quorate.shards.write_shards`.
    cov_ridge, precision_ridge, code
        Of the scheme; see `quorate.schemes.scheme_maker`. `coded` needs both ridges, in units of
        the posterior's variances and of their inverses.
    slow, dead, straggle
        Delays put in on purpose: `1x10` makes worker 0 ten times slower, `2@5` ends workers 0 and 1
        after five blocks, and a tail index draws a Pareto factor for every block.
    watch
        Called with seconds and global draws whenever there are more of them.
    """
    redundancy = min(2, workers) if redundancy is None else redundancy
    _check(model, draws, max_time, target_ess)
    if scheme == "coded":
        require(
            cov_ridge > 0,
            "cov_ridge",
            cov_ridge,
            "coded draws need one in units of the posterior's variances, say a hundredth of them",
        )
    made = scheme_maker(scheme, workers, redundancy, model.dim, cov_ridge, precision_ridge, code)()
    method = make_sampler(sampler, thin=thin)
    handicaps = _handicaps(workers, slow, dead, straggle)
    coordinator = Coordinator(made, draws, queue_depth=2)
    stopping = Stopping(coordinator, model.dim, max_time, target_ess)
    with stopping.on_signals(), _folder(run_dir) as folder:
        shards = write_shards(
            data, workers, folder / "shards", seed=seed, by=by, columns=columns, transform=transform
        )
        job = Job(model, method, made.worker_side, str(shards.folder), workers, seed)
        with process.ProcessEngine(job, workers, folder / "logs", handicaps) as engine:
            timeline = process.run(coordinator, engine, stopping.asked, watch)
    return Result(
        model=model,
        unconstrained=made.global_draws()[:draws].reshape(-1, model.dim),
        shard_draws=_shard_draws(made, model.dim),
        timeline=timeline,
        scheme=scheme,
        workers=workers,
        redundancy=1 if scheme == "cmc" else redundancy,
        lost=frozenset(coordinator.lost),
        stopped=stopping.reason or ("done" if timeline.finished else "workers lost"),
        run_dir=str(folder),
    )


def _check(model: Model, draws: int, max_time: float | None, target_ess: float | None) -> None:
    needed = ("dim", "names", "initial", "log_prior", "log_likelihood", "constrain")
    lacking = [name for name in needed if not hasattr(model, name)]
    require(
        not lacking,
        "model",
        type(model).__name__,
        f"it has no {', '.join(lacking)}: get one from quorate.models",
    )
    require(isinstance(draws, int) and draws >= 1, "draws", draws, "ask for at least one")
    require(max_time is None or max_time > 0, "max_time", max_time, "it must be above 0")
    require(target_ess is None or target_ess > 0, "target_ess", target_ess, "it must be above 0")


@contextmanager
def _folder(run_dir: str | Path | None) -> Iterator[Path]:
    """The run's folder; one of our own making goes again if the run breaks."""
    if run_dir is not None:
        yield Path(run_dir)
        return
    folder = Path(tempfile.mkdtemp(prefix="quorate-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


class Stopping:
    """When to end a run before its last draw, and why it was."""

    def __init__(
        self, coordinator: Coordinator, dim: int, max_time: float | None, target_ess: float | None
    ) -> None:
        self._coordinator = coordinator
        self._dim = dim
        self._max_time = max_time
        self._target_ess = target_ess
        self._next_look = _SECONDS_BETWEEN_LOOKS
        self.reason: str | None = None

    def asked(self, now: float) -> bool:
        """Whether it is time."""
        if self._max_time is not None and now > self._max_time:
            self.reason = "time is up"
        elif self._target_ess is not None and now > self._next_look:
            self._next_look = now + _SECONDS_BETWEEN_LOOKS
            if self._ess() >= self._target_ess:
                self.reason = "enough effective draws"
        return self.reason is not None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ctrl-C, or SIGTERM, ends the run with what there is; a second one at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread hears signals
            return
        before = {number: signal.signal(number, self._hear) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: object) -> None:
        if self.reason == _INTERRUPTED:
            raise KeyboardInterrupt
        self.reason = _INTERRUPTED

    def _ess(self) -> float:
        if self._coordinator.n_global <= 2 * self._dim + 8:
            return 0.0  # too few for weights that mean anything
        return float(np.min(bulk_ess(self._coordinator.scheme.global_draws()[None])))


def _handicaps(
    workers: int, slow: str | None, dead: str | None, straggle: float | None
) -> dict[int, Handicap]:
    """By worker: the slow come first, the dying last."""
    n_slow, factor = parse_slow(slow) if slow is not None else (0, 1.0)
    n_dead, after = parse_dead(dead) if dead is not None else (0, 0.0)
    require(
        n_slow + n_dead <= workers,
        "slow and dead workers",
        n_slow + n_dead,
        f"there are only {workers}",
    )
    require(
        straggle is None or straggle > 1,
        "straggle",
        straggle,
        "a Pareto factor has a mean only if its tail index is above 1",
    )
    return {
        worker: Handicap(
            factor=factor if worker < n_slow else 1.0,
            tail_index=straggle,
            dies_after=int(after) + 1 if worker >= workers - n_dead else None,
        )
        for worker in range(workers)
    }


def _shard_draws(scheme: Scheme, dim: int) -> tuple[Array, ...]:
    if not isinstance(scheme, CMC | GroupedCMC):
        return ()
    ledger = scheme.ledger
    return tuple(
        ledger.batches(cell)[:, i] if ledger.n_received[cell] else np.empty((0, dim))
        for cell, shards in enumerate(ledger.cells)
        for i in range(len(shards))
    )
