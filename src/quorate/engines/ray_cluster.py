"""The way to a Ray cluster: one that is there, or one of our own.

A cluster of our own listens on the loopback interface only and asks everyone for a token.
"""

import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from quorate._extras import load
from quorate.errors import BadInputError, require

_OBJECT_STORE = 128 * 2**20  # bytes; shards on the same machine are read from their files
_OF_OUR_OWN = {
    # What Ray goes by where it is to stay on one machine: without it 127.0.0.1 is replaced by the
    # address that other machines see.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_TOKEN_NAMES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}


class Cluster:
    """A connection to a cluster.

    Parameters
    ----------
    address
        Of one that runs, `auto` for the one on this machine. None for the one that this process is
        connected to already, or else for one of our own, which ends with the connection.
    """

    def __init__(self, address: str | None) -> None:
        if address is None:
            _ask_for_token()
        self.ray: Any = load("ray", "ray")
        self._is_ours = not self.ray.is_initialized()
        if not self._is_ours:
            way_out = "this process is connected to a cluster already: leave the address out"
            require(address is None, "ray_address", address, way_out)
            return
        with _signals_kept():
            if address is None:
                self._start()
            else:
                self._connect(address)

    def nodes(self) -> dict[str, float]:
        """The nodes that are there, by their ids, and the cores of each.

        A node without any, as the head of a big cluster often is, counts only if all are so.
        """
        alive = [node for node in self.ray.nodes() if node["Alive"]]
        cores = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in alive}
        with_cores = {name: n for name, n in cores.items() if n}
        return with_cores or dict.fromkeys(cores, 1.0)

    def close(self) -> None:
        """End the connection if it is ours, and the cluster if that is."""
        if self._is_ours:
            self.ray.shutdown()

    def _connect(self, address: str) -> None:
        try:
            self.ray.init(address=address, **_QUIET)
        except (ConnectionError, ValueError, RuntimeError) as error:
            way_out = f"no cluster could be reached there ({_in_one_line(error)})"
            raise BadInputError("ray_address", address, way_out) from error

    def _start(self) -> None:
        with _on_loopback():
            self.ray.init(
                address="local",  # or Ray would take what other people left running
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE,
                **_QUIET,
            )
        addresses = [node["NodeManagerAddress"] for node in self.ray.nodes()]
        if not all(ip_address(address).is_loopback for address in addresses):
            self.ray.shutdown()
            way_out = (
                "Ray was to listen on the loopback interface only and does not, so it was ended: "
                "start a cluster yourself and give its address"
            )
            raise BadInputError("ray_address", None, way_out)


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _ask_for_token() -> None:
    """Have a cluster of our own ask for a token, known to this process alone if there is none yet.

    Ray takes note of the mode when it is imported; where it was before, it asks by itself. What the
    user has said stays.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    has_one = any(name in os.environ for name in _TOKEN_NAMES)
    if not has_one and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let Ray, and what it starts meanwhile, know that there is only this machine."""
    constants: Any = import_module("ray._private.ray_constants")
    before, enabled = dict(os.environ), constants.ENABLE_RAY_CLUSTER
    os.environ.update(_OF_OUR_OWN)
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = enabled
        for name in _OF_OUR_OWN:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts its own handler in the place of ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
