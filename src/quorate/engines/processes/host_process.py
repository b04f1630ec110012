"""One process that workers live in, as the coordinator sees it.

Frames are written at once as far as there is room in the pipe. A thread writes the rest, so that a
process that does not read keeps nobody waiting.
"""

import fcntl
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from quorate.engines.frames import Arriving, Frame, pieces_of
from quorate.engines.processes.incoming import PIPE, Incoming
from quorate.engines.processes.template import Child, Interpreter, Template
from quorate.engines.processes.template_server import Files
from quorate.engines.workers.service import doing_of
from quorate.protocol.messages import Doing

_HANGS = 30.0  # seconds without an answer after which a template is of no use
_AT_ONCE = 1000  # pieces of a frame; systems take 1024
Pieces = list[bytes | memoryview]


class HostProcess:
    """One process, with a thread that starts it and waits for its end.

    To start it, the thread may have to wait for the template. In between it writes what the pipe
    had no room for.

    Parameters
    ----------
    log
        File for what user code prints.
    incoming
        Reads frames, and hears when the process has ended.
    template
        Forks the process; None to start an interpreter.
    starts
        Held while a process is started.
    """

    def __init__(
        self,
        log: Path,
        incoming: Incoming,
        template: Template | None,
        starts: threading.Lock,
    ) -> None:
        self._log = log
        self._incoming = incoming
        self._template = template
        self._starts = starts
        self._asked = time.monotonic()
        self._child: Child | None = None
        self._is_killed = False
        self._lock = threading.Lock()  # of the two above
        self._fault: str | None = None
        self._code = -9
        self._arriving = Arriving()
        self._beat: Frame | None = None  # the last one, until it is asked for
        self._has_sent = False  # something, since it was asked for a sign
        self._is_over = threading.Event()  # what it sends
        self.failed: int | None = None  # the worker whose code ended it
        self._commands: BinaryIO | None = None  # while its input is open
        self._outgoing: queue.SimpleQueue[Pieces | None] = queue.SimpleQueue()
        self._n_outgoing = 0
        self._writing = threading.Lock()  # of the two above
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Id of the process, once it is there."""
        return None if self._child is None else self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended, or more frames may arrive."""
        return self._thread.is_alive()

    @property
    def is_stopped(self) -> bool:
        """Whether the kernel says that the process, or the template that forks it, is stopped."""
        return _state(self._whom_to_ask()) == "T"

    def sign(self) -> Doing | bool:
        """What the process is doing, by its last sign of life; True if it is only known to live.

        Code that holds the lock of its interpreter keeps the process from giving signs. Then the
        kernel's word counts.
        """
        beat, self._beat = self._beat, None
        has_sent, self._has_sent = self._has_sent, False
        if beat is not None:
            return doing_of(beat)
        return has_sent or _state(self._whom_to_ask()) in ("R", "S", "D", "I", "t")

    def take(self, piece: bytes) -> Iterator[Frame]:
        """Take one more piece in; yield the frames that are now complete, except signs of life."""
        self._has_sent = True
        for frame in self._arriving.whole(piece):
            if frame.kind == "beat":
                self._beat = frame
                continue
            if frame.kind == "failed":
                self.failed = frame.fields["worker"]
            yield frame

    def end(self, fault: str | None) -> None:
        """End the process, because its frames make no sense or its output has ended."""
        self._fault = fault
        if self._child is not None:
            self._child.kill()
        self.end_input()
        self._is_over.set()

    def send(self, frame: Frame) -> None:
        """Write a frame as far as the pipe has room; the thread writes the rest."""
        pieces = pieces_of(frame)
        with self._writing:
            if self._commands is not None and not self._n_outgoing:
                with suppress(BrokenPipeError):  # then its output ends, too
                    pieces = _unwritten(self._commands, pieces)
            if pieces:
                self._n_outgoing += 1
                self._outgoing.put(pieces)

    def end_input(self) -> None:
        """Close the input of the process once all frames are written."""
        self._outgoing.put(None)

    def kill(self) -> None:
        """End the process at once, or as soon as it has started."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.kill()
            elif self._template is not None and self._has_waited_long():
                self._template.kill()

    def epitaph(self) -> str:
        """How the process ended, in words."""
        if self._fault is not None:
            return self._fault
        code = self._code
        if code in (-9, 137):
            return (
                "was killed (signal 9). If you did not kill it, the machine may be out of memory: "
                "use fewer workers or smaller shards"
            )
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def close(self, deadline: float) -> None:
        """Wait for the thread of a process that has ended, but not beyond `deadline`."""
        self._thread.join(max(deadline - time.monotonic(), 0.0))

    def _whom_to_ask(self) -> int | None:
        """Id of the process that decides whether this one goes on."""
        template = self._template
        return self.pid or (None if template is None else template.pid)

    def _has_waited_long(self) -> bool:
        """Whether the template has given no answer, or cannot."""
        return self.is_stopped or time.monotonic() - self._asked > _HANGS

    def _live(self) -> None:
        """Start the process, write to it until it ends, and tell how it did."""
        try:
            with self._starts:
                commands, replies = self._start()
        except OSError as error:
            self._fault = f"could not be started: {error}"
        else:
            with replies:
                self._incoming.add(self, replies)
                self._write(commands)
                self._is_over.wait()
            if self._child is not None:
                self._code = self._child.wait()
        self._incoming.ended(self)

    def _start(self) -> tuple[BinaryIO, BinaryIO]:
        """Start the process, and return our ends of its pipes."""
        with ExitStack() as ours, ExitStack() as its:
            stdin, commands = _pipe(its, ours)
            replies, stdout = _pipe(ours, its)
            log = its.enter_context(self._log.open("ab"))
            self._bear(Files(stdin.fileno(), stdout.fileno(), log.fileno()))
            if sys.platform == "linux":
                with suppress(OSError):  # so many may be more than the system grants a user
                    fcntl.fcntl(replies, fcntl.F_SETPIPE_SZ, PIPE)
            ours.pop_all()
        return commands, replies

    def _bear(self, files: Files) -> None:
        """Fork the process, or start an interpreter, unless it is killed before."""
        child: Child | None = None
        if self._template is not None and not self._is_killed:
            child = self._template.fork(files)
            if child is None and not self._is_killed and self._template.is_replaced():
                child = self._template.fork(files)
        with self._lock:
            if child is None and not self._is_killed:
                child = Interpreter(files)
            self._child = child
            if child is not None and self._is_killed:
                child.kill()

    def _write(self, commands: BinaryIO) -> None:
        """Write what waits, until the process is gone or its input ends."""
        os.set_blocking(commands.fileno(), False)
        with self._writing:
            self._commands = commands
        room = select.poll()
        room.register(commands, select.POLLOUT)
        with suppress(BrokenPipeError):
            while (pieces := self._outgoing.get()) is not None:
                while pieces := _unwritten(commands, pieces):
                    room.poll()
                with self._writing:
                    self._n_outgoing -= 1
        with self._writing:
            self._commands = None
            commands.close()


def _unwritten(pipe: BinaryIO, pieces: Pieces) -> Pieces:
    """Write as much as there is room for; returns the rest."""
    try:
        n = os.writev(pipe.fileno(), pieces[:_AT_ONCE])
    except BlockingIOError:
        return pieces
    for i, piece in enumerate(pieces):
        if n < len(piece):
            return [memoryview(piece)[n:], *pieces[i + 1 :]]
        n -= len(piece)
    return []


def _state(pid: int | None) -> str:
    """State of a process in the kernel's letters; empty if it is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def _pipe(reads: ExitStack, writes: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """A pipe, each end of which is closed with a stack."""
    read, write = os.pipe()
    return (
        reads.enter_context(os.fdopen(read, "rb", 0)),
        writes.enter_context(os.fdopen(write, "wb", 0)),
    )
