"""One process that workers live in, as the coordinator sees it.

A thread reads from it and another writes to it, so that a process that stops in the middle of a
frame does not block the others.
"""

import fcntl
import os
import queue
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from quorate.engines.frames import Frame, read_frame, write_frame
from quorate.engines.processes.template import Child, Interpreter, Template
from quorate.engines.processes.template_server import Files
from quorate.engines.workers.service import doing_of
from quorate.protocol.messages import Doing

_HANGS = 30.0  # seconds without an answer after which a template is of no use
_PIPE = 1 << 18  # bytes on the way from a process: several blocks, so that it need not wait


class HostProcess:
    """One process, with the threads that read from it and write to it.

    The thread that reads starts the process, for which it may have to wait for the template.

    Parameters
    ----------
    log
        File for what user code prints.
    incoming
        Where frames go; None in place of a frame when the process has ended.
    template
        Forks the process; None to start an interpreter.
    starts
        Held while a process is started.
    """

    def __init__(
        self,
        log: Path,
        incoming: "queue.Queue[tuple[HostProcess, Frame | None]]",
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
        self._beat: Frame | None = None  # the last one, until it is asked for
        self._waits_for_us = False
        self.failed: int | None = None  # the worker whose code ended it
        self._outgoing: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._reader = threading.Thread(target=self._live, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int | None:
        """Id of the process, once it is there."""
        return None if self._child is None else self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, or more frames may arrive."""
        return self._reader.is_alive()

    @property
    def is_stopped(self) -> bool:
        """Whether the kernel says that it, or the template that is to fork it, is stopped."""
        return _state(self._whom_to_ask()) == "T"

    def sign(self) -> Doing | bool:
        """What it is doing, by its last word; True if it is only known to live.

        Code that holds the lock of its interpreter keeps the process from giving signs. Then the
        kernel's word counts.
        """
        beat, self._beat = self._beat, None
        if beat is not None:
            return doing_of(beat)
        return self._waits_for_us or _state(self._whom_to_ask()) in ("R", "S", "D", "I", "t")

    def send(self, frame: Frame) -> None:
        """Write a frame when there is room for it."""
        self._outgoing.put(frame)

    def end_input(self) -> None:
        """Close the input of the process once all frames are written."""
        self._outgoing.put(None)

    def kill(self) -> None:
        """End it at once, or as soon as it is there."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.kill()
            elif self._template is not None and self._has_waited_long():
                self._template.kill()

    def epitaph(self) -> str:
        """How it ended."""
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
        """Wait for the threads of a process that has ended, but not beyond `deadline`."""
        for thread in (self._reader, self._writer):
            if thread is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _whom_to_ask(self) -> int | None:
        """Id of the process that decides whether this one goes on."""
        template = self._template
        return self.pid or (None if template is None else template.pid)

    def _has_waited_long(self) -> bool:
        """Whether the template has given no answer, or cannot."""
        return self.is_stopped or time.monotonic() - self._asked > _HANGS

    def _live(self) -> None:
        """Start the process, read from it until it ends, and tell how it did."""
        try:
            with self._starts:
                commands, replies = self._start()
        except OSError as error:
            self._fault = f"could not be started: {error}"
        else:
            self._writer = threading.Thread(target=self._write, args=(commands,), daemon=True)
            self._writer.start()
            with replies:
                self._read(replies)
            self.end_input()
        self._incoming.put((self, None))

    def _start(self) -> tuple[BinaryIO, BinaryIO]:
        """Start the process, and return our ends of its pipes."""
        with ExitStack() as ours, ExitStack() as its:
            stdin, commands = _pipe(its, ours)
            replies, stdout = _pipe(ours, its)
            log = its.enter_context(self._log.open("ab"))
            self._bear(Files(stdin.fileno(), stdout.fileno(), log.fileno()))
            if sys.platform == "linux":
                with suppress(OSError):  # so many may be more than the system grants a user
                    fcntl.fcntl(replies, fcntl.F_SETPIPE_SZ, _PIPE)
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

    def _read(self, replies: BinaryIO) -> None:
        """Pass frames on until the process has ended."""
        try:
            while (frame := read_frame(replies)) is not None:
                self._pass_on(frame)
        except ValueError:
            self._fault = "sent what is no frame"
        if self._child is not None:
            self._child.kill()  # its frames make no sense, or its output has ended
            self._code = self._child.wait()

    def _pass_on(self, frame: Frame) -> None:
        """Put a frame with the others. Signs of life do not wait there."""
        if frame.kind == "beat":
            self._beat = frame
            return
        if frame.kind == "failed":
            self.failed = frame.fields["worker"]
        self._waits_for_us = True
        self._incoming.put((self, frame))
        self._waits_for_us = False

    def _write(self, pipe: BinaryIO) -> None:
        """Write frames until the process is gone or its input ends."""
        with suppress(BrokenPipeError):
            while (frame := self._outgoing.get()) is not None:
                write_frame(pipe, frame)
        with suppress(BrokenPipeError):
            pipe.close()


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
        reads.enter_context(os.fdopen(read, "rb", _PIPE)),
        writes.enter_context(os.fdopen(write, "wb", _PIPE)),
    )
