"""A worker process: serves frames from its input, and gives signs of life from a thread of its own.

It ends when its input does, so it never outlives its coordinator.
"""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from quorate.data.write import ShardSet
from quorate.engines.frames import Frame, read_frame, write_frame
from quorate.engines.workers.pulse import Pulse
from quorate.engines.workers.service import Service, beat_frame

_SECONDS_BETWEEN_BEATS = 1.0


def main() -> None:
    """Serve tasks until the input ends."""
    commands, replies = _take_over_pipes()
    frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    service = Service(replies.say, ShardSet.open)
    _in_background(_listen, commands, frames)
    _in_background(_beat, replies, service.pulse)
    with suppress(BrokenPipeError):
        _serve(frames, service)
    os._exit(0)


class _Replies:
    """The pipe to the coordinator, which two threads write to."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def say(self, frame: Frame) -> None:
        """Write a frame, whole."""
        with self._lock:
            write_frame(self._pipe, frame)


def _serve(frames: "queue.SimpleQueue[Frame]", service: Service) -> None:
    """Serve until the input ends, or user code raises an error."""
    try:
        while True:
            while not service.has_work or not frames.empty():
                service.take(frames.get())
            service.turn()
    except BrokenPipeError:
        raise
    except Exception as error:  # user code may raise anything: report it
        service.tell_failure(error)


def _listen(commands: BinaryIO, frames: "queue.SimpleQueue[Frame]") -> None:
    """Pass frames on; exit at the end of the input, when the coordinator is gone."""
    try:
        while (frame := read_frame(commands)) is not None:
            frames.put(frame)
    finally:  # also after a frame that makes no sense
        os._exit(0)


def _beat(replies: _Replies, pulse: Pulse) -> None:
    """Tell again and again that the process lives and what it does, also while user code runs."""
    with suppress(BrokenPipeError):
        while True:
            replies.say(beat_frame(pulse.look()))
            time.sleep(_SECONDS_BETWEEN_BEATS)


def _take_over_pipes() -> tuple[BinaryIO, _Replies]:
    """Our pipes, while `print` in user code goes to standard error from now on.

    Processes that user code forks get neither: they would keep the pipes open after our end.
    """
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def leave_pipes() -> None:
        for pipe in (commands, replies):
            os.dup2(nothing, pipe.fileno(), inheritable=False)

    os.register_at_fork(after_in_child=leave_pipes)
    return commands, _Replies(replies)


def _in_background(target: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=target, args=args, daemon=True).start()
