"""Runs one after another, each with something done to it: `make soak`, for half an hour.

Every round starts a small run of a random scheme, method and number of processes, attacks it, and
resumes it until it is done. Then it looks at the answer, and at what the round has left behind.

What must hold:

- The draws of exact runs, and of merges by `cmc` and `coded`, are those of an undisturbed run, bit
  for bit. The means of other merges are within 6 standard errors of the posterior in closed form:
  a right answer fails in one round of 10⁸.
- No process of the run is alive, no file lies outside its folder, no descriptor is left open.
- The memory of the coordinator, which lives through all rounds of this process, is flat.
"""

import argparse
import gc
import hashlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import quorate
from quorate.errors import LostShardError, QuorateError

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.processes import MeanModel, workers_of

HERE = str(Path(__file__).parent)
DRAWS, N_ROWS, WORKERS = 2000, 4000, 4
SCHEMES = ("cmc", "grouped", "coded", "adaptive")
ATTACKS = ("nothing", "kill", "stop", "slow", "dead", "coordinator", "full disk")
FLAT = 0.10  # growth of the coordinator's memory that is still flat
WARM = 0.2  # share of the time before memory is compared
PATIENCE = 120.0  # seconds after which an attacked process has hung
SMALL, LARGE = "600k", "64m"  # sizes of the disk that is full, and of that disk later
SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from soak import begin_or_resume, show
begin_or_resume({run!r}, {options!r}, show)
"""


def rows():
    """Rows whose posterior under `MeanModel` is known."""
    z = np.random.default_rng(7).normal([1.0, -2.0], size=(N_ROWS, 2))
    return {"z": z, "row": np.arange(N_ROWS)}


def show(progress):
    """One line for each look at a run, for who watches it from outside."""
    print(progress.draws, flush=True)


def begin_or_resume(run, options, progress):
    """The run in a folder: begun, or resumed if it has a journal."""
    told = {"progress": progress, "every": 0.05, "check": False}
    if (Path(run) / "journal.sqlite").exists():
        return quorate.resume(run, **told)
    engine = quorate.Processes(options["processes"])
    others = {name: value for name, value in options.items() if name != "processes"}
    return quorate.sample(MeanModel(), rows(), run_dir=run, engine=engine, **told, **others)


# ---------------------------------------------------------------- attacks


@dataclass
class Attacker:
    """Does something to the workers of this process while a run tells of its progress."""

    kind: str
    rng: np.random.Generator
    n_done: int = 0

    def __call__(self, progress):
        if self.kind not in ("kill", "stop") or self.n_done >= 2 or self.rng.random() < 0.5:
            return
        with suppress(OSError):
            pids = workers_of(os.getpid())
            if pids:
                pid = int(self.rng.choice(pids))
                os.kill(pid, signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)
                self.n_done += 1


def in_this_process(run, options, attack, rng):
    """A run whose coordinator is this process."""
    faults = {"slow": "slow:1x10", "dead": "dead:1@2"}.get(attack)
    if faults is not None:
        options = {**options, "faults": faults}
    can_be_lost = options["scheme"] == "cmc" and attack == "dead"  # there is no other holder
    with suppress(LostShardError) if can_be_lost else nullcontext():
        begin_or_resume(run, options, Attacker(attack, rng))


def with_a_killed_coordinator(run, options, rng):
    """A run in another process, which is killed at a random look, and resumed here."""
    script = SCRIPT.format(here=HERE, run=str(run), options=options)
    command = [sys.executable, "-c", script]
    sitting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    last = int(rng.integers(1, 6))
    for look, _ in enumerate(sitting.stdout):
        if look >= last:
            break
    workers = [os.pidfd_open(pid) for pid in _living(sitting.pid)]
    sitting.kill()
    sitting.communicate()
    _await(workers)
    begin_or_resume(run, options, False)


def with_a_full_disk(run, options):
    """A run whose disk is full before it ends; resumed when there is room."""
    run.mkdir()
    _as_root("mount", "-t", "tmpfs", "-o", f"size={SMALL}", "soak", run)
    try:
        try:
            begin_or_resume(run / "run", options, False)
            told = "it fitted"
        except (QuorateError, OSError) as error:
            told = type(error).__name__
        _as_root("mount", "-o", f"remount,size={LARGE}", run)
        result = begin_or_resume(run / "run", options, False)
        return result, told
    finally:
        _as_root("umount", run)


def _as_root(program, *arguments):
    subprocess.run([shutil.which(program), *map(str, arguments)], check=True)  # noqa: S603


def _living(pid):
    with suppress(OSError):
        return workers_of(pid)
    return []


def _await(descriptors):
    for descriptor in descriptors:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(PATIENCE * 1000):
            raise AssertionError("a worker outlived its coordinator")
        os.close(descriptor)


# ---------------------------------------------------------------- what must hold


def digest(result):
    """Of all draws."""
    return hashlib.sha256(np.ascontiguousarray(result.unconstrained).tobytes()).hexdigest()


def is_right(result, options, undisturbed):
    """Whether the answer is the one of an undisturbed run, or of the posterior."""
    if result.stopped != "done" or result.n_draws != DRAWS:
        return False
    if options["method"] == "exact" or options["scheme"] in ("cmc", "coded"):
        return digest(result) == undisturbed
    z = rows()["z"]
    precision = len(z) + 0.01
    mean, sd = z.sum(axis=0) / precision, precision**-0.5
    draws = result.unconstrained
    return bool(np.all(np.abs(draws.mean(axis=0) - mean) < 6 * sd / np.sqrt(DRAWS / 2)))


def memory():
    """Megabytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def left_behind():
    """Our children, open descriptors, and what lies in the folder for temporary files."""
    tasks = Path("/proc/self/task").iterdir()
    children = [pid for task in tasks for pid in (task / "children").read_text().split()]
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return children, descriptors, list(Path(tempfile.gettempdir()).iterdir())


@contextmanager
def a_folder():
    """For one run; removed with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        yield Path(folder)


# ---------------------------------------------------------------- the soak


class Soak:
    """Rounds until the time is over, and what was found."""

    def __init__(self, minutes, seed):
        self.rng = np.random.default_rng(seed)
        self.seconds = 60 * minutes
        self.rounds, self.wrong, self.told = Counter(), [], Counter()
        self.sizes = []  # (seconds, megabytes)
        self.undisturbed = {}
        self.attacks = [a for a in ATTACKS if a != "full disk" or os.geteuid() == 0]

    def options(self):
        """Of a random run."""
        scheme = str(self.rng.choice(SCHEMES))
        method = str(self.rng.choice(["exact", "merge"]))
        options = {"scheme": scheme, "method": method, "workers": WORKERS, "draws": DRAWS}
        options["processes"] = int(self.rng.choice([2, WORKERS]))
        return options if method == "exact" else {**options, "sampler": "ellipse"}

    def known(self, options):
        """The digest of an undisturbed run with these options."""
        key = (options["scheme"], options["method"])
        if key not in self.undisturbed:
            with a_folder() as folder:
                plain = begin_or_resume(folder / "run", options, False)
            self.undisturbed[key] = digest(plain)
        return self.undisturbed[key]

    def round(self, options, attack):
        """One run, attacked; whether its answer is right."""
        undisturbed = self.known(options)
        with a_folder() as folder:
            run = folder / "run"
            if attack == "full disk":
                result, told = with_a_full_disk(run, options)
                self.told[told] += 1
            elif attack == "coordinator":
                with_a_killed_coordinator(run, options, self.rng)
                result = begin_or_resume(run, options, False)
            else:
                in_this_process(run, options, attack, self.rng)
                result = begin_or_resume(run, options, False)
            return is_right(result, options, undisturbed)

    def run(self):
        """All rounds."""
        start = time.monotonic()
        before = left_behind()
        while (now := time.monotonic() - start) < self.seconds:
            options, attack = self.options(), str(self.rng.choice(self.attacks))
            try:
                right = self.round(options, attack)
                why = "wrong answer"
            except Exception as error:
                right, why = False, f"{type(error).__name__}: {error}"
            self.rounds[attack] += 1
            shown = f"{options['scheme']}, {options['method']}, {attack}"
            if not right:
                self.wrong.append(f"{shown}: {why}")
            self.sizes.append((now, memory()))
            self.tell(now, shown, right)
        return self.summary(before)

    def tell(self, now, shown, right):
        size = self.sizes[-1][1]
        word = "right" if right else f"WRONG: {self.wrong[-1]}"
        print(f"{now:7.1f} s  {size:6.1f} MB  {shown}: {word}", flush=True)

    def summary(self, before):
        """What was found in a few lines; whether all is well."""
        children, descriptors, files = left_behind()
        early = [size for now, size in self.sizes if now >= WARM * self.seconds]
        third = max(1, len(early) // 3)
        first, last = np.median(early[:third]), np.median(early[-third:])
        growth = last / first - 1
        lines = [
            f"{sum(self.rounds.values())} runs in {self.seconds / 60:.0f} minutes: "
            + ", ".join(f"{kind} {n}" for kind, n in sorted(self.rounds.items())),
            f"wrong or lost answers: {len(self.wrong)}",
            *(f"  {line}" for line in self.wrong),
            f"full disks ended as: {dict(self.told)}",
            f"memory of the coordinator: {first:.0f} MB, then {last:.0f} MB ({growth:+.1%})",
            f"processes left: {len(children)}, descriptors: {before[1]} before, "
            f"{descriptors} after, files left: {len(files)}",
        ]
        print("\n".join(lines))
        is_clean = not children and descriptors <= before[1] + 2 and not files
        return not self.wrong and growth < FLAT and is_clean


def main():
    """For as many minutes as asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # of the workers, too
        is_well = Soak(asked.minutes, seed).run()
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
