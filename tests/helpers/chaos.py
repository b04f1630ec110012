"""Runs under seeded chaos: workers killed, stopped, garbled; the coordinator killed."""

import os
import select
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

import quorate
from helpers.processes import (
    MeanModel,
    command,
    descendants_of,
    ended,
    guards_of,
    templates_of,
    workers_of,
)
from quorate.journal import BlockRecord, JournalReader

ROUNDS = int(os.environ.get("QUORATE_CHAOS_ROUNDS", "2"))  # sittings that are attacked
DRAWS = 2_000 * ROUNDS
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import quorate
from helpers.chaos import rows
from helpers.processes import NastyModel
def tell(progress):
    print(progress.draws, flush=True)
if {again!r}:
    quorate.resume({run!r}, progress=tell)
else:
    quorate.sample(NastyModel(), rows({seed}), run_dir={run!r}, progress=tell, **{options!r})
"""


class Sitting:
    """One process that runs, or goes on with, a run; and all that can be done to it."""

    rate = 0.3  # of attacks, whenever the run tells how far it is

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
        self.has_lost_template = False  # or its guard: each ends everything without the other

    def looks(self):
        """Every time that the run tells how far it is."""
        for line in self.process.stdout:
            if line.strip().isdigit():  # Ray has something to say about lost actors, too
                yield int(line)

    def processes(self):
        """The template, its guard and its workers."""
        try:
            pids = [*self.templates(), *workers_of(self.process.pid)]
        except (FileNotFoundError, ProcessLookupError):
            return []  # the run is over, or one has just ended
        self.watch([*pids, *descendants_of(self.process.pid)])
        return pids

    def templates(self):
        """The template and its guard."""
        return [*guards_of(self.process.pid), *templates_of(self.process.pid)]

    def watch(self, pids):
        """Remember processes, so that their end can be told."""
        for pid in set(pids) - set(self.seen):
            with suppress(ProcessLookupError):  # it has gone by itself
                self.seen[pid] = os.pidfd_open(pid)

    def attack(self, rng):
        pids = [pid for pid in self.processes() if is_set_up(pid)]
        attacks = [kill, stop, garble, slow]
        if not pids:
            return
        pid, attack = int(rng.choice(pids)), attacks[rng.integers(len(attacks))]
        if pid not in self.templates():
            attack(pid)
        elif not self.has_lost_template:
            self.has_lost_template = True
            kill(pid)  # nobody misses one that is stopped for a minute

    def end(self):
        self.processes()
        self.process.kill()
        self.process.communicate()
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


def sittings(run, seed, options, rng, kind=Sitting, rounds=ROUNDS):
    """Attack a run until it is done; yields after every sitting that has left a journal."""
    for sitting in range(rounds + 1):  # the last one is left alone
        process = kind(run, seed, options, again=(run / "journal.sqlite").exists())
        last_look = rng.integers(2, 12) if sitting < rounds else 10**9
        for look, _ in enumerate(process.looks()):
            process.processes()
            if sitting < rounds and rng.random() < kind.rate:
                process.attack(rng)
            if look >= last_look:
                break  # kill -9 of the coordinator
        if sitting == rounds:
            assert process.process.wait() == 0
        process.end()
        if (run / "journal.sqlite").exists():
            yield


def undisturbed(seed, options):
    """The draws of a run with the same model in a better mood."""
    return quorate.sample(MeanModel(), rows(seed), seed=1, progress=False, **options).unconstrained


def rows(seed):
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(4000, 2))
    return {"z": z, "row": np.arange(4000)}


class RaySitting(Sitting):
    """One process that starts a Ray cluster for its run."""

    rate = 0.5

    def looks(self):
        """Every time that the run tells how far it is, once its actors have begun to draw."""
        looks = super().looks()
        before = next(looks, 0)  # draws of earlier sittings
        return (n_draws for n_draws in looks if n_draws > before)

    def processes(self):
        """The actors that workers live in."""
        self.watch(descendants_of(self.process.pid))
        return [pid for pid, pidfd in self.seen.items() if is_alive(pidfd) and is_actor(pid)]

    def attack(self, rng):
        pids, attacks = self.processes(), [kill, stop, slow]
        if pids:
            attacks[rng.integers(len(attacks))](int(rng.choice(pids)))


def is_alive(pidfd):
    return not select.select([pidfd], [], [], 0)[0]


def is_actor(pid):
    with suppress(FileNotFoundError, ProcessLookupError):
        return command(pid).startswith("ray::Host")
    return False
