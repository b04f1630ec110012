"""A Ray cluster of our own, on this machine, which ends with us whatever happens.

A keeper, which is a process in a session of its own, has the cluster started below it. The
coordinator has a pipe to the keeper. When that closes, because the run is over or the coordinator
was killed, the keeper ends all processes of the cluster, with those that user code has started, and
removes the cluster's folder.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from quorate._extras import load
from quorate.engines.processes.subreaper import become_subreaper, end_all_below
from quorate.errors import BadInputError

_OBJECT_STORE = 128 * 2**20  # bytes; shards on the same machine are read from their files
_PATIENCE = 10.0  # seconds for the keeper to end the cluster
_KEEPER = """
import sys
from quorate.engines.ray.own import keep
keep(sys.argv[1])
"""


class OwnCluster:
    """A new cluster, and the pipe that keeps it alive.

    Attributes
    ----------
    address
        Where drivers connect to.

    Parameters
    ----------
    surroundings
        Variables for the environment of the cluster, beside our own.
    """

    def __init__(self, surroundings: Mapping[str, str]) -> None:
        # Ray opens its own folder, with logs and sockets, to everybody. The one around it is ours.
        folder = tempfile.mkdtemp(prefix="qr-")  # short: paths of sockets have a limit
        with tempfile.TemporaryFile() as log:
            self._keeper = subprocess.Popen(  # noqa: S603 - our own interpreter, our own words
                [sys.executable, "-c", _KEEPER, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **surroundings},
                start_new_session=True,  # Ctrl-C is for the coordinator
            )
            assert self._keeper.stdout is not None
            self.address = self._keeper.stdout.readline().decode().strip()
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
        if not self.address:
            self.close()
            raise BadInputError(
                f"Ray could not be started on this machine ({' '.join(said[-1:])}). Start a "
                "cluster yourself and give its address, or use the engine 'process'."
            )

    def close(self) -> None:
        """End the cluster and remove its folder."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            pipe.close()
        with suppress(subprocess.TimeoutExpired):  # it goes on without us
            self._keeper.wait(_PATIENCE)


def keep(folder: str) -> None:
    """Have a cluster started below us; end it when standard input ends, or it cannot start.

    This process never imports Ray, which would end it together with the cluster.
    """
    is_linux = sys.platform == "linux"
    if is_linux:
        become_subreaper()
    its_end, alive = os.pipe()
    starter = os.fork()
    if starter == 0:
        _start(folder)
    os.close(alive)
    select.select([sys.stdin, its_end], [], [])
    if is_linux:
        end_all_below()
    else:
        os.kill(starter, signal.SIGTERM)  # Ray then ends what it has started
        os.waitpid(starter, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: str) -> None:
    """Start the cluster, tell its address, and wait to be ended."""
    ray: Any = load("ray", "ray")
    ray.init(
        _temp_dir=str(Path(folder) / "ray"),
        address="local",  # or Ray would join a cluster that somebody else left running
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE,
        log_to_driver=False,
    )
    print(ray.get_runtime_context().gcs_address, flush=True)  # noqa: T201 - the coordinator reads it
    while True:
        signal.pause()
