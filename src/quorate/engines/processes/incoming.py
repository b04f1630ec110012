"""What the processes of an engine send, read by the thread that asks for it.

No other thread has to wake up for a frame, which takes longer than to read it. A process that stops
in the middle of a frame keeps nobody waiting.
"""

import os
import queue
import selectors
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from quorate.engines.frames import Frame

if TYPE_CHECKING:
    from quorate.engines.processes.host_process import HostProcess

PIPE = 1 << 18  # bytes on the way from a process: several blocks, so that it need not wait


class Incoming:
    """The pipes from all processes, and word of those that have ended."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ended: queue.SimpleQueue[HostProcess] = queue.SimpleQueue()
        self._bell, self._cord = socket.socketpair()  # rung when a process has ended
        self._cord.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)

    def add(self, host: "HostProcess", pipe: BinaryIO) -> None:
        """Read from a process from now on. Any thread may say so."""
        try:
            self._selector.register(pipe, selectors.EVENT_READ, host)
        except ValueError:  # nobody reads any more
            host.end(None)

    def ended(self, host: "HostProcess") -> None:
        """Take in that a process has ended. Any thread may say so."""
        self._ended.put(host)
        with suppress(OSError):  # it is full, so `frames` wakes up anyway; or it is closed
            self._cord.send(b"!")

    def frames(self, timeout: float) -> "Iterator[tuple[HostProcess, Frame | None]]":
        """The frames that are there, or come within `timeout` seconds, and who sent them.

        None in place of a frame says that the process has ended.
        """
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._bell.recv(PIPE)
            else:
                yield from self._from(key.data, key.fd)
        while not self._ended.empty():
            yield self._ended.get(), None

    def _from(self, host: "HostProcess", pipe: int) -> "Iterator[tuple[HostProcess, Frame]]":
        piece, fault = os.read(pipe, PIPE), None
        try:
            for frame in host.take(piece):
                yield host, frame
        except ValueError:
            fault = "sent what is no frame"
        if fault or not piece:
            self._selector.unregister(pipe)
            host.end(fault)

    def close(self) -> None:
        """Read no more, and end what is still there."""
        left = [key.data for key in self._selector.get_map().values() if key.data is not None]
        self._selector.close()
        for host in left:
            host.end(None)
        self._bell.close()
        self._cord.close()
