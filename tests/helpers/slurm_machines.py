"""Slurm of Debian's packages on machines of `helpers.machines`: one controller, a node on each."""

import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

from helpers.machines import OWN, SHARED, Machine, address_of
from helpers.processes import PATIENCE

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
_CONF = SHARED / "slurm.conf"
_CONFIGURATION = """\
ClusterName=quorate
SlurmctldHost={head}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={own}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={own}/slurmctld
SlurmdSpoolDir={own}/slurmd
SlurmctldPidFile={own}/slurmctld.pid
SlurmdPidFile={own}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why Slurm cannot run here; an empty string if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"no {missing[0]}: install slurm-wlm and munge" if missing else ""


def environment() -> dict[str, str]:
    """Environment in which commands of Slurm find the cluster."""
    return {**os.environ, "SLURM_CONF": str(_CONF)}


def start_slurm(machines: list[Machine], shared: Path) -> None:
    """Start Slurm, with the controller on the first machine, and wait until all nodes are idle."""
    head = machines[0]
    nodes = [f"NodeName={m.name} NodeAddr={address_of(m)} CPUs=2 State=UNKNOWN" for m in machines]
    configuration = _CONFIGURATION.format(
        head=head.name, address=address_of(head), own=OWN, nodes="\n".join(nodes)
    )
    (shared / "slurm.conf").write_text(configuration)
    key = shared / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    for machine in machines:
        _name_machines(machine, machines, shared)
        _daemon(machine, "munged", "--foreground", "--force", f"--socket={OWN}/munge.socket",
                f"--key-file={SHARED}/munge.key", f"--pid-file={OWN}/munged.pid",
                f"--log-file={OWN}/munged.log", f"--seed-file={OWN}/munged.seed")  # fmt: skip
        machine.run("mkdir", OWN / "slurmctld", OWN / "slurmd")
    _daemon(head, "slurmctld", "-D")
    for machine in machines:
        _daemon(machine, "slurmd", "-D", "-N", machine.name)
    _wait_until_idle(head, len(machines))


def _name_machines(machine: Machine, machines: list[Machine], shared: Path) -> None:
    """Let a machine know all by name; as on Debian, its own name stands for loopback."""
    others = [m for m in machines if m is not machine]
    known = {"localhost": "127.0.0.1", machine.name: "127.0.1.1"}
    known |= {m.name: address_of(m) for m in others}
    file = f"hosts-{machine.name}"
    (shared / file).write_text("".join(f"{where} {name}\n" for name, where in known.items()))
    machine.run("mount", "--bind", SHARED / file, "/etc/hosts")


def submit(machine: Machine, script: Path, folder: Path) -> int:
    """Submit a batch script; gives the number of the job."""
    found = machine.run("sbatch", "--parsable", f"--chdir={folder}", script, env=environment())
    return int(found.split(";")[0])


def warn(machine: Machine, job: int) -> None:
    """Send a job the signal that it gets before its time is over."""
    machine.run("scancel", "--batch", "--signal=TERM", job, env=environment())


def finished(machine: Machine, job: int) -> str:
    """State of a job after it has ended."""
    began = time.monotonic()
    while time.monotonic() - began < 2 * PATIENCE:
        told = machine.run("scontrol", "show", "job", job, env=environment())
        state = told.split("JobState=")[1].split()[0]
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            return state
        time.sleep(0.5)
    raise AssertionError(told)


def _daemon(machine: Machine, *words: object) -> None:
    with (machine.folder / f"{words[0]}.out").open("w") as log:
        where = {"env": environment(), "stdout": log, "stderr": subprocess.STDOUT}
        machine.at_end(machine.popen(*words, **where))


def _wait_until_idle(head: Machine, n_nodes: int) -> None:
    began = time.monotonic()
    command = head.command("sinfo", "--noheader", "--Node", "--format=%t")
    while time.monotonic() - began < PATIENCE:
        said = subprocess.run(command, env=environment(), capture_output=True, text=True).stdout
        if said.split() == ["idle"] * n_nodes:
            return
        time.sleep(0.2)
    raise AssertionError(f"nodes of Slurm are {said!r}")
