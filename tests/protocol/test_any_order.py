"""The supervisor and every scheme under any order of events: nothing lost, nothing doubled.

Workers here are lists of tasks; time is a number. Every event that real workers and machines can
bring about may come at any moment.
"""

from collections import Counter, deque

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from helpers import schemes as make
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.messages import (
    Beat,
    Block,
    Doing,
    Keep,
    Kill,
    Note,
    Release,
    Start,
    Stop,
    Task,
    Tick,
    WorkerFailed,
    WorkerJoined,
    WorkerLost,
)
from quorate.protocol.patience import Limits

DIM, DRAWS = 2, 12
SHAPES = [("cmc", 3, 1), ("grouped", 4, 2), ("grouped", 5, 2), ("coded", 4, 2)]


def payload(task, draw):
    """What a worker sends for one draw: it says which draw it is."""
    numbers = [[shard, task.chain * 1000 + draw] for shard in task.shards]
    return np.array(numbers, dtype=float)


class FakeWorkers:
    """Workers that do as they are told, unless told otherwise."""

    def __init__(self, supervisor, is_coded):
        self.supervisor = supervisor
        self.is_coded = is_coded
        self.now = 0.0
        self.joined, self.starting = set(), set()
        self.tasks = {}
        self.kept = Counter()
        self.reached = {}
        self.started_from = {}
        self.released, self.stopped = 0, None
        self.notes = []

    def tell(self, event):
        self.obey(self.supervisor.handle(event, self.now))

    def obey(self, commands):
        for command in commands:
            if isinstance(command, Start):
                assert command.worker not in self.joined
                self.starting.add(command.worker)
                self.tasks[command.worker] = deque()
            elif isinstance(command, Kill):
                self.joined.discard(command.worker)
                self.starting.discard(command.worker)
            elif isinstance(command, Task):
                assert command.worker in self.joined
                self.take(command)
            elif isinstance(command, Keep):
                self.keep(command.answer)
            elif isinstance(command, Release):
                assert self.stopped is None
                assert command.n_global > self.released
                self.released = command.n_global
            elif isinstance(command, Note):
                self.notes.append(command)
            elif isinstance(command, Stop) and self.stopped is None:
                self.stopped = command.finished

    def take(self, task):
        """A worker that was started anew has to be told where its chains stand."""
        chain = task.worker, task.shards, task.chain
        known = self.tasks[task.worker]
        stands_at = max(
            [self.reached.get(chain, 0)]
            + [t.first_draw + t.n_draws for t, _ in known if (t.shards, t.chain) == chain[1:]]
        )
        assert task.first_draw == stands_at
        if task.start is not None:
            assert task.start["index"] == task.first_draw
        known.append([task, task.first_draw])

    def keep(self, block):
        chain = block.task.worker, block.task.shards, block.task.chain
        assert block.first_draw == self.reached.get(chain, 0)
        self.reached[chain] = block.first_draw + len(block.payload)
        for i in range(len(block.payload)):
            self.kept[(*chain, block.first_draw + i)] += 1

    def block(self, worker, n):
        """The next block of a worker, of up to n draws; None where it has nothing to do."""
        if not self.tasks[worker]:
            return None
        task, first = self.tasks[worker][0]
        n = min(n, task.first_draw + task.n_draws - first)
        self.tasks[worker][0][1] += n
        if first + n == task.first_draw + task.n_draws:
            self.tasks[worker].popleft()
        draws = np.stack([payload(task, draw) for draw in range(first, first + n)])
        if self.is_coded:
            draws = draws[:, 0]
        return Block(task._replace(start=None), first, draws, state={"index": np.array(first + n)})


class AnyOrder(RuleBasedStateMachine):
    """Events in any order; what must hold after each of them."""

    workers = st.integers(0, 4)

    @initialize(shape=st.sampled_from(SHAPES), depth=st.integers(1, 2))
    def begin(self, shape, depth):
        name, n_workers, redundancy = shape
        scheme = make.started(name, n_workers, redundancy, DIM, 1.0)
        self.n_workers = n_workers
        coordinator = Coordinator(scheme, DRAWS, queue_depth=depth)
        self.supervisor = make.supervisor_of(coordinator, DIM, Limits(restarts=2, failures=2))
        self.fake = FakeWorkers(self.supervisor, name == "coded")
        self.fake.obey(self.supervisor.begin(0.0))

    def one_of(self, workers, k):
        chosen = sorted(workers)
        return chosen[k % len(chosen)] if chosen and self.fake.stopped is None else None

    @rule(k=workers)
    def joins(self, k):
        worker = self.one_of(self.fake.starting, k)
        if worker is not None:
            self.fake.starting.discard(worker)
            self.fake.joined.add(worker)
            self.fake.tell(WorkerJoined(worker))

    @rule(k=workers, n=st.integers(1, 5))
    def sends(self, k, n):
        worker = self.one_of(self.fake.joined, k)
        if worker is not None and (block := self.fake.block(worker, n)) is not None:
            self.fake.tell(block)

    @rule(k=workers, how=st.sampled_from(["nan", "shape", "gap", "again"]))
    def sends_nonsense(self, k, how):
        worker = self.one_of(self.fake.joined, k)
        if worker is None or (block := self.fake.block(worker, 2)) is None:
            return
        draws = block.payload
        if how == "nan":
            block = block._replace(payload=np.full_like(draws, np.nan))
        elif how == "shape":
            block = block._replace(payload=np.zeros((len(draws), 9, 9)))
        else:
            block = block._replace(first_draw=block.first_draw + (1 if how == "gap" else -1))
        before = self.fake.kept.copy()
        self.fake.tell(block)
        if how != "shape":  # the very first block sets the shape
            assert self.fake.kept == before

    @rule(k=workers)
    def is_lost(self, k):
        worker = self.one_of(self.fake.joined | self.fake.starting, k)
        if worker is not None:
            self.fake.joined.discard(worker)
            self.fake.starting.discard(worker)
            self.fake.tell(WorkerLost(worker))

    @rule(k=workers)
    def fails(self, k):
        worker = self.one_of(self.fake.joined, k)
        if worker is not None:
            self.fake.tell(WorkerFailed(worker, 0, "ZeroDivisionError", "", ""))
            self.fake.joined.discard(worker)
            self.fake.tell(WorkerLost(worker))

    @rule(k=workers, step=st.sampled_from(["", "draw"]), is_stopped=st.booleans())
    def beats(self, k, step, is_stopped):
        worker = self.one_of(self.fake.joined | self.fake.starting, k)
        if worker is not None:
            self.fake.tell(Beat(worker, Doing(step, 0.5, {"draw": 1e-3}), is_stopped))

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.4, 50.0]))
    def time_passes(self, seconds):
        self.fake.now += seconds
        if self.fake.stopped is None:
            self.fake.tell(Tick())

    @invariant()
    def no_draw_is_counted_twice(self):
        assert all(n == 1 for n in self.fake.kept.values())

    @invariant()
    def what_is_kept_is_what_the_scheme_has(self):
        counts = self.supervisor.coordinator.scheme.received.draw_counts()
        assert counts.received == sum(len(shards) for _, shards, _, _ in self.fake.kept)
        assert self.supervisor.coordinator.n_global >= self.fake.released

    def teardown(self):
        """When nothing more happens to the workers that are left, the run comes to its end."""
        fake = getattr(self, "fake", None)
        for _ in range(400 if fake else 0):
            if fake.stopped is not None:
                break
            fake.now += 0.5
            fake.tell(Tick())
            for worker in sorted(fake.starting):
                fake.starting.discard(worker)
                fake.joined.add(worker)
                fake.tell(WorkerJoined(worker))
            for worker in sorted(fake.joined):
                if fake.stopped is None and (block := fake.block(worker, 3)) is not None:
                    fake.tell(block)
        if fake:
            assert fake.stopped is not None
            if fake.stopped:
                assert fake.released == DRAWS
            else:
                assert any(note.what == "retired" for note in fake.notes)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=60)
