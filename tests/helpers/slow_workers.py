"""Worker processes in virtual time, some slower than others, that give signs of life."""

from collections import deque

import numpy as np

from quorate.protocol.messages import (
    Beat,
    Block,
    Doing,
    Kill,
    Note,
    Start,
    Stop,
    Task,
    Tick,
    WorkerJoined,
)

STEP = 0.5  # seconds between two looks
WARM_UP = 5  # evaluations


class SlowProcess:
    """A process whose workers take turns, one evaluation for each draw.

    `seconds(n)` is how long its n-th evaluation takes. A process that is frozen does nothing more.
    """

    def __init__(self, workers, seconds, dim):
        self.workers, self.seconds, self.dim = workers, seconds, dim
        self.tasks = {worker: deque() for worker in workers}
        self.is_warm = set()
        self.longest = {}
        self.n_done = 0
        self.job = self.begun = self.ends = None
        self.is_frozen = False

    def take(self, task):
        self.tasks[task.worker].append([task, task.first_draw])

    def advance(self, now):
        """Blocks that are ready by now."""
        blocks = []
        while not self.is_frozen:
            if self.job is None:
                self.job = self._next_job()
                if self.job is None:
                    self.begun = None
                    return blocks
                start = now - STEP if self.begun is None else self.ends
                self._begin(start)
            if self.ends > now:
                return blocks
            self.longest["log_density"] = max(
                self.ends - self.begun, self.longest.get("log_density", 0.0)
            )
            self.n_done += 1
            self.job[2] -= 1
            if self.job[2] == 0:
                blocks += self._finished()
                self.job = None
            else:
                self._begin(self.ends)
        return blocks

    def beat(self, now, worker):
        if self.job is None:
            return Beat(worker, Doing("", 0.0, dict(self.longest)))
        return Beat(worker, Doing("log_density", now - self.begun, dict(self.longest)))

    def _begin(self, start):
        self.begun = start
        self.ends = start + self.seconds(self.n_done)

    def _next_job(self):
        for worker in [w for w in self.workers if w not in self.is_warm] + list(self.workers):
            if self.tasks[worker]:
                self.workers = [w for w in self.workers if w != worker] + [worker]  # turns
                task, first = self.tasks[worker][0]
                n = min(4, task.first_draw + task.n_draws - first)
                return [worker, n, n + (0 if worker in self.is_warm else WARM_UP)]
        return None

    def _finished(self):
        worker, n, _ = self.job
        self.is_warm.add(worker)
        task, first = self.tasks[worker][0]
        self.tasks[worker][0][1] += n
        if first + n == task.first_draw + task.n_draws:
            self.tasks[worker].popleft()
        draws = np.zeros((n, len(task.shards), self.dim)) + 0.1 * worker
        return [Block(task._replace(start=None), first, draws, state={"index": np.array(first)})]


def run_in_virtual_time(supervisor, processes, freeze=None):
    """Run to the end; gives what happened to workers with its times, and whether the run finished.

    It also ends when a worker is killed. `freeze` is a pair: a process, and when it stops for good.
    """
    home = {worker: process for process in processes for worker in process.workers}
    now, commands = 0.0, supervisor.begin(0.0)
    while True:
        stops = [command for command in commands if isinstance(command, Stop)]
        happened = [(now, command) for command in commands if isinstance(command, Note | Kill)]
        if stops or happened:
            return happened, any(stop.finished for stop in stops)
        for task in [command for command in commands if isinstance(command, Task)]:
            home[task.worker].take(task)
        started = [command.worker for command in commands if isinstance(command, Start)]
        now += STEP
        if freeze is not None and now >= freeze[1]:
            freeze[0].is_frozen = True
        events = [*map(WorkerJoined, started), *_events(processes, now), Tick()]
        commands = [command for event in events for command in supervisor.handle(event, now)]


def _events(processes, now):
    """Blocks that are ready, and signs of life once a second."""
    for process in processes:
        yield from process.advance(now)
        if process.is_frozen:
            yield from (Beat(worker, is_stopped=True) for worker in process.workers)
        elif now % 1.0 == 0.0:
            yield from (process.beat(now, worker) for worker in process.workers)
