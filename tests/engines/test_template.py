"""Workers that are forked from a template, and what becomes of them without it."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers.processes import (
    PATIENCE,
    MeanModel,
    children_of,
    ended,
    guards_of,
    templates_of,
    workers_of,
)
from quorate.data.write import write_shards
from quorate.engines.processes import hosts as process
from quorate.engines.processes.engine import ProcessEngine
from quorate.engines.processes.template import Files, Template
from quorate.engines.workers.worker import Job
from quorate.protocol.messages import Beat, Block, Evaluate, Task, Values, WorkerJoined, WorkerLost
from quorate.protocol.schemes.cmc import SendDraws
from quorate.samplers import make_sampler

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")
N = 3


@pytest.fixture
def rows(rng):
    return {"z": rng.normal([1.0, -2.0], size=(60, 2))}


def engine_for(model, rows, folder, n_workers=N):
    write_shards(rows, n_workers, folder / "shards")
    side, sampler = SendDraws(), make_sampler("ellipse")
    job = Job(model, sampler, side, str(folder / "shards"), n_workers, 0)
    return ProcessEngine(job, n_workers, folder / "logs")


def started(engine, workers=range(N), attempt=0):
    """Start workers and wait until they have joined."""
    for worker in workers:
        engine.start(worker, attempt)
    missing = set(workers)
    while missing:
        for event in engine.poll(60.0):
            assert isinstance(event, WorkerJoined | Beat)
            if isinstance(event, WorkerJoined):
                missing.remove(event.worker)
    return [engine.pid(worker) for worker in workers]


def lost(engine, n=1):
    """Words for the next `n` workers that are lost, by worker."""
    words = {}
    while len(words) < n:
        words |= {e.worker: e.why for e in engine.poll(60.0) if isinstance(e, WorkerLost)}
    return words


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def zombies_below(pid):
    states = {child: Path(f"/proc/{child}/stat").read_text() for child in children_of(pid)}
    return [child for child, state in states.items() if state.rpartition(")")[2].split()[0] == "Z"]


def test_workers_are_forked_each_in_a_session_of_its_own(rows, tmp_path):
    with engine_for(MeanModel(), rows, tmp_path) as engine:
        pids = started(engine)
        [template] = templates_of(os.getpid())
        assert [parent_of(pid) for pid in pids] == [template] * N
        assert [os.getsid(pid) for pid in [template, *pids]] == [template, *pids]
        processes = [os.pidfd_open(pid) for pid in [template, *pids]]
    assert all(ended(one) for one in processes)
    assert not zombies_below(os.getpid())
    assert sorted(log.name for log in (tmp_path / "logs").iterdir()) == [
        f"process-{k}.log" for k in range(N)
    ]


def test_a_worker_has_no_file_of_the_others(rows, tmp_path):
    """It would keep them alive, or hide that they have ended."""
    with engine_for(MeanModel(), rows, tmp_path) as engine:
        pids = started(engine)
        open_in = [{str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()} for pid in pids]
    channels = [{name for name in names if "pipe:" in name} for names in open_in]
    assert [len(names) for names in channels] == [2] * N
    assert len(set.union(*channels)) == 2 * N
    assert not any("socket:" in name for names in open_in for name in names)


def test_a_killed_worker_is_told_of_reaped_and_started_again(rows, tmp_path):
    with engine_for(MeanModel(), rows, tmp_path) as engine:
        pids = started(engine)
        [template] = templates_of(os.getpid())
        os.kill(pids[1], signal.SIGKILL)
        words = lost(engine)
        assert list(words) == [1]
        assert words[1].startswith("was killed (signal 9)")
        assert sorted(children_of(template)) == sorted([pids[0], pids[2]])
        [again] = started(engine, [1], attempt=1)
        assert parent_of(again) == template
        assert again != pids[1]


class Ending(MeanModel):
    """Ends its process in the way that it is told."""

    def __init__(self, how):
        self.how = how

    def log_likelihood(self, x, shard):
        if self.how < 0:
            os.kill(os.getpid(), -self.how)
        os._exit(self.how)


@pytest.mark.parametrize("is_forked", [True, False])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        (3, "ended with exit code 3"),
        (-signal.SIGSEGV, "ended by signal 11"),
        (137, "was killed (signal 9)"),
        (-signal.SIGKILL, "was killed (signal 9)"),
    ],
)
def test_how_a_worker_ended(how, words, is_forked, rows, tmp_path, monkeypatch):
    if not is_forked:
        monkeypatch.setattr(process, "template_for", lambda log: None)
    with engine_for(Ending(how), rows, tmp_path, 1) as engine:
        [pid] = started(engine, [0])
        assert (parent_of(pid) != os.getpid()) == is_forked
        engine.send(Task(0, (0,), 0, 0, 5))
        assert lost(engine)[0].startswith(words)


def test_kill_of_a_worker_that_has_stopped(rows, tmp_path):
    with engine_for(MeanModel(), rows, tmp_path) as engine:
        pids = started(engine)
        stopped = os.pidfd_open(pids[0])
        os.kill(pids[0], signal.SIGSTOP)
        engine.kill(0)
        assert ended(stopped)
        assert engine.pid(0) is None
        assert started(engine, [0], attempt=1) != [pids[0]]


def test_a_child_that_has_ended_is_not_killed_by_its_number(tmp_path):
    log = tmp_path / "log"
    template = Template(log)
    with log.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        child = template.fork(Files(nothing.fileno(), file.fileno(), file.fileno()))
    # `wait` gives up after a few seconds: on a busy machine the child may need longer to end
    assert select.select([child._status], [], [], PATIENCE)[0]
    assert child.wait() == 0  # its input has ended
    child.kill()
    template.close()
    assert log.read_bytes() == b""


# ---------------------------------------------------------------- without a template


@pytest.mark.parametrize("killed", [guards_of, templates_of])
def test_workers_end_with_template_or_guard_and_a_new_template_forks_others(killed, rows, tmp_path):
    with engine_for(MeanModel(), rows, tmp_path) as engine:
        started(engine)
        before = templates_of(os.getpid())
        os.kill(*killed(os.getpid()), signal.SIGKILL)
        words = lost(engine, N)
        assert all(words[k].startswith("was killed (signal 9)") for k in range(N))
        pids = started(engine, attempt=1)
        [template] = templates_of(os.getpid())
        assert template not in before
        assert [parent_of(pid) for pid in pids] == [template] * N
    assert not zombies_below(os.getpid())


def test_a_template_that_hangs_is_given_up_with_the_worker_that_waits_for_it(rows, tmp_path):
    with engine_for(MeanModel(), rows, tmp_path) as engine:
        started(engine, [0, 1])
        [template] = templates_of(os.getpid())
        os.kill(template, signal.SIGSTOP)
        engine.start(2, 0)
        while Beat(2, is_stopped=True) not in engine.poll(0.1):
            pass
        assert engine.pid(2) is None
        engine.kill(2)
        assert set(lost(engine, 2)) == {0, 1}
        pids = started(engine, attempt=1)
        [another] = templates_of(os.getpid())
        assert another != template
        assert [parent_of(pid) for pid in pids] == [another] * N


def test_a_template_that_starts_threads_forks_nothing(rows, tmp_path, monkeypatch):
    """Forks of a process with threads may hang: workers are interpreters then."""
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with engine_for(MeanModel(), rows, tmp_path) as engine:
        pids = started(engine)
        assert [parent_of(pid) for pid in pids] == [os.getpid()] * N
    assert "2 threads" in (tmp_path / "logs" / "process-0.log").read_text()


class KillTemplate:
    """Kills the template once, when there are draws."""

    def __init__(self):
        self.killed = []

    def __call__(self, progress):
        if not self.killed and progress.draws >= 50:
            self.killed = templates_of(os.getpid())
            for pid in self.killed:
                os.kill(pid, signal.SIGKILL)


def test_a_run_outlives_its_template(rows, tmp_path):
    options = {"workers": N, "draws": 4000, "sampler": "ellipse", "scheme": "cmc", "check": False}
    attack = KillTemplate()
    result = quorate.sample(MeanModel(), rows, run_dir=tmp_path / "a", progress=attack, **options)
    whole = quorate.sample(MeanModel(), rows, run_dir=tmp_path / "b", progress=False, **options)
    assert len(attack.killed) == 1
    assert result.stopped == "done"  # a worker that had sent all its draws may count as lost
    np.testing.assert_array_equal(result.unconstrained, whole.unconstrained)


class StopTemplate:
    """Stops the template once, when there are draws, and kills a worker that is still needed."""

    def __init__(self):
        self.is_done = False

    def __call__(self, progress):
        if not self.is_done and progress.draws >= 50:
            self.is_done = True
            [template] = templates_of(os.getpid())
            os.kill(template, signal.SIGSTOP)
            behind = min(progress.workers, key=lambda worker: worker.draws)
            os.kill(behind.pid, signal.SIGKILL)


def test_a_template_that_is_stopped_is_noticed_within_ten_seconds(rows, tmp_path):
    """The draws of a worker do not fit its pipe, so the one that is killed has more to send."""
    options = {"workers": N, "draws": 20_000, "sampler": "ellipse", "scheme": "cmc", "check": False}
    attack, run = StopTemplate(), tmp_path / "a"
    result = quorate.sample(MeanModel(), rows, run_dir=run, progress=attack, **options)
    whole = quorate.sample(MeanModel(), rows, run_dir=tmp_path / "b", progress=False, **options)
    [silent] = [note for _, note in result.timeline.notes if note.what == "silent"]
    said = re.match(r"its process is stopped, no sign of life for (\S+) s", silent.details)
    assert float(said[1]) < 10
    np.testing.assert_array_equal(result.unconstrained, whole.unconstrained)


# ---------------------------------------------------------------- the end of the coordinator

SCRIPT = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
import numpy as np
from test_template import engine_for, started
from helpers.processes import MeanModel, guards_of, templates_of
import json, os
rows = {{"z": np.random.default_rng(0).normal(size=(60, 2))}}
engine = engine_for(MeanModel(), rows, Path({folder!r}))
pids = started(engine)
print(json.dumps(guards_of(os.getpid()) + templates_of(os.getpid()) + pids), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGSTOP])
def test_nothing_is_left_of_a_coordinator_that_was_killed(number, tmp_path):
    """Also if template and workers are stopped, so that they cannot see their input end."""
    here = Path(__file__).parent
    script = SCRIPT.format(path=[str(here), str(here.parent)], folder=str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as coordinator:
        pids = json.loads(coordinator.stdout.readline())
        assert sorted(pids[2:]) == sorted(workers_of(coordinator.pid))
        processes = [os.pidfd_open(pid) for pid in pids]
        for pid in pids:
            os.kill(pid, number)
        coordinator.kill()
    assert len(processes) == N + 2
    assert all(ended(one) for one in processes)


# ---------------------------------------------------------------- forks do not draw alike


class NoiseSampler:
    """Draws from numpy's global generator, as a user's own sampler may."""

    name, determinism = "noise", "none"

    def warm_up(self, target, stream):
        return {"index": np.array(0)}

    def draw(self, target, state, stream, n):
        return np.random.normal(size=(n, target.dim)), {"index": state["index"] + n}  # noqa: NPY002


def test_global_generators_of_workers_differ(rows, tmp_path):
    write_shards(rows, 2, tmp_path / "shards")
    job = Job(MeanModel(), NoiseSampler(), SendDraws(), str(tmp_path / "shards"), 2, 0)
    with ProcessEngine(job, 2, tmp_path / "logs") as engine:
        started(engine, range(2))
        for worker in range(2):
            engine.send(Task(worker, (worker,), 0, 0, 5))
        blocks = {}
        while len(blocks) < 2:
            blocks |= {e.task.worker: e for e in engine.poll(60.0) if isinstance(e, Block)}
    assert not np.isin(blocks[0].payload, blocks[1].payload).any()


def test_a_template_killed_before_its_first_fork_is_replaced(tmp_path):
    template = Template(tmp_path / "log")
    try:
        os.kill(template._guard.pid, signal.SIGKILL)
        template._guard.wait()
        assert template.is_replaced()
        assert not template.is_replaced()  # the new one lives
    finally:
        template.close()


def test_a_process_that_does_not_read_keeps_nobody_waiting(rows, tmp_path):
    """More than its pipe holds is on the way to a process that is stopped, and nothing is lost."""
    n_many = 300_000
    points = np.linspace(-1, 1, 2 * n_many).reshape(n_many, 2)

    def answers(engine, n):
        found = {}
        while len(found) < n:
            found |= {e.task.worker: e for e in engine.poll(60.0) if isinstance(e, Values)}
        return found

    with engine_for(MeanModel(), rows, tmp_path, 2) as engine:
        stopped, _ = started(engine, range(2))
        os.kill(stopped, signal.SIGSTOP)
        for question in range(2):
            engine.send(Evaluate(0, (0,), 0, question, 0, points))
        engine.send(Evaluate(1, (1,), 0, 0, 0, points[:10]))
        assert set(answers(engine, 1)) == {1}
        os.kill(stopped, signal.SIGCONT)
        first = answers(engine, 1)[0]
        second = answers(engine, 1)[0]
    assert (first.task.question, second.task.question) == (0, 1)
    assert first.size == n_many
    np.testing.assert_array_equal(first.values, second.values)
