"""Writes batch scripts that start Ray on the nodes of a Slurm job, and run quorate on it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from quorate.engines.submitting.submitted import Submitted
from quorate.errors import require


@dataclass(frozen=True)
class Slurm:
    """A job of Slurm.

    Parameters
    ----------
    nodes
        Number of nodes.
    cpus
        Cores on each node.
    time
        Time limit of the job, as Slurm writes it.
    name
        Name of the job.
    partition, account
        Passed on to Slurm.
    """

    nodes: int = 4
    cpus: int = 32
    time: str = "08:00:00"
    name: str = "quorate"
    partition: str | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        require(self.nodes >= 1, f"nodes must be at least 1, not {self.nodes}.")
        require(self.cpus >= 1, f"cpus must be at least 1, not {self.cpus}.")
        for text in (self.time, self.name, self.partition or "", self.account or ""):
            require(text.isprintable(), f"{text!r} does not fit on a line of the script.")


def slurm_script(job: Slurm, command: Submitted, setup: Sequence[str]) -> str:
    """A script for `sbatch`.

    Parameters
    ----------
    command
        What to run on the cluster.
    setup
        Lines of shell that make `quorate` and `ray` available on a node.
    """
    options = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": job.cpus,
        "time": job.time,
        "partition": job.partition,
        "account": job.account,
        "signal": "B:TERM@120",
    }
    given = {name: shlex.quote(str(value)) for name, value in options.items() if value}
    told = "\n".join(f"#SBATCH --{name}={value}" for name, value in given.items())
    run = '"runs/$SLURM_JOB_ID"' if command.run_dir is None else shlex.quote(command.run_dir)
    return _SCRIPT.format(
        options=told,
        setup="\n".join(setup),
        command=command.in_shell(run, '"$head:$port"'),
    )


_SCRIPT = """\
#!/bin/bash
{options}
#SBATCH --requeue
# Slurm sends SIGTERM to this script two minutes before its time is over: the run then stops with
# the draws so far. A later job resumes the run if it finds it in the same folder.
set -euo pipefail
{setup}

export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
on_head=(srun --nodes=1 --ntasks=1 --nodelist="${{nodes[0]}}" --overlap)
n_others=$((SLURM_JOB_NUM_NODES - 1))
on_others=(srun --nodes="$n_others" --ntasks="$n_others" --exclude="${{nodes[0]}}" --overlap)
# The head is known by its address on the network of the nodes. Its own name may stand for loopback.
last=$(scontrol show node --oneliner "${{nodes[-1]}}" | sed 's/.* NodeAddr=\\([^ ]*\\).*/\\1/')
head=$("${{on_head[@]}}" python -c 'import socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.connect((sys.argv[1], 9))  # sends nothing
print(link.getsockname()[0])' "$last")
if [[ $head == 127.* ]] && ((n_others > 0)); then
    echo "${{nodes[0]}} reaches $last through $head only, where no other node can join." >&2
    exit 1
fi
port=$((20000 + SLURM_JOB_ID % 10000))   # two jobs may share a node
options=(--num-cpus="$SLURM_CPUS_PER_TASK" --disable-usage-stats --block)

"${{on_head[@]}}" ray start --head --node-ip-address="$head" --port="$port" \\
    --include-dashboard=false "${{options[@]}}" > "ray-$SLURM_JOB_ID.log" 2>&1 &
for _ in $(seq 120); do
    ray health-check --address "$head:$port" 2> /dev/null && break
    sleep 1
done
if ((n_others > 0)); then
    "${{on_others[@]}}" ray start --address="$head:$port" "${{options[@]}}" \\
        >> "ray-$SLURM_JOB_ID.log" 2>&1 &
fi

# Workers move to a node that comes late, so waiting for all of them ends after two minutes.
python - "$head:$port" "$SLURM_JOB_NUM_NODES" << 'END'
import sys, time, ray
ray.init(sys.argv[1], log_to_driver=False, configure_logging=False)
end = time.monotonic() + 120
while len(ray.nodes()) < int(sys.argv[2]) and time.monotonic() < end:
    time.sleep(1)
print("Ray runs on", *sorted(node["NodeManagerAddress"] for node in ray.nodes()), flush=True)
END

{command}
"""
