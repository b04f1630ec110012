"""Connects to a Ray cluster, or starts one of our own.

A cluster of our own listens on the loopback interface only and asks for a token.
"""

import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from quorate._extras import load
from quorate.engines.ray.own import OwnCluster
from quorate.engines.workers.service import environment
from quorate.errors import BadInputError, require

_OF_OUR_OWN = {
    # Keeps Ray on this machine: otherwise it replaces 127.0.0.1 by the address that other machines
    # see.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_TOKEN_NAMES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}


class Node(NamedTuple):
    """A node of a cluster: its cores, and where its raylet listens."""

    cores: float
    address: tuple[str, int]


class Cluster:
    """A connection to a cluster.

    Parameters
    ----------
    address
        Address of a running cluster, or `auto` for the one on this machine. None for the one that
        this process is already connected to, or else for a new one that ends with the connection.
    """

    def __init__(self, address: str | None) -> None:
        if address is None:
            _ask_for_token()
        self.ray: Any = load("ray", "ray")
        self._is_ours = not self.ray.is_initialized()
        self._own: OwnCluster | None = None
        if not self._is_ours:
            require(
                address is None,
                f"This process is already connected to a Ray cluster. Leave out {address!r}.",
            )
            return
        with _signals_kept():
            if address is None:
                self._start()
            else:
                self._connect(address)

    def nodes(self) -> dict[str, Node]:
        """The living nodes by id.

        Nodes without cores, as the head of a big cluster often is, count only if no node has any.
        """
        alive = {node["NodeID"]: _node(node) for node in self.ray.nodes() if node["Alive"]}
        with_cores = {name: node for name, node in alive.items() if node.cores}
        return with_cores or {name: node._replace(cores=1.0) for name, node in alive.items()}

    def node_of(self, site: str) -> str | None:
        """The living node that is a site: by its host name, its address, or a resource of Ray."""
        for node in self.ray.nodes():
            names = node["NodeManagerHostname"], node["NodeManagerAddress"], *node["Resources"]
            if node["Alive"] and site in names:
                return str(node["NodeID"])
        return None

    def draining(self) -> set[str]:
        """Ids of nodes that will soon be taken away. Workers of Ray itself ask in the same way."""
        state: Any = import_module("ray._private.state")
        return set(state.state.get_draining_nodes())

    def free_gpus(self, node: str) -> float:
        """The number of GPUs of a node that no job of the cluster holds now."""
        state: Any = import_module("ray._private.state")
        return float(state.available_resources_per_node().get(node, {}).get("GPU", 0.0))

    def close(self) -> None:
        """End the connection if it is ours, and the cluster if that is."""
        if self._is_ours:
            self.ray.shutdown()
        if self._own is not None:
            self._own.close()

    def _connect(self, address: str) -> None:
        try:
            self.ray.init(address=address, **_QUIET)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise BadInputError(
                f"No Ray cluster could be reached at {address!r} ({_in_one_line(error)}). Check "
                "the address, and that the cluster is running."
            ) from error

    def _start(self) -> None:
        self._own = OwnCluster({**environment(), **_OF_OUR_OWN})
        try:
            with _on_loopback():
                self._connect(self._own.address)
            self._require_loopback()
        except BaseException:
            self.close()
            raise

    def _require_loopback(self) -> None:
        addresses = [node["NodeManagerAddress"] for node in self.ray.nodes()]
        if not all(ip_address(address).is_loopback for address in addresses):
            raise BadInputError(
                "Ray does not listen on the loopback interface alone, so it was shut down. Start a "
                "cluster yourself and give its address."
            )


def _node(told: Mapping[str, Any]) -> Node:
    address = told["NodeManagerAddress"], told["NodeManagerPort"]
    return Node(told["Resources"].get("CPU", 0.0), address)


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _ask_for_token() -> None:
    """Make a cluster of our own ask for a token, a new secret one if the user has none.

    Ray reads the mode when it is imported. Settings of the user stay as they are.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    has_one = any(name in os.environ for name in _TOKEN_NAMES)
    if not has_one and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray, and the processes it starts meanwhile, use this machine only."""
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
    """Keep our signal handler, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def epitaph(error: Exception) -> str:
    """The reason that Ray gives for the end of an actor, in one line."""
    lines = [line for line in str(error).splitlines() if not line.startswith("\t")]
    return " ".join(" ".join(lines).split())
