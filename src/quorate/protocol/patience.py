"""How long to wait for workers: tells those that are slow from those that are dead or stuck.

A process gives signs of life whatever its code computes: no sign for some seconds means that it is
stopped or cut off. A process that lives may still be stuck in a step, such as one evaluation of the
log density. A step is stuck if it takes hundreds of times as long as the longest of its kind so
far. So a slow worker is never replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import median

from quorate.protocol.messages import Beat


@dataclass(frozen=True)
class Limits:
    """How much the supervisor tolerates.

    Parameters
    ----------
    restarts
        Losses in a row, without a block in between, after which a worker is retired.
    failures
        Errors and bad blocks within `progress` draws after which a worker is retired.
    first_delay, longest_delay
        Seconds before a worker is restarted: doubled from loss to loss.
    stopped
        Seconds that a process may be stopped, by the kernel's own word.
    silence
        Seconds without a sign of life that are always allowed.
    held
        Silence is also allowed for this many times the longest step of the kind under way: code
        may hold the interpreter's lock, which signs of life need.
    step
        Seconds that a step may always take.
    multiple
        A step is stuck beyond this many times what is usual: the longest of its kind that the
        worker has finished, or the median of what others needed, if that is longer.
    start
        Seconds until the first sign of life, and for a silent step whose length nobody knows.
    """

    restarts: int = 5
    failures: int = 3
    progress: int = 100
    first_delay: float = 0.25
    longest_delay: float = 30.0
    stopped: float = 6.0
    silence: float = 10.0
    held: float = 3.0
    step: float = 30.0
    multiple: float = 1000.0
    start: float = 60.0


@dataclass
class _Signs:
    """What one worker has let us know of itself."""

    heard: float = 0.0
    has_beaten: bool = False
    is_stopped: bool = False
    is_needed: bool = False  # by others, though it may have no task of its own
    step: str = ""  # what it is doing; empty while it waits for work
    began: float = 0.0  # when it began to
    longest: Mapping[str, float] = field(default_factory=dict)  # seconds, by kind of step


class Patience:
    """Signs of life of all workers, and who has given none for too long."""

    def __init__(self, limits: Limits, n_workers: int) -> None:
        self._limits = limits
        self._signs = [_Signs() for _ in range(n_workers)]
        self._starts: list[float] = []  # seconds until a first sign

    def started(self, worker: int, now: float) -> None:
        """A worker is being started. What is known of its steps stays."""
        self._signs[worker] = _Signs(now, longest=self._signs[worker].longest)

    def heard(self, worker: int, now: float) -> None:
        """A worker has sent something."""
        self._signs[worker].heard = now

    def beat(self, beat: Beat, now: float) -> None:
        """Take a sign of life, or the word that a process is stopped."""
        signs = self._signs[beat.worker]
        if not signs.has_beaten:
            signs.has_beaten = True
            self._starts.append(now - signs.heard)
        signs.is_stopped, signs.is_needed = beat.is_stopped, beat.is_needed
        if beat.is_stopped:
            return
        signs.heard = now
        if beat.doing is not None:
            signs.step, signs.began = beat.doing.step, now - beat.doing.seconds
            longest = beat.doing.longest
            signs.longest = {
                **signs.longest,
                **{step: max(longest[step], signs.longest.get(step, 0.0)) for step in longest},
            }

    def is_needed(self, worker: int) -> bool:
        """Whether others wait for the process of a worker, by its last sign of life."""
        return self._signs[worker].is_needed

    def forgive(self, seconds: float) -> None:
        """Allow for the time that the coordinator itself slept: workers may have slept too."""
        for signs in self._signs:
            signs.heard += seconds
            signs.began += seconds

    def complaint(self, worker: int, now: float) -> str:
        """Why a worker that has work counts as dead or stuck; an empty string if it does not."""
        signs, limits = self._signs[worker], self._limits
        silence, spent = now - signs.heard, now - signs.began
        if silence <= min(limits.stopped, limits.silence) and spent <= limits.step:
            return ""  # as nearly always: this is asked many times a second
        if silence > self._allowed_silence(worker):
            stopped = "its process is stopped, " if signs.is_stopped else ""
            return f"{stopped}no sign of life for {silence:.1f} s"
        usual = self._usual(worker) if signs.step else None
        if usual is None or spent <= max(limits.step, limits.multiple * usual):
            return ""
        return f"stuck: {signs.step} has taken {spent:.1f} s, where {usual:.2g} s is usual"

    def _allowed_silence(self, worker: int) -> float:
        limits, signs = self._limits, self._signs[worker]
        if not signs.has_beaten:
            starts = self._starts
            return max(limits.start, limits.multiple * median(starts)) if starts else inf
        if signs.is_stopped:
            return limits.stopped
        if not signs.step:
            return limits.silence
        usual = self._usual(worker)
        held = limits.start if usual is None else limits.held * usual
        return max(limits.silence, held)

    def _usual(self, worker: int) -> float | None:
        """Seconds for the step that a worker is in; None if nobody has finished one of its kind."""
        step, longest = self._signs[worker].step, self._signs[worker].longest
        known = [signs.longest[step] for signs in self._signs if step in signs.longest]
        return max(longest.get(step, 0.0), median(known)) if known else None
