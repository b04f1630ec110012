"""Real processes under seeded chaos: workers killed, stopped, garbled; the coordinator killed.

User code prints without end, starts processes, raises now and then and runs out of memory.
After every run: no accepted draw was lost or doubled, every draw equals its keyed re-computation,
nothing is left running, and the journal can be read.
"""

import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import quorate
from helpers.processes import descendants_of, ended, templates_of, workers_of
from quorate.engines.packing import unpacked
from quorate.engines.worker import Job, Worker
from quorate.journal import BlockRecord, ChainKey, JournalReader, TaskGiven
from quorate.protocol.messages import Task
from quorate.run.settings import Settings

ROUNDS = int(os.environ.get("QUORATE_CHAOS_ROUNDS", "2"))  # sittings that are attacked
DRAWS = 2_000 * ROUNDS
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np, quorate
from helpers.processes import NastyModel
def tell(progress):
    print(progress.draws, flush=True)
if {again!r}:
    quorate.resume({run!r}, progress=tell)
else:
    z = np.random.default_rng({seed}).normal([1.0, -2.0], size=(4000, 2))
    rows = {{"z": z, "row": np.arange(4000)}}
    quorate.sample(NastyModel(), rows, run_dir={run!r}, progress=tell, **{options!r})
"""


class Sitting:
    """One process that runs, or goes on with, a run; and all that can be done to it."""

    def __init__(self, run, seed, options, again):
        tests = str(Path(__file__).parents[1])
        script = SCRIPT.format(tests=tests, run=str(run), seed=seed, options=options, again=again)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.seen = {}
        self.has_lost_template = False

    def looks(self):
        """Every time that the run tells how far it is."""
        for line in self.process.stdout:
            yield int(line)

    def processes(self):
        """The template and its workers."""
        try:
            pids = templates_of(self.process.pid) + workers_of(self.process.pid)
        except (FileNotFoundError, ProcessLookupError):
            return []  # the run is over, or one has just ended
        for pid in {*pids, *descendants_of(self.process.pid)} - set(self.seen):
            with suppress(ProcessLookupError):  # it has gone by itself
                self.seen[pid] = os.pidfd_open(pid)
        return pids

    def attack(self, rng):
        pids = [pid for pid in self.processes() if is_set_up(pid)]
        attacks = [kill, stop, garble, slow]
        if pids:
            pid, attack = int(rng.choice(pids)), attacks[rng.integers(len(attacks))]
            is_template = pid in templates_of(self.process.pid)
            self.has_lost_template |= is_template
            (kill if is_template else attack)(pid)  # nobody misses one that is stopped for a minute

    def end(self):
        self.processes()
        self.process.kill()
        self.process.communicate()
        if self.has_lost_template:  # nobody was left to end what user code has started
            for pidfd in self.seen.values():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        assert all(ended(pidfd) for pidfd in self.seen.values())


def is_set_up(pid):
    """Whether a process has told the kernel to end it with its parent: the first thing it does.

    One that is stopped before that, in the very moment of its start, stays. A worker that was
    forked opens a session right afterwards.
    """
    try:
        return os.getsid(pid) == pid and "numpy" in Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid):
    signalled(pid, signal.SIGKILL)


def stop(pid):
    signalled(pid, signal.SIGSTOP)


def slow(pid):
    """Stopped, and gone on at the next chance: whoever is stopped does."""
    signalled(pid, signal.SIGSTOP)
    signalled(pid, signal.SIGCONT)


def signalled(pid, number):
    with suppress(ProcessLookupError):  # it has gone by itself
        os.kill(pid, number)


def garble(pid):
    """Write nonsense into the pipe that a worker sends its frames through."""
    folder = Path(f"/proc/{pid}/fd")
    with suppress(OSError):  # it has gone by itself, or who would read it has
        for fd in folder.iterdir():
            if "pipe:" in str(fd.readlink()) and fd.lstat().st_mode & stat.S_IWUSR:
                pipe = os.open(fd, os.O_WRONLY | os.O_NONBLOCK)
                with os.fdopen(pipe, "wb", buffering=0) as file:
                    file.write(b"\xfe" * 4096)


def blocks_of(run):
    """All draws in the journal, by chain; each draw is there once."""
    chains = {}
    with JournalReader(run) as reader:
        for record in reader.records():
            if isinstance(record, BlockRecord):
                known = chains.setdefault(record.key, [])
                assert record.first_draw == sum(map(len, known))
                known.append(record.payload)
        assert not reader.dropped
    return {key: np.concatenate(payloads) for key, payloads in chains.items()}


def warm_starts(run):
    """Chains that began where another one stood, in the adaptive scheme."""
    with JournalReader(run) as reader:
        tasks = [record for record in reader.records() if isinstance(record, TaskGiven)]
    return {
        ChainKey(task.worker, task.shards, task.chain)
        for task in tasks
        if task.with_state and not task.first_draw
    }


def recomputed(run, key, n):
    """The draws of a chain, computed by nobody else than us."""
    things = unpacked((run / "model.pkl").read_bytes())
    things["model"].is_calm = True
    with JournalReader(run) as reader:
        settings = Settings.from_json(reader.configuration()["settings"])
    side = settings.make_scheme(things["model"].dim).worker_side
    folder = str(run / "shards")
    job = Job(things["model"], things["sampler"], side, folder, settings.workers, settings.seed)
    blocks = Worker(job, {}).blocks(Task(key.worker, key.shards, key.chain, 0, n))
    return np.concatenate([block.payload for block in blocks])


@pytest.mark.parametrize(
    ("scheme", "workers"), [("cmc", 2), ("grouped", 4), ("coded", 4), ("adaptive", 3)]
)
def test_chaos(scheme, workers, tmp_path, seed):
    rng = np.random.default_rng([seed, workers])
    run = tmp_path / "run"
    options = {"scheme": scheme, "workers": workers, "draws": DRAWS, "sampler": "ellipse"}
    earlier = {}
    for sitting in range(ROUNDS + 1):  # the last one is left alone
        process = Sitting(run, seed, options, again=(run / "journal.sqlite").exists())
        last_look = rng.integers(2, 12) if sitting < ROUNDS else 10**9
        for look, _ in enumerate(process.looks()):
            process.processes()
            if sitting < ROUNDS and rng.random() < 0.3:
                process.attack(rng)
            if look >= last_look:
                break  # kill -9 of the coordinator
        if sitting == ROUNDS:
            assert process.process.wait() == 0
        process.end()
        if (run / "journal.sqlite").exists():
            now = blocks_of(run)
            for key, draws in earlier.items():
                np.testing.assert_array_equal(now[key][: len(draws)], draws)
            earlier = now
    result = quorate.resume(run, progress=False)
    assert result.stopped == "done"
    assert result.n_draws == DRAWS
    cold = sorted(set(earlier) - warm_starts(run))
    key = cold[rng.integers(len(cold))]
    np.testing.assert_array_equal(recomputed(run, key, len(earlier[key])), earlier[key])
