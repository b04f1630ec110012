"""Carries messages between the supervisor of a run and the workers of an engine."""

from collections.abc import Callable, Iterator
from typing import Protocol

from quorate.protocol.messages import (
    Command,
    DeadlinePassed,
    Event,
    Kill,
    Start,
    Stop,
    Tick,
    Work,
)
from quorate.protocol.supervisor import Supervisor

_LONGEST_WAIT = 0.1  # seconds between two looks at the clock


class Engine(Protocol):
    """Where workers live. Messages of a superseded attempt are dropped."""

    def now(self) -> float:
        """Seconds since the run began."""

    def start(self, worker: int, attempt: int) -> None:
        """Start a worker; a `WorkerJoined` follows."""

    def send(self, task: Work) -> None:
        """Give a task to its worker."""

    def poll(self, timeout: float) -> list[Event]:
        """Events so far; none if nothing happens within `timeout` seconds."""

    def kill(self, worker: int) -> None:
        """End a worker at once, if it is still there."""

    def pid(self, worker: int) -> int | None:
        """Id of the process of a worker; None if it has none on this machine."""

    def close(self) -> None:
        """End all workers, and leave nothing behind."""


Record = Callable[[float, list[Command]], None]


def drive(
    supervisor: Supervisor, engine: Engine, record: Record, stop_asked: Callable[[float], bool]
) -> Iterator[float]:
    """Run until the supervisor stops; yields the time, at least ten times a second.

    `record` gets all commands before the first of them is carried out, so that accepted blocks are
    journaled first. `stop_asked` gets the time and may end the run.
    """

    def carried_out(commands: list[Command]) -> bool:
        """Carry commands out; whether the run has ended with them."""
        record(engine.now(), commands)
        for command in commands:
            _perform(command, engine)
        return is_end(commands)

    is_ended = carried_out(supervisor.begin(engine.now()))
    while not is_ended:
        now = engine.now()
        yield now
        wait = min(max(supervisor.coordinator.next_wake(now) - now, 0.0), _LONGEST_WAIT)
        events: list[Event] = [DeadlinePassed()] if stop_asked(now) else engine.poll(wait)
        is_ended = carried_out(_commands(supervisor, events, engine.now()))
        if not is_ended and supervisor.is_due(engine.now()):
            # Workers have their tasks now, so that a tick may take its time
            is_ended = carried_out(supervisor.handle(Tick(), engine.now()))
    yield engine.now()


def _commands(supervisor: Supervisor, events: list[Event], now: float) -> list[Command]:
    """Commands for all events, up to the one that ends the run."""
    commands: list[Command] = []
    for event in events:
        commands += supervisor.handle(event, now)
        if is_end(commands):
            break
    return commands


def is_end(commands: list[Command]) -> bool:
    """Whether the last of these commands ends the run."""
    return bool(commands) and isinstance(commands[-1], Stop)


def _perform(command: Command, engine: Engine) -> None:
    if isinstance(command, Work):
        engine.send(command)
    elif isinstance(command, Start):
        engine.start(command.worker, command.attempt)
    elif isinstance(command, Kill):
        engine.kill(command.worker)
