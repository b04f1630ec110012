"""What a run tells of its progress: phase, time left, workers, and what is known of its draws."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from quorate.engines.drive import Engine
from quorate.errors import SingularCovarianceError
from quorate.numerics.named_arrays import AnyArray
from quorate.protocol.supervisor import Supervisor
from quorate.protocol.timeline import Timeline
from quorate.results.summary import slow_in_words
from quorate.run.progress import Health, Pace, Phase, Progress, WorkerProgress
from quorate.run.settings import Settings
from quorate.run.view import View

_LEAST_WAIT = 1.0  # seconds between two looks at the draws
_LOOKING = 0.05  # share of the time that looks may take
_MANY = 200_000  # draws beyond which the ESS is taken to grow with their number
_DIVERGENCES = "divergences"  # in the state of a chain

HowFar = tuple[Phase, int, int | None]  # what a run does, how much of it is done, and of how much


@dataclass
class Sent:
    """What workers have sent: blocks or answers, and draws or points of single shards."""

    blocks: Counter[int] = field(default_factory=Counter)
    draws: Counter[int] = field(default_factory=Counter)


class Telling:
    """Makes the progress of one run.

    Parameters
    ----------
    is_compiled
        Whether workers compile the model first.
    """

    def __init__(
        self,
        view: View,
        supervisor: Supervisor,
        settings: Settings,
        *,
        is_compiled: bool,
    ) -> None:
        self._view, self._supervisor = view, supervisor
        self._settings, self._is_compiled = settings, is_compiled
        self._looks, self._pace = Looks(view), Pace()

    def progress(
        self, engine: Engine, now: float, how_far: HowFar, sent: Sent, timeline: Timeline
    ) -> Progress:
        """The progress at the time `now`."""
        held, n_workers = self._view.scheme.allocation.held, self._settings.workers
        status = [self._supervisor.status(k) for k in range(n_workers)]
        phase, done, total = how_far
        if not done and not self._supervisor.has_begun:
            phase, total = Phase.STARTING, n_workers
        elif self._is_compiled and not sent.blocks:
            phase, total = Phase.COMPILING, None
        return Progress(
            seconds=now,
            draws=self._view.n_draws,
            target=self._settings.draws,
            phase=phase,
            done=done,
            total=total,
            seconds_left=self._pace.seconds_left(now, phase, done, total),
            workers=tuple(
                WorkerProgress(status[k], held[k], sent.blocks[k], sent.draws[k], engine.pid(k))
                for k in range(n_workers)
            ),
            notes=tuple(timeline.notes),
            health=self._health(now, [sent.blocks[k] for k in range(n_workers)], timeline),
        )

    def _health(self, now: float, blocks: list[int], timeline: Timeline) -> Health:
        ess, r_hat = self._looks.at(now)
        gone, method = self._supervisor.gone, self._settings.chosen_method
        slow = slow_in_words(blocks, gone, method, timeline.spoken_for)
        divergences = _divergences(self._supervisor.states.values())
        return Health(ess, r_hat, divergences, "".join(slow))


class Looks:
    """Looks at the draws now and then, and remembers what it saw."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._seen: tuple[float | None, float | None] = (None, None)
        self._n_seen = 0  # draws at the last look
        self._next = 0.0

    def at(self, now: float) -> tuple[float | None, float | None]:
        """The smallest ESS and the largest R-hat, as far as they are known."""
        n_draws = self._view.n_draws
        ess, r_hat = self._seen
        if n_draws > _MANY and ess is not None:
            return ess * n_draws / self._n_seen, r_hat
        if now >= self._next and n_draws:
            start = time.perf_counter()
            self._seen, self._n_seen = self._look(), n_draws
            took = time.perf_counter() - start
            self._next = now + max(_LEAST_WAIT, took / _LOOKING)
        return self._seen

    def _look(self) -> tuple[float | None, float | None]:
        try:
            ess = float(np.min(self._view.ess()))
        except SingularCovarianceError:
            return None, None  # too few draws for weights
        if not np.isfinite(ess):
            return None, None
        r_hat = float(np.max(self._view.r_hat()))
        return ess, r_hat if np.isfinite(r_hat) else None


def _divergences(states: Iterable[Mapping[str, AnyArray]]) -> int:
    """Divergences of all chains, as far as their last states tell."""
    return sum(
        int(array)
        for state in states
        for name, array in state.items()
        if name.rpartition("/")[2] == _DIVERGENCES
    )
