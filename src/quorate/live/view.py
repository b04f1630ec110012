"""What the live page shows of a run, in values of JSON: from the journal alone."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from quorate.errors import JournalError, QuorateError
from quorate.journal import file as journal_file
from quorate.live.lanes import lanes
from quorate.live.parameters import parameters
from quorate.live.writer import can_know_writers, writer
from quorate.run.history import Blocks, History

_LOOK_EVERY = 0.5  # seconds
_PAUSES = 9  # as long as a look took: the work is for the workers
_MOST_EVENTS, _MOST_LETTERS = 30, 200
_NOBODY = "no process of this machine goes on with it"


class View:
    """Looks at a run again and again, from one thread.

    Parameters
    ----------
    folder
        Of the run; its journal need not be there yet.
    clock
        Seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._open = ExitStack()
        self._story: History | None = None
        self._last_news = self._next_look = 0.0
        self._shown: dict[str, Any] = {}

    def close(self) -> None:
        """Close the journal."""
        self._open.close()

    def look(self) -> dict[str, Any]:
        """How the run is now, or was a moment ago."""
        began = self._clock()
        if began >= self._next_look:
            self._shown = {"run": self._folder.absolute().name, **self._look()}
            took = self._clock() - began
            self._next_look = began + took + max(_LOOK_EVERY, _PAUSES * took)
        return self._shown

    def _look(self) -> dict[str, Any]:
        writing = writer(self._folder)
        try:
            if self._story is None:
                self._story = self._open.enter_context(History(self._folder))
            known = self._story.seconds
            self._story.read()
        except JournalError as error:
            is_there = self._story is not None or (self._folder / journal_file.NAME).exists()
            return {"status": "unreadable" if is_there else "not begun", "trouble": str(error)}
        except QuorateError as error:
            return {"status": "unreadable", "trouble": str(error)}
        if self._story.seconds > known:
            self._last_news = self._clock()
        return self._told(self._story, writing)

    def _told(self, history: History, writing: int | None) -> dict[str, Any]:
        settings, blocks = history.settings, history.blocks()
        running = history.stopped is None and (writing is not None or not can_know_writers())
        silence = self._clock() - self._last_news if running else 0.0
        seconds = history.seconds + silence
        return {
            "status": "running" if running else "ended",
            "reason": None if running else history.stopped or _NOBODY,
            "can_stop": running and writing is not None,
            "scheme": settings.scheme,
            "redundancy": settings.shards_per_worker,
            "sampler": str(history.configuration.get("sampler", "")),
            "seconds": seconds,
            "draws": history.n_global,
            "target": settings.draws,
            "target_ess": settings.target_ess,
            "seconds_left": _seconds_left(history, blocks, seconds) if running else None,
            "cells": blocks.cells,
            "lanes": lanes(history, blocks, seconds),
            "sittings": [event.time for event in history.events if event.what == "resumed"],
            "events": _events(history),
            "dropped": history.n_dropped,
            **parameters(history, blocks),
        }


def _seconds_left(history: History, blocks: Blocks, seconds: float) -> float | None:
    """Until the last draw, at the speed of this sitting."""
    times, counts = blocks.releases
    began = max((event.time for event in history.events if event.what == "resumed"), default=0.0)
    times, counts = times[times >= began], counts[times >= began]
    if len(times) < 2 or seconds <= times[0]:
        return None
    speed = (counts[-1] - counts[0]) / (seconds - times[0])
    return float((history.settings.draws - counts[-1]) / speed)


def _events(history: History) -> list[dict[str, Any]]:
    """What happened last, in words, the latest first."""
    return [
        {
            "time": event.time,
            "worker": event.worker,
            "what": event.what,
            "text": _first_line(event.details.get("text", "") or event.details.get("reason", "")),
        }
        for event in history.events[-_MOST_EVENTS:][::-1]
    ]


def _first_line(text: object) -> str:
    return "".join(str(text).strip().splitlines()[:1])[:_MOST_LETTERS]
