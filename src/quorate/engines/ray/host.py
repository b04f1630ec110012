"""Runs in an actor of the Ray engine: one worker that takes and returns frames."""

from quorate.data.write import ShardSet
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.workers.delivered import Rows
from quorate.engines.workers.service import Service, beat_frame
from quorate.engines.workers.worker import ShardSource
from quorate.errors import BadInputError


class Host:
    """One worker. Calls are served one at a time, in order, but for `beat`, which never waits.

    Parameters
    ----------
    fingerprint
        Fingerprint of the shards: a folder with other shards is not used.
    """

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._said: list[Frame] = []
        self._service = Service(self._said.append, self._open)
        self._has_failed = False

    def turn(self, *frames: bytes) -> bytes:
        """Take frames in, make one answer, and return all frames for the coordinator.

        Returns nothing once user code has raised an error.
        """
        try:
            if not self._has_failed:
                for frame in frames_in(b"".join(frames)):
                    self._service.take(frame)
                self._service.turn()
        except Exception as error:  # user code may raise anything: report it
            self._has_failed = True
            self._service.tell_failure(error)
        said = b"".join(map(packed_frame, self._said))
        self._said.clear()
        return said

    def beat(self) -> bytes:
        """A sign of life, in a thread of its own, also while user code runs."""
        return packed_frame(beat_frame(self._service.pulse.look()))

    def forget(self) -> None:
        """Remove what was copied of rows in place on this node."""
        self._service.forget()

    def deliver(self, shard: tuple[int, Rows]) -> None:
        """Take a shard, whose rows lie in memory that all actors of a node share."""
        number, rows = shard
        self._service.delivered.shards[number] = rows

    def _open(self, folder: str) -> ShardSource:
        """The folder, if this node sees it; otherwise rows must be delivered."""
        try:
            shards = ShardSet.open(folder)
        except (BadInputError, OSError):
            shards = None
        if shards is not None and shards.fingerprint == self._fingerprint:
            return shards
        self._said.append(Frame("lacking"))
        return self._service.delivered
