"""The state of a run as the live page shows it: JSON values, from the journal alone."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from quorate.errors import JournalError, QuorateError
from quorate.journal import Checked, Resumed
from quorate.journal import file as journal_file
from quorate.live.lanes import lanes
from quorate.live.parameters import parameters
from quorate.live.writer import can_know_writers, writer
from quorate.results.html import first_line
from quorate.run.blocks import Blocks
from quorate.run.history import History
from quorate.run.pass_log import PHASES
from quorate.run.slow import slow_workers

_LOOK_EVERY = 0.5  # seconds
_PAUSES = 9  # pause that many times as long as a look took: the cores are for the workers
_MOST_EVENTS = 30
_KILLED = "not running: no process on this machine makes it"


class LiveView:
    """Looks at a run repeatedly, from one thread.

    Parameters
    ----------
    folder
        Folder of the run; the journal may not exist yet.
    clock
        Returns the time in seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._open = ExitStack()
        self._history: History | None = None
        self._last_news = self._next_look = 0.0
        self._shown: dict[str, Any] = {}

    def close(self) -> None:
        """Close the journal."""
        self._open.close()

    def look(self) -> dict[str, Any]:
        """The state of the run, at most a few seconds old."""
        began = self._clock()
        if began >= self._next_look:
            self._shown = {"run": self._folder.absolute().name, **self._look()}
            took = self._clock() - began
            self._next_look = began + took + max(_LOOK_EVERY, _PAUSES * took)
        return self._shown

    def _look(self) -> dict[str, Any]:
        writing = writer(self._folder)
        try:
            if self._history is None:
                self._history = self._open.enter_context(History(self._folder))
            known = self._history.seconds
            self._history.read()
        except JournalError as error:
            is_there = self._history is not None or (self._folder / journal_file.NAME).exists()
            return {"status": "unreadable" if is_there else "not begun", "trouble": str(error)}
        except QuorateError as error:
            return {"status": "unreadable", "trouble": str(error)}
        if self._history.seconds > known:
            self._last_news = self._clock()
        return self._state(self._history, writing)

    def _state(self, history: History, writing: int | None) -> dict[str, Any]:
        settings, blocks = history.settings, history.blocks()
        running = history.stopped is None and (writing is not None or not can_know_writers())
        silence = self._clock() - self._last_news if running else 0.0
        seconds = history.seconds + silence
        return {
            "status": "running" if running else "ended",
            "reason": None if running else history.stopped or _KILLED,
            "can_stop": running and writing is not None,
            "method": settings.method,
            "phase": PHASES.get(history.phase, ""),
            "passes": history.n_passes,
            "scheme": settings.scheme_options.name,
            "redundancy": settings.shards_per_worker,
            "sampler": history.configuration["settings"]["sampler"],
            "seconds": seconds,
            "draws": history.n_global,
            "target": settings.draws,
            "target_ess": settings.chosen_until.ess,
            "seconds_left": _seconds_left(history, blocks, seconds) if running else None,
            "cells": blocks.cells,
            "lanes": lanes(history, blocks, seconds),
            "slow": "".join(slow_workers(history, blocks)),
            "sittings": [event.time for event in history.events if isinstance(event, Resumed)],
            "events": _events(history),
            "dropped": history.n_dropped,
            **parameters(history, blocks),
        }


def _seconds_left(history: History, blocks: Blocks, seconds: float) -> float | None:
    """Seconds until the last draw, at the speed of this sitting."""
    times, counts = blocks.releases
    recent = times >= history.sitting
    times, counts = times[recent], counts[recent]
    if len(times) < 2 or seconds <= times[0]:
        return None
    speed = (counts[-1] - counts[0]) / (seconds - times[0])
    return float((history.settings.draws - counts[-1]) / speed)


def _events(history: History) -> list[dict[str, Any]]:
    """The last events in words, the latest first."""
    return [
        {
            "time": event.time,
            "worker": event.worker,
            "what": event.word,
            "text": first_line(event.verdict if isinstance(event, Checked) else event.text),
        }
        for event in history.events[-_MOST_EVENTS:][::-1]
    ]
