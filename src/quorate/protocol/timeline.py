"""The timeline of a run: when blocks arrived, draws were released, and workers had trouble."""

from dataclasses import dataclass, field

from quorate.protocol.messages import Block, Command, Keep, Note, Release, Stop


@dataclass
class Timeline:
    """When things happened, as an engine saw it.

    Attributes
    ----------
    block_times, block_workers
        When blocks arrived, and from whom, in order.
    block_shards
        Which shards they are of; in virtual time only.
    block_sizes
        Draws in each of them, or points; empty in virtual time, where there is one in each.
    blocks
        The blocks themselves, if virtual time was asked to keep them.
    release_times
        `release_times[l]` is T^(l+1), when global draw l was complete.
    spoken_for
        Workers whose answers came with those of another, which lives on the same node.
    notes
        What happened to workers, and when.
    finished
        Whether the run ended with all that was asked for.
    """

    block_times: list[float] = field(default_factory=list)
    block_workers: list[int] = field(default_factory=list)
    block_shards: list[tuple[int, ...]] = field(default_factory=list)
    block_sizes: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    release_times: list[float] = field(default_factory=list)
    spoken_for: set[int] = field(default_factory=set)
    notes: list[tuple[float, Note]] = field(default_factory=list)
    finished: bool = False

    def released(self, time: float, n_global: int) -> None:
        """Note that `n_global` global draws are complete now."""
        self.release_times += [time] * (n_global - len(self.release_times))

    def take(self, time: float, command: Command) -> None:
        """Note a command of the coordinator."""
        if isinstance(command, Keep):
            self.block_times.append(time)
            self.block_workers.append(command.answer.task.worker)
            self.block_sizes.append(command.answer.size)
        elif isinstance(command, Release):
            self.released(time, command.n_global)
        elif isinstance(command, Note):
            self.notes.append((time, command))
        elif isinstance(command, Stop):
            self.finished = command.finished
