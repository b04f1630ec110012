"""Carries messages between the supervisor of a run and the workers of an engine."""

from collections.abc import Callable, Iterator
from typing import Protocol

from quorate.protocol.messages import (
    Command,
    DeadlinePassed,
    Evaluate,
    Event,
    Kill,
    Start,
    Stop,
    Task,
    Tick,
)
from quorate.protocol.supervisor import Supervisor

_LONGEST_WAIT = 0.1  # seconds between two looks at the clock


class Engine(Protocol):
    """Where workers live. What a superseded attempt still says is never heard."""

    def now(self) -> float:
        """Seconds since the run began."""

    def start(self, worker: int, attempt: int) -> None:
        """Start a worker; a `WorkerJoined` follows."""

    def send(self, task: Task | Evaluate) -> None:
        """Give a task to its worker."""

    def poll(self, timeout: float) -> list[Event]:
        """What has happened; nothing, if nothing does within `timeout` seconds."""

    def kill(self, worker: int) -> None:
        """End a worker, at once; no harm if it is gone."""

    def pid(self, worker: int) -> int | None:
        """Of the process that a worker lives in; None if it has none on this machine."""

    def close(self) -> None:
        """End all workers, and leave nothing behind."""

    def __enter__(self) -> "Engine": ...

    def __exit__(self, *_: object) -> None: ...


Record = Callable[[float, list[Command]], None]


def drive(
    supervisor: Supervisor, engine: Engine, record: Record, stop_asked: Callable[[float], bool]
) -> Iterator[float]:
    """Run until the supervisor stops; yields the time, ten times a second at least.

    `record` is given all commands before the first of them is carried out, so that what counts
    has been kept. `stop_asked` is told the time and may end the run.
    """
    commands = supervisor.begin(engine.now())
    while True:
        now = engine.now()
        record(now, commands)
        for command in commands:
            _perform(command, engine)
        yield now
        if commands and isinstance(commands[-1], Stop):
            return
        events = [DeadlinePassed()] if stop_asked(engine.now()) else engine.poll(_LONGEST_WAIT)
        commands = _commands(supervisor, [*events, Tick()], engine.now())


def _commands(supervisor: Supervisor, events: list[Event], now: float) -> list[Command]:
    """What is to be done about all events, up to the one that ends the run."""
    commands: list[Command] = []
    for event in events:
        commands += supervisor.handle(event, now)
        if commands and isinstance(commands[-1], Stop):
            break
    return commands


def _perform(command: Command, engine: Engine) -> None:
    if isinstance(command, Task | Evaluate):
        engine.send(command)
    elif isinstance(command, Start):
        engine.start(command.worker, command.attempt)
    elif isinstance(command, Kill):
        engine.kill(command.worker)
