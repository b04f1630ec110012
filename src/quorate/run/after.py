"""Work after a run: opens the run again, and asks workers for what needs the rows."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from threadpoolctl import threadpool_limits

from quorate._types import Progress
from quorate.data.placed import PlacedShards, Shards
from quorate.data.write import ShardSet
from quorate.engines.options import ENGINES, EngineOptions
from quorate.engines.workers.after import computed
from quorate.engines.workers.worker import Job
from quorate.errors import require
from quorate.journal import JournalReader, Resumed
from quorate.models.protocol import Model, for_workers
from quorate.numerics.streams import Streams
from quorate.protocol.after import Answers, Question, allocation_for
from quorate.protocol.allocation import Allocation, one_to_one
from quorate.protocol.messages import ShardFound
from quorate.protocol.schemes.cmc import SendDraws
from quorate.run.asking import ask_workers
from quorate.run.configuration import configuration_of, require_rows, same_shards
from quorate.run.in_place import forgotten
from quorate.run.settings import Settings
from quorate.samplers import make_sampler

_FEWEST_HOLDERS = 2  # of a shard: a slow worker then delays nothing


@dataclass(frozen=True, eq=False)
class AfterRun:
    """A run whose workers are asked about their rows. Nothing of it is journaled.

    Parameters
    ----------
    folder
        Folder of the run.
    model
        The model of the run.
    excluded
        Shards whose rows have no part in the draws. They are not asked.
    """

    folder: Path
    model: Model
    excluded: tuple[int, ...] = ()

    def ask(
        self,
        question: Question,
        answers: Answers,
        engine: str | EngineOptions | None = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Ask until `answers` has taken the answers to all pieces of the question.

        It survives what a run survives: workers that are slow, die or lie.
        """
        _require_callable(progress)
        options = self.settings.engine_options if engine is None else ENGINES.chosen(engine)
        allocation, logs = self._allocation(question, workers), self.folder / "logs"
        with forgotten(self.shards):
            ask_workers(options, self._job, allocation, question, answers, logs, progress)

    def answer_here(
        self, question: Question, answers: Answers, progress: Progress | None = None
    ) -> None:
        """Answer all pieces of the question in this process, from rows in the run's folder.

        Like workers, it uses one thread of BLAS: the arrays are small, so others would only wait.
        """
        _require_callable(progress)
        with threadpool_limits(1, "blas"):
            self._answer_here(question, answers, progress)

    def _answer_here(self, question: Question, answers: Answers, progress: Progress | None) -> None:
        model, streams = for_workers(self.model), Streams(self.settings.seed)
        rows = ShardSet.open(self.shards.folder)
        pieces = [(shard, i) for shard in question.shards for i in range(question.pieces_of(shard))]
        for n_done, (shard, piece) in enumerate(pieces, start=1):
            task = question.task(0, shard, piece)
            found = computed(model, rows.shard(shard), streams, task)
            wrong = question.fault_in(ShardFound(task, found))
            require(not wrong, f"Shard {shard} has no answer: {wrong}. Check the model there.")
            answers.take(shard, piece, found)
            if progress is not None:
                progress(n_done, len(pieces))

    def _allocation(self, question: Question, workers: int | None) -> Allocation:
        """Shards of each worker. By default, no worker is started without a shard."""
        require(
            workers is None or (isinstance(workers, int) and workers >= 1),
            f"workers must be a whole number, at least 1, not {workers!r}.",
        )
        if isinstance(self.shards, PlacedShards) and self.shards.sites:
            return one_to_one(self.shards.n_shards)
        n_shards, settings = len(question.shards), self.settings
        redundancy = max(settings.shards_per_worker, _FEWEST_HOLDERS)
        default = min(settings.workers, n_shards + redundancy - 1)
        n_pieces = sum(question.pieces_of(shard) for shard in question.shards)
        n_workers = min(workers or default, n_pieces)
        copies = max(redundancy, n_workers - n_shards + 1)
        return allocation_for(n_workers, question.shards, copies)

    @property
    def included(self) -> tuple[int, ...]:
        """Shards whose rows have a part in the draws."""
        return tuple(s for s in range(self.shards.n_shards) if s not in self.excluded)

    @property
    def settings(self) -> Settings:
        """Settings of the last sitting."""
        return self._opened[0]

    @property
    def shards(self) -> Shards:
        """The shards, which must be those of the run."""
        require_rows(self.folder)  # which may have gone since
        return self._opened[1]

    @cached_property
    def n_rows(self) -> tuple[int, ...]:
        """Rows of each shard, as the journal has them."""
        with JournalReader(self.folder) as reader:
            return tuple(configuration_of(reader).get("rows", ()))

    @cached_property
    def _opened(self) -> tuple[Settings, Shards]:
        require_rows(self.folder)
        with JournalReader(self.folder) as reader:
            kept = configuration_of(reader)
            told = [record.settings for record in reader.records() if isinstance(record, Resumed)]
        settings = Settings.from_json([kept["settings"], *told][-1])
        return settings.without_faults(), same_shards(self.folder, kept)

    @property
    def _job(self) -> Job:
        shards, seed = self.shards, self.settings.seed
        sampler = make_sampler("auto")  # of no use: nothing is drawn from shards
        placed = shards if isinstance(shards, PlacedShards) else None
        folder = str(shards.folder)
        return Job(self.model, sampler, SendDraws(), folder, shards.n_shards, seed, placed)


def _require_callable(progress: object) -> None:
    require(
        progress is None or callable(progress),
        f"progress must be a function of the pieces of work that are done, and their number, not "
        f"{progress!r}.",
    )
