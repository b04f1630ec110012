"""Everything quorate raises or warns of.

QuorateError
├── BadInputError            a value that cannot be right, by name, and the way out
│   └── NotANumberError      a log density that is NaN or +inf where a chain or a search went
├── UndecodableError         a set of answers does not decode
├── SingularCovarianceError  weights asked for from draws that do not span the space
├── WorkerFailedError        code of the model or the sampler raised an error in a worker
├── UnreachableError         the workers still alive can never give what was asked
├── LostShardError           nobody alive holds a shard; what was drawn by then comes with it
├── ImproperError            a subposterior that has no mode, or is flat along some direction
├── JournalError             the file of a run that cannot be read, written or gone on with
└── MissingExtraError        an optional library that is not installed

QuorateWarning
├── IllConditionedCodeWarning   a code multiplies rounding errors beyond use
├── WrongShapeWarning           a subposterior whose shape is wrong for its sampler
├── NotANumberWarning           proposals refused where a log density was NaN or +inf
├── ExcludedShardsWarning       a run went on without shards that nobody held any more
├── ChangedModelWarning         a run is gone on with under other code than it began with
├── JournalWarning              rows of a journal that are damaged and were left out
├── DivergenceWarning           trajectories that left the region where they can be trusted
└── CombinationWarning          a rule for combining draws that is out of its depth
"""

from collections.abc import Collection, Sequence
from typing import Any


class QuorateError(Exception):
    """Base of all errors that quorate raises on purpose."""


class BadInputError(QuorateError, ValueError):
    """A value that cannot be right. The message says what is wrong, and then what to do."""

    def __init__(self, *parts: object) -> None:
        if len(parts) == 3:  # name, value, way out: being replaced by sentences
            parts = (f"{parts[0]} is {parts[1]!r}: {parts[2]}",)
        super().__init__(*parts)


class NotANumberError(BadInputError):
    """A log density that is NaN or +inf: it must be a number, or -inf outside the support."""

    @classmethod
    def at_point(cls, value: float, point: Sequence[float]) -> "NotANumberError":
        """Of a density that knows no names of coordinates."""
        shown = ", ".join(f"{x:.4g}" for x in point[:8]) + (", …" * (len(point) > 8))
        way_out = (
            f"at x = ({shown}); let the model return a number there, or -inf if the point has "
            "probability 0: look for log(0), 0/0 and overflow"
        )
        return cls("the log density", value, way_out)


class UndecodableError(QuorateError):
    """A set of answers that does not decode: who answered, and where at least how many lack."""

    def __init__(self, received: Collection[int], n_lacking: int, among: Collection[int]) -> None:
        super().__init__(received, n_lacking, among)
        self.received, self.n_lacking, self.among = received, n_lacking, among

    def __str__(self) -> str:
        answered = named_workers(self.received) if self.received else "no workers"
        return (
            f"the answers of {answered} do not decode: at least {self.n_lacking} more from "
            f"{named_workers(self.among)} must come: wait, or raise `redundancy`"
        )


class SingularCovarianceError(QuorateError):
    """A covariance that weights need an inverse of has none."""

    def __str__(self) -> str:
        return (
            "a covariance estimate is singular, so consensus weights do not exist: "
            "draw more than the number of dimensions from every shard, or raise `cov_ridge` "
            "(`precision_ridge` for coded draws)"
        )


class WorkerFailedError(QuorateError):
    """Code of the model or the sampler raised an error in a worker process."""

    def __init__(
        self, worker: int, shard: int | None, kind: str, message: str, traceback: str
    ) -> None:
        super().__init__(worker, shard, kind, message, traceback)
        self.worker, self.shard, self.kind = worker, shard, kind
        self.message, self.traceback = message, traceback

    @property
    def is_bad_input(self) -> bool:
        """Whether quorate itself refused the model or its rows, and says what to do."""
        return is_our_own(self.kind)

    def __str__(self) -> str:
        where = "" if self.shard is None else f" on shard {self.shard}"
        return f"worker {self.worker} failed{where} with {self.kind}: {self.message}"


class UnreachableError(QuorateError):
    """The number of global draws asked for can never be reached: too many workers are dead."""

    def __init__(self, scheme: str, n_draws: int, lost: Collection[int]) -> None:
        super().__init__(scheme, n_draws, lost)
        self.scheme, self.n_draws, self.lost = scheme, n_draws, lost

    def __str__(self) -> str:
        redundancy = (
            "use a scheme with redundancy" if self.scheme == "cmc" else "raise `redundancy`"
        )
        return (
            f"{self.scheme} can never reach {self.n_draws} global draws without "
            f"{named_workers(self.lost)}: have fewer workers dead, or {redundancy}"
        )


class LostShardError(QuorateError):
    """Every worker that holds some shards is lost for good. `result` is what there was by then."""

    def __init__(self, shards: Collection[int], result: Any) -> None:
        super().__init__(shards, result)
        self.shards, self.result = shards, result

    def __str__(self) -> str:
        return (
            f"nobody alive holds {named_shards(self.shards)}: the draws in `error.result` are of "
            "the whole posterior, but fewer than were asked for. Resume the run when its machines "
            "are back, raise `redundancy`, or say on_lost_shard='exclude' to go on without those "
            "rows"
        )


class ImproperError(QuorateError):
    """A subposterior that cannot be normalised, or looks like it: no mode, or a flat direction.

    `what` says what was seen, `along` names the coordinates it was seen in.
    """

    def __init__(self, what: str, along: Collection[str], n_rows: int | None = None) -> None:
        super().__init__(what, along, n_rows)
        self.what, self.along, self.n_rows = what, along, n_rows

    def __str__(self) -> str:
        shown = ", ".join(list(self.along)[:5]) + (", …" if len(self.along) > 5 else "")
        rows = "" if self.n_rows is None else f" (the shard has {self.n_rows} rows)"
        return (
            f"{self.what}, mostly along {shown}{rows}: the subposterior is improper or nearly so, "
            "as with fewer rows than coefficients, perfectly separated classes or columns that "
            "repeat each other under a flat prior. Use fewer shards, a proper prior, or fewer "
            "coefficients; for a hierarchical model, whose density may have no mode though it is "
            "proper, use sampler='nuts'"
        )


class JournalError(QuorateError):
    """The file that a run is kept in cannot be used: which file, what is wrong, the way out."""

    def __init__(self, path: str, what: str, way_out: str) -> None:
        super().__init__(path, what, way_out)
        self.path, self.what, self.way_out = path, what, way_out

    def __str__(self) -> str:
        return f"journal {self.path} {self.what}: {self.way_out}"


class MissingExtraError(QuorateError, ImportError):
    """An optional library is needed and not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(module, extra)
        self.module, self.extra = module, extra

    def __str__(self) -> str:
        return f"{self.module} is not installed: `pip install quorate[{self.extra}]`"


class QuorateWarning(UserWarning):
    """Base of all warnings that quorate gives."""


class IllConditionedCodeWarning(QuorateWarning):
    """A gradient code whose decoding multiplies rounding errors beyond use."""


class WrongShapeWarning(QuorateWarning):
    """A subposterior whose shape is wrong for its sampler, so that draws are dear or alike."""


class NotANumberWarning(QuorateWarning):
    """Proposals that were refused where a log density was NaN or +inf."""


class JournalWarning(QuorateWarning):
    """Rows of a journal that are damaged, or come after such a row, and were left out."""


class ExcludedShardsWarning(QuorateWarning):
    """The draws are of the posterior without the rows of some shards."""


class ChangedModelWarning(QuorateWarning):
    """A run is gone on with under a model whose code is not what it was."""


class DivergenceWarning(QuorateWarning):
    """Hamiltonian trajectories that diverged: the draws may miss part of the posterior."""


class CombinationWarning(QuorateWarning):
    """A rule for combining draws whose result is poor, or what another rule would have given."""


def named_workers(workers: Collection[int]) -> str:
    """`worker 3`, `workers 0, 2`, or the first few of very many."""
    shown = [str(worker) for worker in sorted(workers)[:8]]
    more = f" and {len(workers) - 8} more" if len(workers) > 8 else ""
    return ("worker " if len(workers) == 1 else "workers ") + ", ".join(shown) + more


def named_shards(shards: Collection[int]) -> str:
    """`shard 3`, or `shards 0, 2`."""
    return ("shard " if len(shards) == 1 else "shards ") + ", ".join(map(str, shards))


def is_our_own(kind: str) -> bool:
    """Whether an error of this name is one that quorate raises."""
    found = globals().get(kind)
    return isinstance(found, type) and issubclass(found, QuorateError)


def require(holds: bool, *message: object) -> None:
    """Raise `BadInputError` with this message unless `holds`."""
    if not holds:
        raise BadInputError(*message)


def warning_named(name: str) -> type[QuorateWarning]:
    """The warning of this name, as a worker process tells it."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, QuorateWarning):
        return found
    return QuorateWarning
