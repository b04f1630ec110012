"""Machines made of namespaces: each has its own network, processes and folder.

A machine is joined to the others by a cable to a bridge. The bridge has a namespace of its own, so
nothing of this is seen on the network of the computer that it runs on. When the first process of a
machine is killed, the kernel ends all others of that machine, as when its power fails.
"""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

OWN = Path("/mnt/own")  # a folder that every machine has for itself
SHARED = Path("/mnt/shared")  # a folder that all machines see
_UNSHARE = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork"]
_FIRST = "echo; exec sleep infinity"


def why_not() -> str:
    """Why namespaces cannot be made here; an empty string if they can."""
    if sys.platform != "linux":
        return "namespaces need Linux"
    if os.geteuid() != 0:
        return "namespaces need root"
    try:
        made = subprocess.run([*_UNSHARE, "ip", "link"], capture_output=True)
    except FileNotFoundError as error:
        return f"no {error.filename}: install util-linux and iproute2"
    return "" if made.returncode == 0 else f"namespaces are refused: {made.stderr.decode().strip()}"


class Machine:
    """One machine; `name` is its host name, and `folder` its own folder as we see it."""

    folder: Path

    def __init__(self, name: str, setup: str = "true") -> None:
        self.name = name
        self._ours: list[subprocess.Popen[str]] = []
        script = f"hostname {name}; ip link set lo up; {setup}; {_FIRST}"
        self._first = subprocess.Popen(
            [*_UNSHARE, "--mount-proc", "--kill-child", "sh", "-ec", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.DEVNULL,  # util-linux 2.38 complains about a signal mask, wrongly
        )
        assert self._first.stdout is not None
        assert self._first.stdout.readline() == "\n", f"{name} did not start"
        (self.pid,) = map(
            int,
            Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split(),
        )

    def command(self, *words: object) -> list[str]:
        """What to run here to run a command there."""
        return ["nsenter", f"--target={self.pid}", "--all", "--", *map(str, words)]

    def run(self, *words: object, **options: object) -> str:
        """What a command prints that is run there."""
        return _output_of(self.command(*words), **options)

    def on_its_network(self, *words: object) -> None:
        """Run a command here, but on the network of that machine."""
        _output_of(["nsenter", f"--target={self.pid}", "--net", "--", *map(str, words)])

    def popen(self, *words: object, **options: object) -> subprocess.Popen[str]:
        """A process of that machine, under way."""
        return subprocess.Popen(self.command(*words), text=True, **options)

    def at_end(self, process: subprocess.Popen[str]) -> None:
        """Remember a process of ours that ends with the machine."""
        self._ours.append(process)

    def end_ours(self) -> None:
        """End the processes that we have started there, but not the machine."""
        for process in self._ours:
            process.terminate()
            process.wait()

    def kill(self) -> None:
        """End it, as when its power fails."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        for process in (*self._ours, self._first):
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


class Network:
    """A bridge, and the machines that are joined to it.

    Their folders are `folder / "shared"` and `folder / name`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "shared").mkdir()
        self._stack = ExitStack()
        self._hub = self._added(Machine("hub"))
        self._hub.run("ip", "link", "add", "bridge", "type", "bridge")
        self._hub.run("ip", "link", "set", "bridge", "up")
        self._n_machines = 0

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _added(self, machine: Machine) -> Machine:
        self._stack.callback(machine.kill)
        return machine

    def add(self) -> "Machine":
        """A new machine with a cable to the bridge; its address is `address_of(machine)`."""
        self._n_machines += 1
        name = f"m{self._n_machines}"
        own, shared = self._folder / name, self._folder / "shared"
        own.mkdir()
        setup = (
            f"mount -t tmpfs none /mnt; mkdir {OWN} {SHARED}; mount -t tmpfs none /dev/shm; "
            f"mount --bind '{own}' {OWN}; mount --bind '{shared}' {SHARED}"
        )
        machine = self._added(Machine(name, setup))
        machine.folder = own
        peer = ("peer", "eth0", "netns", machine.pid)
        self._hub.on_its_network("ip", "link", "add", name, "type", "veth", *peer)
        self._hub.run("ip", "link", "set", name, "master", "bridge", "up")
        machine.run("ip", "address", "add", f"{address_of(machine)}/24", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")
        return machine

    def cut(self, machine: Machine) -> None:
        """Pull the cable of a machine."""
        self._hub.run("ip", "link", "set", machine.name, "down")

    def join(self, machine: Machine) -> None:
        """Plug it in again."""
        self._hub.run("ip", "link", "set", machine.name, "up")


def _output_of(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def address_of(machine: Machine) -> str:
    """The address of a machine on the bridge."""
    return f"10.77.0.{machine.name[1:]}"
