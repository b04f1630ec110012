"""All errors and warnings of quorate. A message says what is wrong, and then what to do.

QuorateError
├── BadInputError            a value that cannot be right
│   ├── NotANumberError      a log density that is NaN or +inf
│   └── WrongShapeError      log densities of many points that are not one for each
├── UndecodableError         a set of answers that does not decode
├── SingularCovarianceError  too few draws for weights
├── UserCodeError            an error raised by a function of the model
│   └── BadCallError         an error that its arguments explain; also a BadInputError
├── WorkerFailedError        an error raised by the model or the sampler in a worker
├── UnreachableError         too many dead workers for the draws that were asked for
├── LostShardError           a shard that no living worker holds; it carries the draws so far
├── ImproperError            a subposterior without a mode, or flat along some direction
│   └── NotConvergedError    a search for a mode that ended before it found one
├── JournalError             a journal that cannot be read, written or resumed
├── SaveError                a file of a run that cannot be written
├── DeviceMemoryError        rows that do not fit the memory of a device
└── MissingExtraError        an optional library that is not installed

QuorateWarning
├── IllConditionedCodeWarning   a code that multiplies rounding errors beyond use
├── WrongShapeWarning           a subposterior whose shape does not suit its sampler
├── NotANumberWarning           proposals refused where a log density was NaN or +inf
├── ExcludedShardsWarning       draws without the rows of some shards
├── ChangedModelWarning         a run resumed with a model whose code has changed
├── DeviceWarning               a worker on another device than it was to use
├── JournalWarning              damaged rows of a journal that were left out
├── DivergenceWarning           Hamiltonian trajectories that diverged
├── EntryPointWarning           an installed package whose entry point cannot be loaded
├── FewGroupsWarning            a merge of a hierarchical model with few groups a shard
└── CombinationWarning          a rule whose result is poor, or which another rule would beat
"""

from collections.abc import Collection, Sequence
from typing import Any


class QuorateError(Exception):
    """Base of all errors that quorate raises on purpose."""


class BadInputError(QuorateError, ValueError):
    """A value that cannot be right. The message says what is wrong, and then what to do."""


class NotANumberError(BadInputError):
    """A log density that is NaN or +inf: it must be a number, or -inf outside the support."""

    @classmethod
    def at_point(cls, value: float, point: Sequence[float]) -> "NotANumberError":
        """The error for a density whose coordinates have no names."""
        shown = ", ".join(f"{x:.4g}" for x in point[:8]) + (", …" * (len(point) > 8))
        return cls(
            f"The log density is {value} at x = ({shown}). Let the model return a number there, or "
            "-inf if the point has probability 0. Look for log(0), 0/0 and overflow."
        )


class WrongShapeError(BadInputError):
    """Log densities of many points at once that are not one for each point."""


class UserCodeError(QuorateError):
    """A function of the model raised an error. The message names the function and its arguments."""


class BadCallError(UserCodeError, BadInputError):
    """A function of the model cannot take the point or the rows that it was given."""


class UndecodableError(QuorateError):
    """A set of answers that does not decode: who answered, and how many more are needed."""

    def __init__(self, received: Collection[int], n_lacking: int, among: Collection[int]) -> None:
        super().__init__(received, n_lacking, among)
        self.received, self.n_lacking, self.among = received, n_lacking, among

    def __str__(self) -> str:
        answered = named_workers(self.received) if self.received else "no workers"
        return (
            f"The answers of {answered} do not decode. At least {self.n_lacking} more must come "
            f"from {named_workers(self.among)}: wait, or raise `redundancy`."
        )


class SingularCovarianceError(QuorateError):
    """A covariance estimate has no inverse, which weights need."""

    def __str__(self) -> str:
        return (
            "A covariance estimate is singular, so consensus weights do not exist. Draw more than "
            "the number of dimensions from every shard, or raise `cov_ridge` (`precision_ridge` "
            "for coded draws)."
        )


class WorkerFailedError(QuorateError):
    """Code of the model or the sampler raised an error in a worker process."""

    def __init__(
        self,
        worker: int,
        shard: int | None,
        kind: str,
        message: str,
        traceback: str,
        run_dir: str | None = None,
    ) -> None:
        super().__init__(worker, shard, kind, message, traceback, run_dir)
        self.worker, self.shard, self.kind = worker, shard, kind
        self.message, self.traceback, self.run_dir = message, traceback, run_dir

    @property
    def is_bad_input(self) -> bool:
        """Whether quorate itself refused the model or its rows."""
        return is_refusal(self.kind)

    def __str__(self) -> str:
        where = "" if self.shard is None else f" on shard {self.shard}"
        said = f"worker {self.worker} failed{where} with {self.kind}: {self.message}"
        if self.run_dir is None:
            return said
        way_out = f"quorate.resume({self.run_dir!r}, model) continues it with a corrected model."
        return f"{said.rstrip('.')}. The run is saved: {way_out}"


class UnreachableError(QuorateError):
    """Too many workers are dead to ever reach the number of global draws asked for."""

    def __init__(self, scheme: str, n_draws: int, lost: Collection[int]) -> None:
        super().__init__(scheme, n_draws, lost)
        self.scheme, self.n_draws, self.lost = scheme, n_draws, lost

    def __str__(self) -> str:
        return (
            f"{self.scheme} can never reach {self.n_draws} global draws without "
            f"{named_workers(self.lost)}. Use fewer dead workers, raise `redundancy`, or use a "
            "scheme that has it."
        )


class LostShardError(QuorateError):
    """All workers that hold some shard are lost for good. `result` has the draws so far."""

    def __init__(self, shards: Collection[int], result: Any) -> None:
        super().__init__(shards, result)
        self.shards, self.result = shards, result

    def __str__(self) -> str:
        return (
            f"No living worker holds {named_shards(self.shards)}. The draws in `error.result` are "
            "of the whole posterior, but fewer than were asked for. Resume the run when its "
            "machines are back, raise `redundancy`, or, in a merge, use on_lost_shard='exclude' to "
            "continue without those rows."
        )


class ImproperError(QuorateError):
    """A subposterior that cannot be normalised, or looks like it: no mode, or a flat direction.

    `what` describes the finding, `along` names its coordinates.
    """

    def __init__(self, what: str, along: Collection[str], n_rows: int | None = None) -> None:
        super().__init__(what, along, n_rows)
        self.what, self.along, self.n_rows = what, along, n_rows

    def __str__(self) -> str:
        shown = ", ".join(list(self.along)[:5]) + (", …" if len(self.along) > 5 else "")
        rows = "" if self.n_rows is None else f" (the shard has {self.n_rows} rows)"
        return (
            f"{self.what}, mostly along {shown}{rows}: the subposterior is improper or nearly so, "
            "as with fewer rows than coefficients, perfectly separated classes or collinear "
            "columns under a flat prior. Use fewer shards, a proper prior, or fewer coefficients. "
            "A hierarchical model may be proper without a mode: use sampler='nuts' for it."
        )


class NotConvergedError(ImproperError):
    """A search for a mode that ended while the log density still rose.

    There may be none; or the density has kinks, as with a Laplace prior, at which searches stall.
    """


class JournalError(QuorateError):
    """A journal that cannot be used: which file, what is wrong, and what to do.

    If it ended a run under way, `result` has the draws so far.
    """

    def __init__(self, path: str, what: str, way_out: str, result: Any = None) -> None:
        super().__init__(path, what, way_out, result)
        self.path, self.what, self.way_out, self.result = path, what, way_out, result

    def __str__(self) -> str:
        return f"The journal {self.path} {self.what}: {self.way_out}.{_draws_so_far(self.result)}"


class SaveError(QuorateError):
    """A file of a run that cannot be written: which, and why.

    If it ended a run, `result` has its draws.
    """

    def __init__(self, path: str, why: str, result: Any = None) -> None:
        super().__init__(path, why, result)
        self.path, self.why, self.result = path, why, result

    def __str__(self) -> str:
        return (
            f"{self.path} cannot be written ({self.why}). What was there before has not changed. "
            f"Check disk and folder, then try again.{_draws_so_far(self.result)}"
        )


RESUMABLE = (LostShardError, JournalError, SaveError)  # end a run that can be resumed


class DeviceMemoryError(QuorateError, MemoryError):
    """Rows, and what is computed from them, do not fit the memory of a device.

    A point at which this happens may well have a density, so it is no `BadInputError`.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.device = device

    def __str__(self) -> str:
        return (
            f"The rows of a shard, and what is computed from them, do not fit the memory of "
            f"{self.device}, however few at a time. Cut the rows into more shards on more devices, "
            "let fewer workers share this one, or use cores."
        )


class MissingExtraError(QuorateError, ImportError):
    """Optional libraries are needed and not installed: `modules`, of `extras`."""

    def __init__(self, modules: str | Sequence[str], extras: str | Sequence[str]) -> None:
        super().__init__(modules, extras)
        self.modules = (modules,) if isinstance(modules, str) else tuple(modules)
        self.extras = (extras,) if isinstance(extras, str) else tuple(extras)

    def __str__(self) -> str:
        one = len(self.modules) == 1
        *some, last = self.modules
        listed = f"{', '.join(some)} and {last}" if some else last
        lacking = f"{listed} {'is' if one else 'are'} not installed."
        way = (
            f"Install {'it' if one else 'them'}: `pip install 'quorate[{','.join(self.extras)}]'`."
        )
        return f"{lacking} {way}"


class QuorateWarning(UserWarning):
    """Base of all warnings that quorate gives."""


class IllConditionedCodeWarning(QuorateWarning):
    """A gradient code whose decoding multiplies rounding errors beyond use."""


class WrongShapeWarning(QuorateWarning):
    """A subposterior whose shape does not suit its sampler: draws are expensive or correlated."""


class NotANumberWarning(QuorateWarning):
    """Proposals that were refused where a log density was NaN or +inf."""


class JournalWarning(QuorateWarning):
    """Damaged rows of a journal, and rows that follow them, were left out."""


class ExcludedShardsWarning(QuorateWarning):
    """The draws are of the posterior without the rows of some shards."""


class ChangedModelWarning(QuorateWarning):
    """The run is being resumed with a model whose code has changed."""


class DeviceWarning(QuorateWarning):
    """A worker computes on another device than it was to use."""


class DivergenceWarning(QuorateWarning):
    """Hamiltonian trajectories that diverged: the draws may miss part of the posterior."""


class EntryPointWarning(QuorateWarning):
    """An installed package registers something that cannot be loaded."""


class FewGroupsWarning(QuorateWarning):
    """A merge of a hierarchical model whose shards have too few groups for it."""


class CombinationWarning(QuorateWarning):
    """A rule for combining draws gives a poor result, or another rule would give a better one."""


def _draws_so_far(result: Any) -> str:
    return "" if result is None else " The draws so far are in `error.result`."


def named_workers(workers: Collection[int]) -> str:
    """`worker 3`, `workers 0, 2`, or the first few of very many."""
    shown = [str(worker) for worker in sorted(workers)[:8]]
    more = f" and {len(workers) - 8} more" if len(workers) > 8 else ""
    return ("worker " if len(workers) == 1 else "workers ") + ", ".join(shown) + more


def named_shards(shards: Collection[int]) -> str:
    """`shard 3`, or `shards 0, 2`."""
    return ("shard " if len(shards) == 1 else "shards ") + ", ".join(map(str, shards))


def is_refusal(kind: str) -> bool:
    """Whether an error of this name is one by which quorate refuses a model or its data.

    A device with too little memory is no reason to refuse them: other workers may have more.
    """
    found = globals().get(kind)
    if not isinstance(found, type):
        return False
    others = (UserCodeError, DeviceMemoryError)
    return issubclass(found, QuorateError) and not issubclass(found, others)


def require(holds: bool, message: str) -> None:
    """Raise `BadInputError` with this message unless `holds`."""
    if not holds:
        raise BadInputError(message)


def warning_named(name: str) -> type[QuorateWarning]:
    """The class of the warning that a worker process names."""
    found = globals().get(name)
    if isinstance(found, type) and issubclass(found, QuorateWarning):
        return found
    return QuorateWarning
