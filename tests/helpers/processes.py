"""Models that worker processes can import, and processes that tests watch."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

PATIENCE = 120.0  # seconds after which a test that waits has failed


class MeanModel:
    """z ~ N(θ, 1) in two dimensions, θ ~ N(0, 100): a posterior in closed form."""

    dim = 2
    names = ("a", "b")

    def initial(self):
        return np.zeros(2)

    def log_prior(self, x):
        return float(-0.5 * np.sum(x**2) / 100)

    def log_likelihood(self, x, shard):
        return float(-0.5 * np.sum((shard["z"] - x) ** 2))

    def constrain(self, draws):
        return {"theta": draws}


class TalkativeModel(MeanModel):
    """User code that prints must not get between frames."""

    def log_likelihood(self, x, shard):
        print("hello", flush=True)  # noqa: T201
        return super().log_likelihood(x, shard)


class BananaModel(MeanModel):
    """A shape that is wrong for `ellipse`, which says so in the worker."""

    def log_likelihood(self, x, shard):
        return float(-0.5 * x[0] ** 2 - 50 * (x[1] - 3 * x[0] ** 2) ** 2)


class LockedModel(MeanModel):
    """Cannot be sent to another process."""

    def __init__(self):
        self.lock = threading.Lock()


class BrokenModel(MeanModel):
    """Raises on the shard that holds row 7."""

    def log_likelihood(self, x, shard):
        if 7 in shard["row"]:
            raise ZeroDivisionError("a row that cannot be")
        return super().log_likelihood(x, shard)


class NastyModel(MeanModel):
    """User code that prints without end, starts processes, and raises now and then.

    Errors are so far apart that no worker is retired for them.
    """

    is_calm, n = False, 0

    def log_likelihood(self, x, shard):
        self.n += 1
        if not self.is_calm:
            self.misbehave()
        return super().log_likelihood(x, shard)

    def misbehave(self):
        sys.stdout.write("all work and no play\n" * 10)
        if self.n == 50:
            subprocess.Popen(["/bin/sleep", "600"])
        if self.n == 60 and os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        if self.n == 3000:
            if os.getpid() % 2:
                raise OSError("the disk is away")
            np.empty(1 << 50)  # more memory than any machine has


@contextmanager
def unprivileged():
    """Not as root, whom no permission stops."""
    if os.geteuid():
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def descendants_of(pid):
    """Processes below one, by the parents that the kernel names."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(") ")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def children_of(pid):
    """Processes that any thread of a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def guards_of(pid):
    """Processes that a coordinator has started to guard its templates."""
    return [child for child in children_of(pid) if "serve(" in command(child)]


def templates_of(pid):
    """Processes that a coordinator has workers forked by."""
    return [template for guard in guards_of(pid) for template in children_of(guard)]


def workers_of(pid):
    """Workers of a coordinator, which its template or itself has started.

    A guard that begins or ends is none, though its command does not say yet, or no longer, what it
    is.
    """
    forked = [worker for template in templates_of(pid) for worker in children_of(template)]
    programs = {child: command(child) for child in children_of(pid)}
    own = [child for child, its in programs.items() if "main()" in its and "serve(" not in its]
    return own + forked


def command(pid):
    """The program that a process runs; empty for a zombie."""
    return Path(f"/proc/{pid}/cmdline").read_text()


def ended(pidfd):
    """Wait for a process, which need not be ours, to end."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    events = poll.poll(PATIENCE * 1000)
    os.close(pidfd)
    return bool(events)


class KillsAWorker:
    """Kills a worker when the first pieces of local work are there.

    Of two pieces, the second may come with the first: then a worker is killed when it has begun.
    """

    def __init__(self):
        self.done = False

    def __call__(self, n_done, n_all):
        if self.done or n_done == n_all or (n_done == 0 and n_all > 2):
            return
        workers = workers_of(os.getpid())
        if workers:
            self.done = True
            os.kill(workers[0], signal.SIGKILL)


def killed_when_it_speaks(script):
    """Run a script, kill -9 it when it prints its first line, and return that line.

    The script may import what tests do. All processes that it has started end with it.
    """
    script = f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{script}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:
        line = process.stdout.readline()
        pids = descendants_of(process.pid)
        processes = [os.pidfd_open(pid) for pid in pids]
        process.kill()
    assert all(ended(process) for process in processes)
    return line.strip()
