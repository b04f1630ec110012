"""Who was asked for which part of a pass, and when: what is late is asked of another worker.

Every step takes a time that does not depend on how much was asked for: a pass of a hundred thousand
workers makes as many requests.
"""

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from math import inf

_LATE = 2.0  # times the usual time after which a part is asked of another worker
_QUICKER = 10.0  # times, of a worker that does at once what others are at
_RECENT = 64  # times from which the usual one is known
# Lane, question, first point and part; for surveys -1, shard, 0, 0
Key = tuple[int, int, int, int]


class Requests:
    """Who was asked for what, and when. Knows how long an answer takes as a rule."""

    def __init__(self) -> None:
        self._asked: dict[Key, dict[int, float]] = {}
        self._of_question: dict[tuple[int, int], dict[Key, None]] = {}
        self._of_worker: dict[int, dict[Key, None]] = {}
        # When each was asked for last, in this order, without those that are late. The first entry
        # of a plain dict is slow to find once many before it are gone
        self._waiting: OrderedDict[Key, float] = OrderedDict()
        self._late: dict[Key, None] = {}
        self._newly_late: list[Key] = []
        self._times: deque[float] = deque()  # the last ones
        self._in_order: list[float] = []  # the same, sorted
        self._paces: dict[int, float] = {}  # seconds for each key, of a worker's last answer
        self._patience = inf

    def choose(self, worker: int, keys: Iterable[Key], now: float) -> Key | None:
        """The first that nobody works on; else one that is late, or with much slower workers.

        Of several such keys, one with few workers is chosen.
        """
        self._pass_time(now)
        late: list[tuple[int, float, Key]] = []
        for key in keys:
            asked = self._asked.get(key)
            if not asked:
                self._ask(worker, key, now)
                return key
            if worker not in asked and (key in self._late or self._outruns(worker, asked)):
                late.append((len(asked), max(asked.values()), key))
        if not late:
            return None
        chosen = min(late)[2]
        self._ask(worker, chosen, now)
        return chosen

    def _outruns(self, worker: int, others: Iterable[int]) -> bool:
        """Whether a worker is so much quicker than others that waiting for them makes no sense."""
        pace = self._paces.get(worker, inf)
        return all(self._paces.get(other, 0.0) > _QUICKER * pace for other in others)

    def add(self, worker: int, keys: Iterable[Key], now: float) -> int:
        """Ask `worker` for these too, up to one that another works on; returns how many."""
        n = 0
        for n, key in enumerate(keys, 1):
            asked = self._asked.get(key)
            if asked and worker not in asked:
                return n - 1
            self._ask(worker, key, now)
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
            self._took(now - since)
            self._paces[worker] = (now - since) / len(keys)
        for key in keys:
            self._of_worker.get(worker, {}).pop(key, None)
            self._wait_no_longer(key)

    def take_back(self, worker: int) -> list[Key]:
        """Forget what `worker` was asked for; returns what nobody else works on either."""
        freed = []
        for key in self._of_worker.pop(worker, ()):
            asked = self._asked[key]
            del asked[worker]
            self._wait_no_longer(key)
            if asked:
                self._late[key] = None  # a second worker was asked because it was late
            else:
                freed.append(key)
        return freed

    def forget(self, lane: int, question: int, first: int | None = None) -> None:
        """Forget a question that is answered, or the block of it that begins at point `first`."""
        keys = self._of_question.get((lane, question), {})
        for key in [key for key in keys if first in (None, key[2])]:
            del keys[key]
            for worker in self._asked.pop(key):
                self._of_worker[worker].pop(key, None)
            self._wait_no_longer(key)
        if not keys:
            self._of_question.pop((lane, question), None)

    def newly_late(self, now: float) -> list[Key]:
        """What has become late since the last call, and has not been answered."""
        self._pass_time(now)
        newly, self._newly_late = self._newly_late, []
        return [key for key in newly if key in self._late]

    def next_late(self) -> float:
        """When the next of them will be late; infinity if that is not known."""
        return next((since + self._patience for since in self._waiting.values()), inf)

    def _took(self, seconds: float) -> None:
        """Note how long an answer took."""
        self._times.append(seconds)
        insort(self._in_order, seconds)
        if len(self._times) > _RECENT:
            del self._in_order[bisect_left(self._in_order, self._times.popleft())]
        n = len(self._in_order)
        median = (self._in_order[(n - 1) // 2] + self._in_order[n // 2]) / 2
        self._patience = _LATE * median

    def _pass_time(self, now: float) -> None:
        late = []
        for key, since in self._waiting.items():
            if since + self._patience > now:
                break
            late.append(key)
        for key in late:
            del self._waiting[key]
            self._late[key] = None
        self._newly_late += late

    def _ask(self, worker: int, key: Key, now: float) -> None:
        self._asked.setdefault(key, {})[worker] = now
        self._of_question.setdefault(key[:2], {})[key] = None
        self._of_worker.setdefault(worker, {})[key] = None
        self._wait_no_longer(key)
        self._waiting[key] = now  # the last of all: time does not run backwards

    def _wait_no_longer(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._late.pop(key, None)
