"""Runs in an actor of the Ray engine: passes frames on to processes of its node, and back.

Sums are computed by all processes together, and one sum of the node travels. Everything else is for
the process of one worker. A process that is lost takes its own workers with it. What it was to add
to a sum is computed by another process of the node.

The processes end with the actor, whatever ends it.
"""

import os
import sys
import threading
import time
import traceback
from pathlib import Path

from quorate.data.placed import PlacedShards
from quorate.data.scratch import forget
from quorate.data.write import ShardSet
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.processes.hosts import FOR_ALL, Hosts
from quorate.engines.ray.node_sums import NodeSums
from quorate.engines.workers.delivered import Rows
from quorate.errors import BadInputError
from quorate.protocol.messages import WorkerLost

CALLS_HELD = 3  # that wait for something to be said; with more of them, the first returns
_MOST = 1 << 26  # bytes that wait to be fetched; with more of them, processes wait too
_IDLE, _AT_WORK = 1.0, 0.1  # seconds between looks at processes that say nothing
Item = bytes | tuple[int, Rows]  # packed frames, or the rows of a shard


class Relay:
    """The processes of a node.

    Parameters
    ----------
    hosted
        The workers of each process.
    shards
        Folder of the shards and their fingerprint, or where rows lie that workers read in place.
    is_team
        Whether its workers answer together.
    """

    def __init__(
        self, hosted: list[list[int]], shards: tuple[str, str] | PlacedShards, *, is_team: bool
    ) -> None:
        self._placed = shards if isinstance(shards, PlacedShards) else None
        self._is_team = is_team
        self._first: list[Frame] = []
        self._said: list[bytes] = []
        self._delivered: dict[int, Rows] = {}
        self._given: list[set[int]] = [set() for _ in hosted]  # delivered shards, by process
        self._calls: dict[int, tuple[Item, ...]] = {}  # that came before an earlier one
        self._n_calls = 0
        self._waiting: set[int] = set()  # calls, by number
        self._changed = threading.Condition()  # held to use anything here
        # What user code prints goes where that of other actors does.
        self._hosts = Hosts(hosted, self._first_frames, lambda: Path("/dev/stderr"))
        self._sums = NodeSums(len(hosted), self._send)
        if not isinstance(shards, PlacedShards) and not _sees(*shards):
            self._first.append(Frame("lacking"))
            self._say(Frame("lacking"))
        threading.Thread(target=self._listen, daemon=True).start()

    def turn(self, number: int, *items: Item) -> bytes:
        """Take items in, wait until something is said, and return all frames for the coordinator.

        Calls have numbers, since several wait at the same time: items are taken, and calls return,
        in this order.
        """
        with self._changed:
            self._calls[number] = items
            while self._n_calls in self._calls:
                self._take(self._calls.pop(self._n_calls))
                self._n_calls += 1
            self._waiting.add(number)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._may_return(number))
            self._waiting.remove(number)
            said, self._said = self._said, []
            self._changed.notify_all()
        return b"".join(said)

    def beat(self) -> bytes:
        """Signs of life of all processes."""
        with self._changed:
            signs = [
                Frame(
                    "sign",
                    {
                        "workers": self._hosts.hosted[sign.place],
                        "doing": sign.doing and sign.doing._asdict(),
                        "is_stopped": sign.is_stopped,
                        "is_needed": self._sums.is_busy(sign.place),
                    },
                )
                for sign in self._hosts.signs()
            ]
        return b"".join(map(packed_frame, signs))

    def forget(self) -> None:
        """Remove what was copied of rows in place on this node."""
        if self._placed is not None:
            forget(self._placed)

    def _may_return(self, number: int) -> bool:
        is_first = number == min(self._waiting) and number < self._n_calls
        return is_first and (bool(self._said) or len(self._waiting) > CALLS_HELD)

    # ------------------------------------------------------------ to processes

    def _first_frames(self, place: int) -> list[Frame]:
        self._given[place].clear()
        return [*self._first, Frame("host", {"worker": FOR_ALL, "attempt": 0})]

    def _take(self, items: tuple[Item, ...]) -> None:
        for item in items:
            if isinstance(item, tuple):
                number, rows = item
                self._delivered[number] = rows
            else:
                for frame in frames_in(item):
                    self._pass_on(frame)

    def _pass_on(self, frame: Frame) -> None:
        if frame.kind in ("device", "setup"):
            self._first.append(frame)
            return
        worker = frame.fields["worker"]
        if frame.kind == "host":
            self._hosts.start(**frame.fields)
        elif frame.kind == "end":
            others = self._hosts.kill(worker)
            self._gone(self._hosts.place_of(worker))
            for lost in others:
                self._say(Frame("lost", lost._asdict()))
        elif self._is_for_all(frame):
            self._sums.begin(frame, self._hosts.places, time.monotonic())
        else:
            self._send(self._hosts.place_of(worker), frame)

    def _is_for_all(self, frame: Frame) -> bool:
        """Whether a frame asks for a sum that may be put together. Coded ones are a worker's own.

        A worker whose process has just ended gets nothing.
        """
        is_plain = frame.kind == "evaluate" and "coefficients" not in frame.arrays
        is_there = self._hosts.place_of(frame.fields["worker"]) in self._hosts.places
        return self._is_team and is_plain and is_there

    def _send(self, place: int, frame: Frame) -> None:
        """Send a frame, and before it rows that the process needs and does not have."""
        for number in frame.fields["shards"]:
            if number in self._delivered and number not in self._given[place]:
                self._given[place].add(number)
                rows = self._delivered[number]
                self._hosts.send(place, Frame("rows", {"number": number}, rows))
        self._hosts.send(place, frame)

    # ------------------------------------------------------------ from processes

    def _listen(self) -> None:
        """Hear processes for ever. If that fails, nobody else could: the actor ends."""
        try:
            while True:
                arrived = self._hosts.arrived(_IDLE if self._sums.is_idle else _AT_WORK)
                with self._changed:
                    for place, told in self._hosts.told(arrived):
                        self._hear(place, told)
                    self._sums.help(self._hosts.places, time.monotonic())
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: sum(map(len, self._said)) < _MOST)
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)

    def _hear(self, place: int, told: Frame | WorkerLost) -> None:
        if isinstance(told, WorkerLost):
            self._gone(place)
            self._say(Frame("lost", told._asdict()))
            return
        worker = told.fields.get("worker")
        if worker != FOR_ALL:
            more = {"process": place} if told.kind == "ready" else {}
            self._say(Frame(told.kind, {**told.fields, **more}, told.arrays))
        elif told.kind == "values":
            total = self._sums.take(place, told, time.monotonic())
            if total is not None:
                self._say(total)
        elif told.kind != "ready":  # an error, or a warning: of one of its workers
            self._say(Frame(told.kind, {**told.fields, "worker": self._hosts.first_of(place)}))

    def _gone(self, place: int) -> None:
        """Forget what workers of a place were asked for; others do what it was to do for others."""
        self._sums.drop(self._hosts.hosted[place])
        self._sums.gone(place, self._hosts.places, time.monotonic())

    def _say(self, frame: Frame) -> None:
        self._said.append(packed_frame(frame))


def _sees(folder: str, fingerprint: str) -> bool:
    """Whether this node sees the folder with these shards."""
    try:
        return ShardSet.open(folder).fingerprint == fingerprint
    except (BadInputError, OSError):
        return False
