"""What user code starts in real workers ends with them, and no run waits for it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers.processes import MeanModel, descendants_of, ended, guards_of, templates_of, workers_of
from quorate.engines.processes import hosts as process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
SLEEP = ["sleep", "86399"]  # somebody else's would sleep for another time


def fork_and_sleep():
    """A child that is a copy of its worker, with all its open files."""
    if os.fork() == 0:
        while True:
            time.sleep(3600)


def fork_away():
    """A grandchild in a session of its own, whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp(SLEEP[0], SLEEP)  # noqa: S606 - our own words
        os._exit(0)
    os.wait()


WAYS = {
    "exec": lambda: subprocess.Popen(SLEEP),
    "session": lambda: subprocess.Popen(SLEEP, start_new_session=True),
    "fork": fork_and_sleep,
    "away": fork_away,
}


class Starter(MeanModel):
    """Starts a process in its first evaluation."""

    def __init__(self, way):
        self.way, self.has_started = way, False

    def log_likelihood(self, x, shard):
        if not self.has_started:
            self.has_started = True
            WAYS[self.way]()
        return super().log_likelihood(x, shard)


@pytest.fixture
def rows(seed):
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(60, 2))
    return {"z": z, "row": np.arange(60)}


def sample(model, rows, run, progress=False, **options):
    options = {"workers": 2, "scheme": "cmc", "draws": 200, "sampler": "ellipse", **options}
    return quorate.sample(model, rows, run_dir=run, progress=progress, check=False, **options)


class Watch:
    """Sees all processes of a run when there are draws, and may do something to them."""

    def __init__(self, after=50, act=lambda: None):
        self.after, self.act, self.seen = after, act, {}

    def __call__(self, progress):
        if not self.seen and progress.draws >= self.after:
            self.seen = {pid: os.pidfd_open(pid) for pid in descendants_of(os.getpid())}
            self.act()


@pytest.mark.parametrize(
    ("way", "is_forked"), [*((way, True) for way in WAYS), ("exec", False), ("fork", False)]
)
def test_what_user_code_starts_ends_with_the_run(way, is_forked, rows, tmp_path, monkeypatch):
    """An interpreter of its own has no subreaper, only a group."""
    if not is_forked:
        monkeypatch.setattr(process, "template_for", lambda log: None)
    watch = Watch()
    result = sample(Starter(way), rows, tmp_path / "run", watch)
    assert result.stopped == "done"
    assert len(watch.seen) >= (6 if is_forked else 4)  # two workers, and what they have started
    assert all(ended(pidfd) for pidfd in watch.seen.values())


@pytest.mark.parametrize("way", ["fork", "away"])
def test_what_user_code_starts_ends_with_its_worker(way, rows, tmp_path):
    """Also in the middle of a run: nothing of a worker that was killed lives on."""
    killed = []

    def kill():
        [worker] = workers_of(os.getpid())[:1]
        killed.extend(os.pidfd_open(pid) for pid in [worker, *descendants_of(worker)])
        os.kill(worker, signal.SIGKILL)

    alive = []

    def look(progress):
        watch(progress)
        if killed and not alive and any(note.what == "restarted" for _, note in progress.notes):
            alive.append([ended(os.dup(pidfd)) for pidfd in killed])

    watch = Watch(act=kill)
    result = sample(Starter(way), rows, tmp_path / "run", look, draws=20_000)
    assert result.stopped == "done"
    assert len(killed) >= 2
    assert alive == [[True] * len(killed)]


SCRIPT = """
import sys
sys.path[:0] = {path!r}
from test_left_behind import Starter, sample
import numpy as np
rows = {{"z": np.random.default_rng(0).normal(size=(60, 2)), "row": np.arange(60)}}
def tell(progress):
    if progress.draws >= 50:
        print(progress.draws, flush=True)
sample(Starter({way!r}), rows, {run!r}, tell, draws=10**8)
"""


@contextmanager
def running(way, folder):
    """The coordinator of a run that has draws, and whose user code has started processes."""
    here = Path(__file__).parent
    path = [str(here), str(here.parent)]
    script = SCRIPT.format(path=path, way=way, run=str(folder / "run"))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as coordinator:
        coordinator.stdout.readline()
        yield coordinator


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("way", ["fork", "away"])
def test_nothing_is_left_of_a_run_that_is_ended(way, number, tmp_path):
    with running(way, tmp_path) as coordinator:
        pids = descendants_of(coordinator.pid)
        assert len(pids) >= 6
        processes = [os.pidfd_open(pid) for pid in pids]
        coordinator.send_signal(number)
        coordinator.stdout.read()
    assert coordinator.returncode == (0 if number == signal.SIGTERM else -number)
    assert all(ended(one) for one in processes)


@pytest.mark.parametrize("also", [guards_of, templates_of])
def test_nothing_is_left_when_the_template_or_its_guard_is_killed_too(also, tmp_path):
    """Also a process in a session of its own, which the kernel gives to whoever is left."""
    with running("away", tmp_path) as coordinator:
        processes = [os.pidfd_open(pid) for pid in descendants_of(coordinator.pid)]
        os.kill(*also(coordinator.pid), signal.SIGKILL)
        coordinator.kill()
    assert len(processes) >= 6
    assert all(ended(one) for one in processes)


def test_the_end_does_not_wait_for_a_pipe_that_somebody_holds(rows, tmp_path):
    """Here the test itself holds the pipe: it cannot be ended."""
    held = []

    def hold():
        for worker in workers_of(os.getpid()):
            files = list(Path(f"/proc/{worker}/fd").iterdir())
            pipes = [fd for fd in files if "pipe:" in str(fd.readlink())]
            held.extend(os.open(fd, os.O_WRONLY) for fd in pipes if fd.lstat().st_mode & 0o200)

    watch = Watch(act=hold)
    result = sample(MeanModel(), rows, tmp_path / "run", watch)
    assert result.stopped == "done"
    assert len(held) == 2
    for pipe in held:
        os.close(pipe)


# ---------------------------------------------------------------- logs


class Talker(MeanModel):
    """Prints without end."""

    def log_likelihood(self, x, shard):
        sys.stdout.write("abcdefghijklmnopqrstuvwxyz\n" * 20_000)
        return super().log_likelihood(x, shard)


def test_logs_are_of_limited_size(rows, tmp_path):
    result = sample(Talker(), rows, tmp_path / "run", draws=100)
    assert result.stopped == "done"
    for log in (tmp_path / "run" / "logs").iterdir():
        assert log.stat().st_size <= 8 * 2**20
        # Lines that are written while a log is cut may come before the mark
        assert b"[quorate dropped what came before" in log.read_bytes()
        assert b"xyz\n" in log.read_bytes()[-100:]  # a worker may end within a line
