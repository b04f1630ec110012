"""What runs in an actor of the Ray engine: a worker, spoken to in frames."""

from typing import Any

from numpy.typing import NDArray

from quorate.data.write import ShardSet
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.service import Service
from quorate.engines.worker import ShardSource
from quorate.errors import BadInputError
from quorate.models.protocol import Shard

Rows = dict[str, NDArray[Any]]


class Host:
    """One worker. Its calls are served one at a time, in the order in which they were made.

    Parameters
    ----------
    fingerprint
        Of the shards: a folder that holds others is not the one that is meant.
    """

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        self._said: list[Frame] = []
        self._service = Service(self._said.append, self._open)
        self._delivered = Delivered()
        self._has_failed = False

    def turn(self, *frames: bytes) -> bytes:
        """Take frames in, make one block, and give back all that is to be said.

        Nothing, once user code has raised: what it left behind is not to be built on.
        """
        try:
            if not self._has_failed:
                for frame in frames_in(b"".join(frames)):
                    self._service.take(frame)
                self._service.turn()
        except Exception as error:  # the user's code may raise anything: it is told, not hidden
            self._has_failed = True
            self._service.tell_failure(error)
        said = b"".join(map(packed_frame, self._said))
        self._said.clear()
        return said

    def deliver(self, number: int, rows: Rows) -> None:
        """Take the rows of a shard; they lie in memory that all actors of a node share."""
        self._delivered.shards[number] = rows

    def _open(self, folder: str) -> ShardSource:
        """The folder, if it is seen from here; otherwise rows have to be delivered."""
        try:
            shards = ShardSet.open(folder)
        except (BadInputError, OSError):
            shards = None
        if shards is not None and shards.fingerprint == self._fingerprint:
            return shards
        self._said.append(Frame("lacking"))
        return self._delivered


class Delivered:
    """Shards that came over the network."""

    def __init__(self) -> None:
        self.shards: dict[int, Rows] = {}

    def shard(self, number: int) -> Shard:
        """The rows of shard `number`, which were delivered before they were asked for."""
        return self.shards[number]
