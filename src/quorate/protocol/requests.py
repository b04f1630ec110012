"""Who was asked for which part of a pass, and when: what is late is asked of another worker."""

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from statistics import median

_LATE = 2.0  # times the usual time after which a part is asked of another worker
_RECENT = 64  # times from which the usual one is known
# Lane, question, first point and part; for surveys -1, shard, 0, 0
Key = tuple[int, int, int, int]


class Requests:
    """Who was asked for what, and when. Knows how long an answer takes as a rule."""

    def __init__(self) -> None:
        self._asked: dict[Key, dict[int, float]] = {}
        self._times: deque[float] = deque(maxlen=_RECENT)
        self._paces: dict[int, float] = {}  # seconds for each key, of a worker's last answer

    def choose(self, worker: int, keys: Iterable[Key], now: float) -> Key | None:
        """The first that nobody works on; else of those that are late, one with few at work."""
        late: list[tuple[int, float, Key]] = []
        for key in keys:
            asked = self._asked.get(key)
            if not asked:
                self._asked[key] = {worker: now}
                return key
            since = max(asked.values())
            if worker not in asked and self._is_late(since, now):
                late.append((len(asked), since, key))
        if not late:
            return None
        chosen = min(late)[2]
        self._asked[chosen][worker] = now
        return chosen

    def add(self, worker: int, keys: Iterable[Key], now: float) -> int:
        """Ask `worker` for these too, up to one that another works on; returns how many."""
        n = 0
        for n, key in enumerate(keys, 1):
            if worker not in self._asked.setdefault(key, {worker: now}):
                return n - 1
        return n

    def n_within(self, worker: int, seconds: float) -> int:
        """How many keys a worker answers in so many seconds, by its last answer; at least 1."""
        pace = self._paces.get(worker, inf)
        return max(int(seconds / max(pace, 1e-9)), 1)

    def answered(self, worker: int, keys: Sequence[Key], now: float) -> None:
        """Note that `worker` has answered for keys that it was asked for together."""
        found = [self._asked.get(key, {}).pop(worker, None) for key in keys]
        since = next((moment for moment in found if moment is not None), None)
        if since is not None:
            self._times.append(now - since)
            self._paces[worker] = (now - since) / len(keys)

    def take_back(self, worker: int) -> None:
        """Forget what `worker` was asked for."""
        for asked in self._asked.values():
            asked.pop(worker, None)

    def forget(self, lane: int, question: int) -> None:
        """Forget a question that is answered."""
        for key in [key for key in self._asked if key[:2] == (lane, question)]:
            del self._asked[key]

    def next_late(self, now: float) -> float:
        """When the next of them will be late; infinity if that is not known."""
        moments = (max(since.values()) + self._patience for since in self._asked.values() if since)
        return min((moment for moment in moments if moment > now), default=inf)

    @property
    def _patience(self) -> float:
        return _LATE * median(self._times) if self._times else inf

    def _is_late(self, since: float, now: float) -> bool:
        return now >= since + self._patience
