"""Real processes that are slow, stopped or stuck: only the slow ones are left alone."""

import ctypes
import os
import re
import signal
import threading
import time

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel
from quorate.data.write import write_shards
from quorate.engines.processes.engine import ProcessEngine
from quorate.engines.workers.worker import Job
from quorate.journal import JournalReader, WorkerEvent
from quorate.protocol.messages import Beat, Block, Task, WorkerJoined
from quorate.protocol.patience import Limits
from quorate.protocol.schemes.cmc import SendDraws
from quorate.run.settings import Settings

ROUNDS = int(os.environ.get("QUORATE_CHAOS_ROUNDS", "1"))
N_ROWS = 80


class Sparing:
    """A sampler that evaluates the log density at every eighth draw: once in a first block.

    A warm-up is so many evaluations. Chains of shard 0 have none.
    """

    name, determinism = "sparing", "exact"

    def __init__(self, n_warm):
        self.n_warm = n_warm

    def warm_up(self, target, stream):
        for _ in range(self.n_warm if stream.shard else 0):
            target.log_density(np.zeros(target.dim))
        return {"index": np.array(0)}

    def draw(self, target, state, stream, n):
        first = int(state["index"])
        draws = np.array([self._one(target, stream, i) for i in range(first, first + n)])
        return draws, {"index": np.array(first + n)}

    def _one(self, target, stream, index):
        x = np.random.default_rng([stream.shard, index]).normal(size=target.dim)
        if index % 8 == 0:
            target.log_density(x)
        return x


class SlowModel(MeanModel):
    """Takes some seconds for each evaluation."""

    def __init__(self, seconds):
        self.seconds = seconds

    def log_likelihood(self, x, shard):
        time.sleep(self.seconds)
        return super().log_likelihood(x, shard)


@pytest.fixture
def rows(seed):
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    return {"z": z, "row": np.arange(N_ROWS)}


def sample(model, rows, run, **options):
    options = {"scheme": "cmc", "check": False, "progress": False, **options}
    return quorate.sample(model, rows, run_dir=run, **options)


def happened(run):
    """What happened to workers, by the journal."""
    with JournalReader(run) as reader:
        return [record for record in reader.records() if isinstance(record, WorkerEvent)]


# ---------------------------------------------------------------- slow


@pytest.mark.parametrize(("seconds", "n_warm"), [(0.005, 240), (0.2, 5)])
def test_workers_that_wait_for_their_neighbours_are_not_lost(seconds, n_warm, rows, tmp_path):
    engine, sampler = quorate.Processes(1, restarts=0), Sparing(n_warm)
    options = {"workers": 8, "draws": 9, "engine": engine, "sampler": sampler}
    result = sample(SlowModel(seconds), rows, tmp_path / "run", **options)
    assert result.stopped == "done"
    assert happened(tmp_path / "run") == []


def test_exact_passes_of_workers_that_share_a_process(rows, tmp_path):
    engine = quorate.Processes(1, restarts=0)
    options = {"method": "exact", "workers": 4, "draws": 20, "engine": engine}
    result = sample(SlowModel(5e-4), rows, tmp_path / "run", **options)
    assert result.stopped == "done"
    assert happened(tmp_path / "run") == []


class UnevenModel(MeanModel):
    """Evaluations take `usual` seconds at first, and then in each process some times as long.

    Processes take the factors one after another: files in a folder say which are taken.
    """

    def __init__(self, usual, factors, changes, folder):
        self.usual, self.factors, self.changes, self.folder = usual, factors, changes, folder
        self.n, self.factor = 0, None

    def log_likelihood(self, x, shard):
        self.n += 1
        if self.factor is None:
            free = next(factor for factor in self.factors if self.is_free(factor))
            self.factor = float(free.split()[0])
        time.sleep(self.usual * (self.factor if self.n > self.changes else 1.0))
        return super().log_likelihood(x, shard)

    def is_free(self, factor):
        try:
            (self.folder / factor).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@pytest.mark.parametrize("_", range(ROUNDS))
def test_workers_that_get_slow_are_never_replaced_while_they_work(_, rows, tmp_path):
    """They become 10, 50 and 200 times slower than the others when all have sent a block."""
    model = UnevenModel(0.05, ("1 a", "1 b", "1 c", "1 d", "10", "50", "200"), 1, tmp_path)
    engine = quorate.Processes(restarts=0)
    options = {"workers": 7, "draws": 10, "engine": engine, "sampler": Sparing(0)}
    result = sample(model, rows, tmp_path / "run", **options)
    assert result.stopped == "done"
    assert happened(tmp_path / "run") == []


@pytest.mark.parametrize("factor", [10, 50, 200])
@pytest.mark.parametrize("_", range(ROUNDS))
def test_delays_put_in_on_purpose_are_no_silence(factor, _, rows, tmp_path):
    options = {"workers": 4, "scheme": "grouped", "engine": quorate.Processes(restarts=0)}
    options |= {"faults": f"slow:1x{factor}", "draws": 10**7, "until": "time:3"}
    result = sample(MeanModel(), rows, tmp_path / "run", sampler="ellipse", **options)
    assert result.stopped == "time is up"
    assert happened(tmp_path / "run") == []


# ---------------------------------------------------------------- stopped


class StopsItself(MeanModel):
    """Stops its process in the first evaluation on one shard, once: a file remembers."""

    def __init__(self, marker):
        self.marker = marker

    def log_likelihood(self, x, shard):
        if 7 in shard["row"] and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().log_likelihood(x, shard)


@pytest.mark.parametrize(("processes", "method"), [(1, "merge"), (3, "exact")])
def test_a_worker_that_is_stopped_is_noticed_within_ten_seconds(processes, method, rows, tmp_path):
    """Also in its first step, whose length nobody knows; and nobody else is to blame."""
    engine = quorate.Processes(processes, restarts=1)
    options = {"workers": 3, "draws": 50, "engine": engine, "method": method}
    result = sample(StopsItself(tmp_path / "marker"), rows, tmp_path / "run", **options)
    assert result.stopped == "done"
    silent = [event for event in happened(tmp_path / "run") if event.what == "silent"]
    assert silent
    said = re.match(r"its process is stopped, no sign of life for (\S+) s", silent[0].text)
    assert float(said[1]) < 10


# ---------------------------------------------------------------- stuck


class StuckModel(MeanModel):
    """Never returns from one evaluation, once: a file remembers."""

    def __init__(self, marker):
        self.marker, self.n = marker, 0

    def log_likelihood(self, x, shard):
        self.n += 1
        if self.n > 300 and 7 in shard["row"] and not self.marker.exists():
            self.marker.touch()
            threading.Event().wait()
        return super().log_likelihood(x, shard)


def test_code_that_is_stuck_is_found_though_its_process_lives(rows, tmp_path, monkeypatch):
    short = Limits(step=1.0, multiple=10.0)  # with the usual half a minute it would take as long
    monkeypatch.setattr(Settings, "limits", lambda settings: short)
    options = {"workers": 2, "draws": 500, "sampler": "ellipse"}
    result = sample(StuckModel(tmp_path / "marker"), rows, tmp_path / "run", **options)
    assert result.stopped == "done"
    silent = [event for event in happened(tmp_path / "run") if event.what == "silent"]
    assert any(event.text.startswith("stuck: log_density has taken") for event in silent)


class HoldsTheLock(MeanModel):
    """Holds the lock of its interpreter until a byte comes through a pipe with a name."""

    def __init__(self, path):
        self.path = path

    def log_likelihood(self, x, shard):
        pipe = os.open(self.path, os.O_RDWR)
        ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
        os.write(pipe, b"x")  # for the next time
        return super().log_likelihood(x, shard)


def events(engine, kind):
    """The next events of one kind."""
    while True:
        found = [event for event in engine.poll(0.1) if isinstance(event, kind)]
        if found:
            return found


def test_code_that_holds_the_lock_of_its_interpreter_is_known_to_live(rows, tmp_path):
    """No thread can give signs of life meanwhile; the kernel's word stands in for them."""
    write_shards(rows, 1, tmp_path / "shards")
    os.mkfifo(tmp_path / "pipe")
    model = HoldsTheLock(tmp_path / "pipe")
    job = Job(model, Sparing(0), SendDraws(), str(tmp_path / "shards"), 1, 0)
    with ProcessEngine(job, 1, tmp_path / "logs") as engine:
        engine.start(0, 0)
        events(engine, WorkerJoined)
        engine.send(Task(0, (0,), 0, 0, 1))
        by_kernel = 0
        while by_kernel < 3:
            by_kernel = by_kernel + 1 if events(engine, Beat) == [Beat(0)] else 0
        with (tmp_path / "pipe").open("wb") as pipe:
            pipe.write(b"x")
        assert events(engine, Block)[0].first_draw == 0
