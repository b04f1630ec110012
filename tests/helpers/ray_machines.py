"""Ray on machines of `helpers.machines`, and runs of `quorate` on them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from helpers.machines import OWN, Machine, address_of
from helpers.processes import PATIENCE
from quorate.errors import QuorateError
from quorate.run.history import History

ROOT = Path(__file__).parents[2]
PORT = 6379
_BIN = Path(sys.executable).parent
_TRIES = 3  # Ray gives up after 30 seconds, which a busy machine may need
_SMALL = ("--num-cpus=2", "--object-store-memory=100000000")


def environment() -> dict[str, str]:
    """Environment of Ray and of quorate on the machines."""
    ours = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_TMPDIR": str(OWN),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    return {**os.environ, **ours}


def start_ray(machine: Machine, head: Machine) -> None:
    """Start a node of Ray, and wait until it is part of the cluster of `head`."""
    where = [f"--node-ip-address={address_of(machine)}"]
    if machine is head:
        where += ["--head", f"--port={PORT}", "--include-dashboard=false"]
    else:
        where += [f"--address={address_of(head)}:{PORT}"]
    command = machine.command(_BIN / "ray", "start", *where, *_SMALL, "--block")
    for _ in range(_TRIES):
        said = _started(machine, command)
        if not said:
            return
    raise AssertionError(said)


def _started(machine: Machine, command: list[str]) -> str:
    """What a node of Ray said that has not started; an empty string if it has."""
    process = subprocess.Popen(
        command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    machine.at_end(process)
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "Ray runtime started" in line:
            return ""
    return "".join(said)


def drain(machine: Machine) -> None:
    """Give a node of Ray the two minutes' warning that a spot instance gets."""
    reason = ("--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot")
    left = "--deadline-remaining-seconds=120"
    machine.run(_BIN / "ray", "drain-node", *reason, left, env=environment())


class Sitting:
    """A command of `quorate` on a machine, and the folder of its run as we see it."""

    def __init__(self, machine: Machine, folder: Path, *words: object) -> None:
        self.folder = folder
        self._process = machine.popen(
            _BIN / "quorate", *words,
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        machine.at_end(self._process)

    def wait(self, is_there: Callable[[History], bool]) -> float:
        """Seconds until the journal says that something is there."""
        return wait_for(self.folder, is_there, self._check)

    def _check(self) -> None:
        assert self._process.poll() is None, f"it ended: {self._process.communicate()[0]}"

    def finish(self) -> str:
        """What the command printed, when it has ended."""
        said, _ = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0, said
        return str(said)


def wait_for(
    folder: Path, is_there: Callable[[History], bool], check: Callable[[], None] = lambda: None
) -> float:
    """Seconds until the journal of a run says that something is there."""
    began = time.monotonic()
    with ExitStack() as stack:
        history: History | None = None
        while time.monotonic() - began < PATIENCE:
            check()
            history = history or _opened(folder, stack)
            if history is not None:
                history.read()
                if is_there(history):
                    return time.monotonic() - began
            time.sleep(0.05)
        raise AssertionError(f"it took too long: {history and history.events}")


def all_at_work(history: History) -> bool:
    """Whether every worker has sent something."""
    return len(set(history.blocks().workers.tolist())) == history.n_workers


def _opened(folder: Path, stack: ExitStack) -> History | None:
    """The history of a run; None while there is nothing to read."""
    with suppress(QuorateError, OSError):
        return stack.enter_context(History(folder))
    return None
